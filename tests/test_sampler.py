"""The sampler against slow, plain numpy: which tokens may come, how often, and with what logprobs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm.sampler import Sampler, SampleRow, request_seed, token_weights, uniform
from minivllm.sampling import SamplingParams

SAMPLER = Sampler(0)
GREEDY = {"temperature": 0.0}


def row(params, prompt=(1, 2), output=(), seed=0, count=1, stop_ids=frozenset()):
    tokens = [*prompt, *output]
    return SampleRow(SamplingParams(**params), tokens, len(prompt), frozenset(stop_ids), seed, count)


def sample_one(logits, sample_row):
    """Token ids of one row given as a plain list."""
    return [t.token_id for t in SAMPLER.sample(torch.tensor([logits], dtype=torch.float32), [sample_row])[0]]


def random_logits(num_rows, vocab_size, seed=0, scale=3.0):
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * scale


# Rounded to quarters, so that ties are common.
logit_rows = st.lists(st.integers(-24, 24).map(lambda v: v / 4), min_size=1, max_size=24)
truncations = st.builds(
    dict,
    temperature=st.sampled_from([1e-6, 0.3, 1.0, 2.5]),
    top_k=st.integers(-1, 26),
    top_p=st.just(1.0) | st.floats(0.01, 0.99),
    min_p=st.sampled_from([0.0, 1.0]) | st.floats(0.01, 0.99),
)
others = [
    GREEDY,
    GREEDY | {"repetition_penalty": 1.3, "logprobs": 2},
    {"temperature": 0.8, "presence_penalty": 0.7, "frequency_penalty": -0.4, "logprobs": 0},
    {"min_tokens": 4},
]
any_params = truncations | st.sampled_from(others)


def support(logits, params):
    return set(token_weights(logits, SamplingParams(**params)).nonzero().flatten().tolist())


def spec_support(logits, params):
    """Tokens that may be drawn, by the definitions, one token at a time in order of likelihood."""
    params = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | params
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    weights = {t: math.exp((logits[t] - max(logits)) / params["temperature"]) for t in order}
    kept = [t for t in order if weights[t] >= params["min_p"]]
    if params["top_k"] > 0:
        kept = kept[: params["top_k"]]
    if params["top_p"] < 1:
        target = params["top_p"] * math.fsum(weights[t] for t in kept)
        nucleus = []
        while math.fsum(weights[t] for t in nucleus) < target:
            nucleus.append(kept[len(nucleus)])
        kept = nucleus
    return {t for t in kept if weights[t] > 0}


@settings(deadline=None, max_examples=150)
@given(logit_rows, truncations)
def test_truncation_keeps_exactly_the_tokens_of_the_plain_spec(logits, params):
    assert support(torch.tensor(logits), params) == spec_support(logits, params)


@pytest.mark.parametrize("scale", [0.01, 1.0, 6.0])
def test_nucleus_of_a_large_vocabulary_equals_the_plain_spec(scale):
    """Nuclei of a few tokens, of thousands, and of nearly all: each size that the search grows to."""
    logits = random_logits(1, 9000, seed=1, scale=scale)[0]
    values = logits.double().numpy()
    order = np.argsort(-values, kind="stable")
    probabilities = np.exp(values[order] - values.max()) / np.exp(values - values.max()).sum()
    size = int(np.searchsorted(np.cumsum(probabilities), 0.9)) + 1
    assert support(logits, {"top_p": 0.9}) == set(order[:size].tolist())


@pytest.mark.parametrize(
    ("logits", "params", "kept"),
    [
        # At the border: the smallest set that reaches top_p, and the lowest ids of equal tokens.
        *[([0.0] * 4, {"top_p": 0.25 * n}, set(range(n))) for n in (1, 2, 3)],
        *[([0.0] * 4, {"top_p": 0.25 * n + 1e-7}, set(range(n + 1))) for n in (1, 2, 3)],
        ([0.0, 5.0, 0.0], {"top_p": 1e-9}, {1}),
        # Of all four, 0.6 needs three tokens; of the two that top_k leaves, it needs two.
        ([0.0] * 4, {"top_k": 2, "top_p": 0.6}, {0, 1}),
        # Divided by such a temperature all are equal; the order is still that of the logits.
        ([1.0, 3.0, 2.0], {"temperature": 1e30, "top_k": 2}, {1, 2}),
    ],
)
def test_truncation_in_cases_worked_out_by_hand(logits, params, kept):
    assert support(torch.tensor(logits), params) == kept


@settings(deadline=None, max_examples=40)
@given(st.lists(any_params, min_size=1, max_size=6), st.integers(1, 40), st.randoms(use_true_random=False))
def test_a_row_gets_the_same_tokens_alone_in_a_batch_and_in_any_order(all_params, vocab_size, random):
    logits = random_logits(len(all_params), vocab_size)
    tokens = list(range(min(vocab_size, 3)))
    rows = [row(params, [0], tokens, i, 1 + i % 3, {vocab_size}) for i, params in enumerate(all_params)]
    alone = [SAMPLER.sample(logits[i : i + 1], [r])[0] for i, r in enumerate(rows)]
    order = list(range(len(rows)))
    random.shuffle(order)
    assert SAMPLER.sample(logits, rows) == alone
    assert SAMPLER.sample(logits[order], [rows[i] for i in order]) == [alone[i] for i in order]


def test_sampling_leaves_the_logits_and_torchs_random_state_alone():
    logits = random_logits(3, 50)
    before, state = logits.clone(), torch.get_rng_state()
    hard = {"repetition_penalty": 2.0, "frequency_penalty": 1.0, "min_tokens": 3, "top_p": 0.5, "logprobs": 3}
    SAMPLER.sample(logits, [row(hard, output=[3, 3], stop_ids={5}), row(GREEDY), row({})])
    assert torch.equal(logits, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "params",
    [{}, {"temperature": 0.7}, {"temperature": 1.5, "top_k": 5}, {"top_p": 0.8}, {"min_p": 0.2}],
)
def test_tokens_come_as_often_as_the_distribution_says(params):
    num_draws, logits = 4000, random_logits(1, 12, seed=3, scale=1.5)
    tokens = [t.token_id for t in SAMPLER.sample(logits, [row(params, seed=7, count=num_draws)])[0]]
    allowed = sorted(spec_support(logits[0].tolist(), params))
    values = logits[0].double().numpy()[allowed] / params.get("temperature", 1.0)
    expected = num_draws * np.exp(values) / np.exp(values).sum()
    counts = np.bincount(tokens, minlength=12)
    assert counts.sum() == counts[allowed].sum()
    chi_square = ((counts[allowed] - expected) ** 2 / expected).sum()
    # Mean is the degrees of freedom; five standard deviations above it is one run in millions.
    freedom = len(allowed) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom)


def test_uniform_numbers_fill_the_unit_interval_over_seeds_and_over_positions():
    for numbers in ([uniform(seed, 0) for seed in range(4000)], [uniform(5, i) for i in range(4000)]):
        assert all(0 <= u < 1 and (u * 2**53).is_integer() for u in numbers)
        counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
        assert ((counts - 200) ** 2 / 200).sum() < 19 + 5 * math.sqrt(38)
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.08


@pytest.mark.parametrize(("number", "token"), [(0.0, 1), (0.5, 3), (1 - 2.0**-53, 3)])
def test_a_number_at_a_border_never_draws_a_token_of_weight_zero(monkeypatch, number, token):
    """Tokens 1 and 3 have half of the weight each; 0, 2 and 4 have none."""
    monkeypatch.setattr("minivllm.sampler.uniform", lambda seed, output_index: number)
    assert sample_one([0.0, 7.0, 0.0, 7.0, 0.0], row({"top_k": 2})) == [token]


def test_the_seed_and_the_output_index_decide_the_token_and_the_prompt_length_does_not():
    def tokens(prompt, seed):
        return [sample_one([0.0] * 1000, row({}, prompt, [9] * i, seed=seed))[0] for i in range(20)]

    assert tokens([1], seed=4) == tokens([1] * 7, seed=4)
    assert len(set(tokens([1], seed=4))) > 15
    assert sum(a == b for a, b in zip(tokens([1], seed=4), tokens([1], seed=5), strict=True)) < 3


def test_count_draws_what_separate_requests_with_consecutive_seeds_would():
    logits = random_logits(1, 100)
    together = SAMPLER.sample(logits, [row({"logprobs": 2}, seed=11, count=5)])[0]
    apart = [SAMPLER.sample(logits, [row({"logprobs": 2}, seed=11 + i)])[0][0] for i in range(5)]
    assert together == apart
    assert len({t.token_id for t in together}) > 1


def test_greedy_with_count_gives_the_same_token_each_time():
    assert sample_one([0.0, 3.0, 1.0], row(GREEDY, count=3)) == [1, 1, 1]
    assert sample_one([0.0, 3.0, 1.0], row(GREEDY | {"presence_penalty": 2}, output=[1], count=2)) == [1, 1]


def test_greedy_takes_the_lowest_of_equal_ids():
    logits = torch.zeros(2, 50_000)
    logits[0, [40_000, 123]] = 1.0
    assert [t[0].token_id for t in SAMPLER.sample(logits, [row(GREEDY), row(GREEDY)])] == [123, 0]


@pytest.mark.parametrize("temperature", [1e-6, 1e-300, 5e-324])
def test_a_tiny_temperature_is_greedy_and_does_not_overflow(temperature):
    logits = random_logits(4, 30, scale=100)
    tokens = SAMPLER.sample(logits, [row({"temperature": temperature}, seed=i) for i in range(4)])
    assert [t[0].token_id for t in tokens] == logits.argmax(-1).tolist()


def spec_penalized(logits, prompt, output, repetition, presence, frequency):
    changed = []
    for token, logit in enumerate(logits):
        if token in prompt or token in output:
            logit = logit / repetition if logit > 0 else logit * repetition
        changed.append(logit - frequency * output.count(token) - presence * (token in output))
    return changed


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.floats(-8, 8, width=32), min_size=6, max_size=6),
    st.lists(st.integers(0, 5), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), max_size=8),
    st.tuples(*map(st.sampled_from, ([0.5, 1.0, 1.2], [-2, 0, 0.6], [-1.5, 0, 0.3]))),
)
def test_penalties_move_the_logits_as_the_plain_spec_does(logits, prompt, output, values):
    names = ("repetition_penalty", "presence_penalty", "frequency_penalty")
    penalties = dict(zip(names, values, strict=True))
    expected = spec_penalized(logits, prompt, output, *values)
    second, best = sorted(expected)[-2:]
    token = sample_one(logits, row(GREEDY | penalties, prompt, output))[0]
    # float32 may swap two that are nearly equal.
    assert expected[token] == best or best - second < 1e-5 and expected[token] >= best - 1e-5


def test_repetition_penalty_equals_that_of_transformers():
    from transformers import RepetitionPenaltyLogitsProcessor

    logits = random_logits(8, 40, seed=2)
    history = [[(i * 7 + j * j) % 40 for j in range(12)] for i in range(8)]
    expected = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor(history), logits.clone())
    assert not torch.equal(expected.argmax(-1), logits.argmax(-1))
    rows = [row(GREEDY | {"repetition_penalty": 1.7}, h[:5], h[5:]) for h in history]
    assert [t[0].token_id for t in SAMPLER.sample(logits, rows)] == expected.argmax(-1).tolist()
    drawn = [row({"repetition_penalty": 1.7}, h[:5], h[5:], seed=i) for i, h in enumerate(history)]
    plain = [row({}, h[:5], h[5:], seed=i) for i, h in enumerate(history)]
    assert SAMPLER.sample(logits, drawn) == SAMPLER.sample(expected, plain)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_min_tokens_holds_stop_ids_back_until_that_many_tokens_are_out(temperature):
    logits = [0.0, 50.0, 1.0, 49.0]
    params = {"temperature": temperature, "min_tokens": 2}
    taken = [sample_one(logits, row(params, (2,), [0] * n, stop_ids={1, 3, 999}))[0] for n in range(4)]
    assert not {1, 3} & set(taken[:2])
    assert all(token in (1, 3) for token in taken[2:])


def test_logprobs_are_those_of_the_raw_logits_whatever_else_is_asked():
    logits = random_logits(1, 20, seed=6)
    expected = logits[0].log_softmax(-1)
    params = {"temperature": 0.5, "top_k": 3, "repetition_penalty": 1.9, "logprobs": 4}
    for seed in range(10):
        token = SAMPLER.sample(logits, [row(params, prompt=[3], output=[4, 5], seed=seed)])[0][0]
        order = expected.argsort(descending=True).tolist()
        assert token.logprob == token.top_logprobs[token.token_id][0]
        assert next(iter(token.top_logprobs)) == token.token_id
        assert set(token.top_logprobs) == {token.token_id, *order[:4]}
        for other, (logprob, rank) in token.top_logprobs.items():
            assert logprob == pytest.approx(expected[other].item(), abs=1e-6)
            assert rank == order.index(other) + 1


@settings(deadline=None, max_examples=60)
@given(logit_rows, st.integers(0, 20), st.integers(0, 3))
def test_ranks_count_from_one_and_break_ties_by_token_id(logits, k, seed):
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    for params in ({"logprobs": k}, GREEDY | {"logprobs": k}):
        token = SAMPLER.sample(torch.tensor([logits]), [row(params, [0], seed=seed)])[0][0]
        ranks = {other: rank for other, (_, rank) in token.top_logprobs.items()}
        assert ranks == {other: order.index(other) + 1 for other in {*order[:k], token.token_id}}
        assert len(token.top_logprobs) in (min(k, len(logits)), min(k, len(logits)) + 1)


def test_rows_with_different_numbers_of_logprobs_do_not_mix():
    logits = random_logits(4, 30)
    rows = [row({"logprobs": 5}), row(GREEDY), row(GREEDY | {"logprobs": 0}), row({"logprobs": 2}, count=2)]
    result = SAMPLER.sample(logits, rows)
    assert result == [SAMPLER.sample(logits[i : i + 1], rows[i : i + 1])[0] for i in range(4)]
    assert [len(tokens) for tokens in result] == [1, 1, 1, 2]
    assert result[1][0] == (logits[1].argmax().item(), None, None)
    assert list(result[2][0].top_logprobs) == [logits[2].argmax().item()]


def test_a_request_with_a_seed_keeps_it_and_one_without_gets_a_mixed_one():
    assert request_seed(0, 3, SamplingParams(seed=42)) == 42
    unseeded = [request_seed(engine, i, SamplingParams()) for engine in range(3) for i in range(50)]
    assert len(set(unseeded)) == 150 and all(0 <= seed < 2**64 for seed in unseeded)
    assert unseeded[1] == Sampler(0).request_seed(1, SamplingParams())


def test_broken_logits_of_one_row_give_a_token_of_the_vocabulary_and_spare_the_others():
    logits = random_logits(2, 16)
    expected = SAMPLER.sample(logits[1:], [row({}, seed=1)])[0]
    logits[0] = math.nan
    tokens = SAMPLER.sample(logits, [row({"top_p": 0.9}), row({}, seed=1)])
    assert 0 <= tokens[0][0].token_id < 16
    assert tokens[1] == expected


def test_rows_must_match_the_logits():
    with pytest.raises(ValueError, match="2 rows of logits for 1 rows"):
        SAMPLER.sample(torch.zeros(2, 4), [row(GREEDY)])
    assert SAMPLER.sample(torch.zeros(0, 4), []) == []
