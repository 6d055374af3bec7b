"""The correctness harness itself: it accepts the right tokens, refuses wrong ones, and knows a tie."""

import random

import pytest
import torch

from tests.checkpoints import SHAPES, make_checkpoint
from tests.reference import Comparison, Reference

FAMILIES = list(SHAPES)


def prompts(num, length=24, seed=0):
    rng = random.Random(seed)
    return [[rng.randrange(160) for _ in range(length)] for _ in range(num)]


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_own_generation_is_accepted(references, family):
    generated = references[family].generate_batch(prompts(4), 100)
    assert generated[2][:10] == references[family].generate(prompts(4)[2], 10)
    result = references[family].check_all(zip(prompts(4), generated, strict=True))
    assert result.num_tokens >= 400 - 100 * result.num_ties


@pytest.mark.parametrize("family", FAMILIES)
def test_one_changed_token_is_refused_wherever_it_is(references, family):
    prompt = prompts(1)[0]
    right = references[family].generate(prompt, 70)
    assert references[family].check_greedy(prompt, right).num_ties == 0
    for position in (0, 1, 35, 63, 64, 69):
        wrong = list(right)
        wrong[position] = (wrong[position] + 1) % 160
        with pytest.raises(AssertionError, match=f"output token {position} is {wrong[position]}, "):
            references[family].check_greedy(prompt, wrong)


def test_the_message_names_both_tokens_and_the_gap(references):
    prompt = prompts(1)[0]
    right = references["llama"].generate(prompt, 1)[0]
    logits = references["llama"].model(torch.tensor([prompt])).logits[0, -1]
    wrong = logits.argmin().item()
    gap = (logits[right] - logits[wrong]).item()
    with pytest.raises(AssertionError, match=f"is {wrong}, transformers has {right}, .* is {gap:.2f}"):
        references["llama"].check_greedy(prompt, [wrong])


@pytest.mark.parametrize("family", FAMILIES)
def test_random_checkpoints_bite(references, family):
    """Tokens vary, and a change of an early prompt token, or of the order of two, changes them."""
    some = prompts(10)
    changed = [p[:2] + [(p[2] + 1) % 160] + p[3:] for p in some]
    reordered = [[p[1], p[0], *p[2:]] for p in some]
    tokens = references[family].generate_batch(some + changed + reordered, 30)
    assert all(len(set(continuation)) >= 12 for continuation in tokens)
    for others in (tokens[10:20], tokens[20:]):
        assert sum(a != b for a, b in zip(tokens[:10], others, strict=True)) >= 9


def test_the_same_arguments_give_the_same_checkpoint_and_another_seed_another(tmp_path, checkpoints):
    state = torch.get_rng_state()
    again = make_checkpoint(tmp_path / "again", "qwen2", seed=1)
    other = make_checkpoint(tmp_path / "other", "qwen2", seed=2)
    weights = [(path / "model.safetensors").read_bytes() for path in (checkpoints["qwen2"], again, other)]
    assert weights[0] == weights[1] != weights[2]
    assert torch.equal(torch.get_rng_state(), state)


def test_no_bias_or_norm_of_a_checkpoint_is_trivial(tmp_path):
    path = make_checkpoint(tmp_path / "biased", "llama", seed=1, attention_bias=True, mlp_bias=True, tie=True)
    for model in (Reference(path).model, Reference(make_checkpoint(tmp_path / "q3", "qwen3", seed=1)).model):
        small = [(name, p) for name, p in model.named_parameters() if p.ndim == 1]
        assert len(small) >= 7 and all(p.std() > 0.1 for _, p in small)


def with_equal_rows(path, family, copies, shift):
    """A reference whose likeliest first token for a prompt is given `copies` rivals, `shift` below it."""
    reference = Reference(make_checkpoint(path, family, seed=3))
    prompt = prompts(1, seed=5)[0]
    with torch.no_grad():
        hidden = reference.model.base_model(torch.tensor([prompt])).last_hidden_state[0, -1]
        best = (reference.model.lm_head.weight @ hidden).argmax().item()
        row = reference.model.lm_head.weight[best]
        rivals = [(best + 1 + i) % 160 for i in range(copies)]
        for rival in rivals:
            # Along the hidden state, so that the logit falls by exactly `shift`.
            reference.model.lm_head.weight[rival] = row - shift * hidden / hidden.dot(hidden)
    return reference, prompt, best, rivals


@pytest.mark.parametrize(("shift", "is_tie"), [(0.0, True), (5e-5, True), (3e-4, False), (1e-2, False)])
def test_a_near_tie_is_accepted_only_below_the_gap(tmp_path, shift, is_tie):
    reference, prompt, best, (rival,) = with_equal_rows(tmp_path, "llama", 1, shift)
    both = {best: None, rival: None}
    first = reference.generate(prompt, 1)[0]
    assert first in both
    second = next(token for token in both if token != first)
    assert reference.check_greedy(prompt, [first]) == Comparison(1, 0)
    if is_tie:
        assert reference.check_greedy(prompt, [second, 0, 0, 0]) == Comparison(1, 1)
    else:
        with pytest.raises(AssertionError, match="output token 0"):
            reference.check_greedy(prompt, [second])


def test_a_near_tie_of_two_others_does_not_excuse_a_third_token(tmp_path):
    reference, prompt, best, rivals = with_equal_rows(tmp_path, "qwen2", 1, 0.0)
    third = next(token for token in range(160) if token not in {best, *rivals})
    with pytest.raises(AssertionError, match=f"output token 0 is {third}"):
        reference.check_greedy(prompt, [third])


def test_one_tie_is_allowed_in_a_small_total_and_two_are_not(tmp_path):
    reference, prompt, best, (rival,) = with_equal_rows(tmp_path, "llama", 1, 0.0)
    second = rival if reference.generate(prompt, 1)[0] == best else best
    tied, sound = (prompt, [second]), (prompt, reference.generate(prompt, 20))
    assert reference.check_all([tied, sound]) == Comparison(21, 1)
    with pytest.raises(AssertionError, match="2 ties in 22 tokens, 1 allowed"):
        reference.check_all([tied, tied, sound])


def test_end_of_sequence_must_be_the_last_token(references):
    prompt = prompts(1)[0]
    tokens = references["qwen3"].generate(prompt, 10)
    eos = tokens[4]
    stopped = references["qwen3"].generate(prompt, 10, eos_ids=[eos])
    assert stopped == tokens[: tokens.index(eos) + 1]
    assert references["qwen3"].check_greedy(prompt, stopped, eos_ids=[eos]) == Comparison(len(stopped), 0)
    for too_long in (tokens, tokens[: len(stopped) + 1]):
        with pytest.raises(AssertionError, match=f"the end-of-sequence token at position {len(stopped) - 1}"):
            references["qwen3"].check_greedy(prompt, too_long, eos_ids=[eos])


@pytest.mark.parametrize(("prompt", "ours"), [([], [1]), ([1], []), ([1], [160]), ([1], [-1])])
def test_what_cannot_be_compared_is_refused(references, prompt, ours):
    with pytest.raises(AssertionError, match="nothing to compare|not in the vocabulary"):
        references["llama"].check_greedy(prompt, ours)


def test_a_comparison_of_no_pairs_is_refused(references):
    with pytest.raises(AssertionError, match="no pairs"):
        references["llama"].check_all([])


def test_only_a_few_positions_have_their_logits_in_memory_at_once(references):
    """At most 64 rows of the vocabulary, however long the output is."""
    reference, prompt = references["llama"], prompts(1)[0]
    tokens = reference.generate(prompt, 150)
    sizes = []
    hook = reference.model.lm_head.register_forward_hook(lambda module, args, out: sizes.append(len(out)))
    reference.check_greedy(prompt, tokens)
    hook.remove()
    assert sizes == [64, 64, 22]
