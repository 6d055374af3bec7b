"""Greedy tokens equal transformers' where memory is shared, taken away, and found again."""

import itertools
import random

import pytest

from minivllm import SamplingParams
from tests.test_greedy_tokens import FAMILIES, assert_greedy, make_llm, random_prompts

CACHES = ("hash", "radix")
MODES = ("recompute", "swap")


def tight(path, **settings):
    """A pool in which about two of six requests fit, so that preemption is constant."""
    settings = {
        "block_size": 4,
        "num_gpu_blocks_override": 10,
        "max_model_len": 40,
        "swap_space": 0.001,
        **settings,
    }
    return make_llm(path, **settings)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("mode", MODES)
def test_constant_preemption_with_shared_prefixes(checkpoints, references, family, cache, mode):
    (stem,) = random_prompts(1, [9])
    prompts = [stem[: 3 * i] + tail for i, tail in enumerate(random_prompts(2, [6, 5, 4, 3, 2, 1]))]
    for budget, chunk in ((8, 1), (5, 0), (64, 0)):
        llm = tight(
            checkpoints[family],
            prefix_cache=cache,
            preemption_mode=mode,
            max_num_batched_tokens=budget,
            long_prefill_token_threshold=chunk,
        )
        assert_greedy(llm, references[family], prompts, [20, 22, 25, 15, 24, 18])
        assert llm.stats()["num_preemptions"] > 0
        moved = sum(step.num_swapped_out for step in llm.trace.steps)
        assert (moved > 0) == (mode == "swap")
        lost = sum(step.num_lost_tokens for step in llm.trace.steps)
        assert lost > 0 if mode == "recompute" else lost == 0


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
def test_prompts_around_block_borders_hit_and_miss(checkpoints, references, cache, block_size):
    llm = make_llm(
        checkpoints["llama"], block_size=block_size, prefix_cache=cache, num_gpu_blocks_override=120
    )
    (stem,) = random_prompts(3, [2 * block_size + 1])
    for length in (2 * block_size - 1, 2 * block_size, 2 * block_size + 1):
        for prompt in (stem[:length], stem[:length], [*stem[:length], 7]):
            assert_greedy(llm, references["llama"], [prompt], [5])
    assert llm.stats()["prefix_cache_hits"] > 0


@pytest.mark.parametrize("cache", CACHES)
def test_shared_prefixes_of_every_alignment(checkpoints, references, cache):
    llm = make_llm(checkpoints["qwen3"], block_size=4, prefix_cache=cache, max_num_batched_tokens=11)
    (stem,) = random_prompts(5, [13])
    tails = random_prompts(6, [4] * 14)
    prompts = [stem[:shared] + tails[shared] for shared in range(14)]
    assert_greedy(llm, references["qwen3"], prompts, [6] * 14)
    random.Random(0).shuffle(prompts)
    outputs = llm.generate(
        prompts, SamplingParams(temperature=0, max_tokens=6, ignore_eos=True), use_tqdm=False
    )
    references["qwen3"].check_all((o.prompt_token_ids, o.outputs[0].token_ids) for o in outputs)
    # Warm, every prompt hits all whole blocks before its last token; a tree also the rest of it.
    exact = [len(p) - 1 if cache == "radix" else (len(p) - 1) // 4 * 4 for p in prompts]
    assert [o.num_cached_tokens for o in outputs] == exact


@pytest.mark.parametrize("cache", CACHES)
def test_a_wholly_cached_prompt_still_computes_its_last_token(checkpoints, references, cache):
    llm = make_llm(checkpoints["qwen2"], block_size=4, prefix_cache=cache)
    (prompt,) = random_prompts(8, [12])
    for _ in range(2):
        assert_greedy(llm, references["qwen2"], [prompt], [9])
    first_steps = [s.num_scheduled_tokens for s in llm.trace.steps if s.num_waiting == 0][9]
    assert list(first_steps.values()) == [1 if cache == "radix" else 4]


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_request_hits_its_own_prefix_and_statistics_do_not_count_it(
    checkpoints, references, cache, mode
):
    llm = make_llm(
        checkpoints["llama"],
        block_size=4,
        num_gpu_blocks_override=30,
        prefix_cache=cache,
        preemption_mode=mode,
    )
    engine = llm.engine
    prompts = random_prompts(9, [13, 10])
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    ids = [engine.add_request(p, params) for p in prompts]
    for _ in range(4):
        engine.step()
    plan = engine.scheduler.schedule()  # take the later request out by hand, in the middle of its answer
    engine.executor.execute(plan)
    engine.scheduler.update(plan, engine.executor.execute(plan).token_ids)
    engine.scheduler._preempt(engine.scheduler.running.pop(), plan)
    answers = {}
    while engine.has_unfinished_requests:
        for output in engine.step():
            engine.scheduler.check()
            if output.finished:
                answers[output.request_id] = output.outputs[0].token_ids
    references["llama"].check_all((p, answers[i]) for i, p in zip(ids, prompts, strict=True))
    assert llm.stats()["prefix_cache_hits"] == 0
    assert llm.stats()["prefix_cache_queries"] == 23


@pytest.mark.parametrize("cache", [None, *CACHES])
def test_completions_of_one_prompt_share_it_and_differ_by_seed(checkpoints, cache):
    for num_blocks, num_seqs in ((100, 8), (8, 8), (100, 2)):
        llm = make_llm(
            checkpoints["llama"],
            block_size=4,
            num_gpu_blocks_override=num_blocks,
            max_num_seqs=num_seqs,
            enable_prefix_caching=cache is not None,
            prefix_cache=cache or "hash",
            max_model_len=32,
        )
        (prompt,) = random_prompts(12, [10])
        params = SamplingParams(n=4, temperature=1.0, seed=5, max_tokens=12, ignore_eos=True)
        (output,) = llm.generate([prompt], params, use_tqdm=False)
        if num_blocks == 100 and num_seqs == 8:  # the last to write into the shared block keeps it
            assert [step.num_copied for step in llm.trace.steps][:3] == [0, 3, 0]
        alone = [
            llm.generate(
                [prompt],
                SamplingParams(temperature=1.0, seed=5 + i, max_tokens=12, ignore_eos=True),
                use_tqdm=False,
            )[0]
            .outputs[0]
            .token_ids
            for i in range(4)
        ]
        assert [c.token_ids for c in output.outputs] == alone
        assert [c.index for c in output.outputs] == [0, 1, 2, 3] and output.finished
        assert len(set(map(tuple, alone))) == 4
        llm.engine.scheduler.check()
        assert llm.stats()["num_free_blocks"] == num_blocks


def test_completions_of_one_prompt_with_less_budget_than_completions(checkpoints, references):
    llm = make_llm(checkpoints["llama"], max_num_batched_tokens=2, block_size=4)
    prompts = random_prompts(13, [5, 9])
    params = [SamplingParams(n=5, temperature=0, max_tokens=8, ignore_eos=True), None]
    params[1] = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    references["llama"].check_all((o.prompt_token_ids, c.token_ids) for o in outputs for c in o.outputs)


@pytest.mark.parametrize("policy", ["fcfs", "priority", "slo"])
def test_eight_arrivals_in_random_order_under_every_policy(checkpoints, references, policy):
    prompts = random_prompts(14, [3, 14, 8, 1, 20, 11, 5, 9])
    for seed, (cache, mode) in enumerate(itertools.product(CACHES, MODES)):
        rng = random.Random(seed)
        llm = tight(
            checkpoints["qwen3"],
            policy=policy,
            prefix_cache=cache,
            preemption_mode=mode,
            long_prefill_token_threshold=rng.choice([0, 1, 3]),
            max_num_batched_tokens=rng.choice([1, 6, 30]),
        )
        engine, order, ids, answers = llm.engine, rng.sample(range(8), 8), {}, {}
        while len(answers) < 8:
            if order and rng.random() < 0.5:
                i = order.pop()
                params = SamplingParams(temperature=0, max_tokens=rng.randint(1, 18), ignore_eos=True)
                targets = {"ttft_target": rng.choice([None, 0.01]), "itl_target": rng.choice([None, 0.005])}
                ids[engine.add_request(prompts[i], params, priority=rng.randint(-1, 1), **targets)] = i
            for output in engine.step():
                if output.finished:
                    answers[output.request_id] = output.outputs[0].token_ids
            engine.scheduler.check()
        references["qwen3"].check_all((prompts[ids[key]], answer) for key, answer in answers.items())
        assert llm.stats()["num_free_blocks"] == llm.stats()["num_blocks"]


@pytest.mark.parametrize("cache", CACHES)
def test_salts_keep_tenants_apart(checkpoints, cache):
    llm = make_llm(checkpoints["llama"], block_size=4, prefix_cache=cache)
    (prompt,) = random_prompts(15, [17])
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    cached = [
        llm.generate({"prompt_token_ids": prompt, "cache_salt": salt}, params, use_tqdm=False)[
            0
        ].num_cached_tokens
        for salt in ("a", "b", "a", None, None)
    ]
    assert cached == [0, 0, 16, 0, 16]


def test_reset_forgets_and_switching_off_never_hits(checkpoints):
    (prompt,) = random_prompts(16, [17])
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
    llm = make_llm(checkpoints["llama"], block_size=4)
    assert [llm.generate([prompt], params, use_tqdm=False)[0].num_cached_tokens for _ in range(2)] == [0, 16]
    llm.reset_prefix_cache()
    assert llm.generate([prompt], params, use_tqdm=False)[0].num_cached_tokens == 0
    off = make_llm(checkpoints["llama"], block_size=4, enable_prefix_caching=False)
    assert [off.generate([prompt], params, use_tqdm=False)[0].num_cached_tokens for _ in range(2)] == [0, 0]


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_step_is_repeated_from_the_tokens(checkpoints, references, mode, monkeypatch):
    llm = tight(checkpoints["llama"], preemption_mode=mode)
    engine, rng = llm.engine, random.Random(1)
    original = engine.executor.execute

    def unreliable(plan):
        if rng.random() < 0.2:
            raise RuntimeError("the device is gone")
        return original(plan)

    monkeypatch.setattr(engine.executor, "execute", unreliable)
    prompts = random_prompts(17, [9, 12, 5])
    params = SamplingParams(temperature=0, max_tokens=15, ignore_eos=True)
    ids = {engine.add_request(p, params): p for p in prompts}
    answers = {}
    while engine.has_unfinished_requests:
        try:
            outputs = engine.step()
        except RuntimeError:
            outputs = []
        engine.scheduler.check()
        answers.update({o.request_id: o.outputs[0].token_ids for o in outputs if o.finished})
    references["llama"].check_all((ids[key], answers[key]) for key in ids)
