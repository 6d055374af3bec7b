"""The first promise: greedy tokens equal transformers' under every setting, and no block is lost."""

import itertools
import random

import pytest

from minivllm import LLM, SamplingParams

FAMILIES = ("llama", "qwen2", "qwen3")


def make_llm(path, **settings):
    settings = {"skip_tokenizer_init": True, "max_model_len": 96, "num_gpu_blocks_override": 200, **settings}
    return LLM(path, **settings)


def random_prompts(seed, lengths):
    rng = random.Random(seed)
    return [[rng.randrange(160) for _ in range(length)] for length in lengths]


def assert_greedy(llm, reference, prompts, max_tokens):
    """Run the prompts together, hold every answer against the reference, and the pool against empty."""
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in max_tokens]
    outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
    answers = [output.outputs[0].token_ids for output in outputs]
    assert [len(a) for a in answers] == list(max_tokens)
    result = reference.check_all(zip(prompts, answers, strict=True))
    llm.engine.scheduler.check()
    stats = llm.stats()
    assert stats["num_free_blocks"] == stats["num_blocks"]
    return result


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
def test_random_checkpoints_over_block_sizes_and_budgets(checkpoints, references, family, block_size):
    for budget, num_seqs in itertools.product((1, 5, 64), (1, 3, 8)):
        llm = make_llm(
            checkpoints[family], block_size=block_size, max_num_batched_tokens=budget, max_num_seqs=num_seqs
        )
        lengths = [block_size * 2, block_size * 2 + 1, max(1, block_size * 2 - 1), 5, 1]
        prompts = random_prompts(budget + block_size, lengths)
        assert_greedy(llm, references[family], prompts, [8, 3, 6, 12, 1])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "settings",
    [
        {"attention_backend": "contiguous", "num_gpu_blocks_override": 3},
        {"scheduler": "static", "max_num_seqs": 3},
        {"enable_chunked_prefill": False, "max_num_batched_tokens": 96},
        {
            "attention_backend": "contiguous",
            "scheduler": "static",
            "max_num_batched_tokens": 7,
            "max_num_seqs": 4,
        },
    ],
    ids=lambda s: "-".join(map(str, s.values())),
)
def test_random_checkpoints_under_other_settings(checkpoints, references, family, settings):
    llm = make_llm(checkpoints[family], **settings)
    prompts = random_prompts(7, [3, 30, 17, 1, 9, 12])
    assert_greedy(llm, references[family], prompts, [10, 20, 1, 14, 5, 9])


@pytest.mark.parametrize("family", FAMILIES)
def test_constant_preemption_changes_no_token(checkpoints, references, family):
    for block_size, num_blocks, budget in ((1, 40, 9), (4, 10, 3), (3, 14, 64)):
        llm = make_llm(
            checkpoints[family],
            block_size=block_size,
            num_gpu_blocks_override=num_blocks,
            max_num_batched_tokens=budget,
            max_model_len=40,
        )
        prompts = random_prompts(block_size, [12, 9, 5, 7, 2, 11])
        assert_greedy(llm, references[family], prompts, [20, 22, 25, 15, 30, 18])
        assert llm.stats()["num_preemptions"] > 0


def test_requests_that_arrive_while_others_run(checkpoints, references):
    engine = make_llm(checkpoints["qwen3"], max_num_batched_tokens=6, block_size=4).engine
    rng = random.Random(3)
    prompts = random_prompts(4, [rng.randint(1, 30) for _ in range(8)])
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    ids, answers = {}, {}
    while len(answers) < len(prompts):
        if len(ids) < len(prompts) and rng.random() < 0.4:
            ids[engine.add_request({"prompt_token_ids": prompts[len(ids)]}, params)] = prompts[len(ids)]
        for output in engine.step():
            if output.finished:
                answers[output.request_id] = output.outputs[0].token_ids
        engine.scheduler.check()
    references["qwen3"].check_all((ids[key], answers[key]) for key in ids)


def test_corrupting_one_kv_block_is_noticed(checkpoints, references):
    """The meta-test: if a broken cache passed, the tests above would prove nothing."""
    llm = make_llm(checkpoints["llama"], block_size=4)
    engine = llm.engine
    (prompt,) = random_prompts(11, [14])
    engine.add_request(
        {"prompt_token_ids": prompt}, SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    )
    engine.step()
    block = next(iter(engine.kv.tables.values())).blocks[1]
    engine.executor.backend.data[:, :, block] = 0
    while engine.has_unfinished_requests:
        outputs = engine.step()
    with pytest.raises(AssertionError, match="position|token"):
        references["llama"].check_greedy(prompt, outputs[0].outputs[0].token_ids)


@pytest.mark.parametrize("dtype,tolerance", [("float16", 0.05), ("bfloat16", 0.3)])
def test_half_precision_logits_stay_near_fp32(checkpoints, dtype, tolerance):
    import torch

    prompt = random_prompts(5, [24])[0]
    logits = []
    for name in ("float32", dtype):
        llm = make_llm(checkpoints["llama"], dtype=name)
        model, seen = llm.engine.executor.model, []
        original = model.logits
        model.logits = lambda hidden, original=original, seen=seen: seen.append(original(hidden)) or seen[-1]
        llm.generate(
            {"prompt_token_ids": prompt}, SamplingParams(temperature=0, max_tokens=1), use_tqdm=False
        )
        logits.append(seen[0])
    exact, rough = logits
    assert ((rough - exact).norm() / exact.norm()).item() < tolerance
    assert not torch.equal(rough, exact)


def test_smollm2_on_real_prompts(smollm2):
    from tests.reference import Reference

    questions = [
        "What is the capital of France?",
        "Explain in one paragraph why the sky is blue.",
        "List three prime numbers.",
        "Write a short poem about a cache.",
    ]
    llm = LLM(str(smollm2), num_gpu_blocks_override=64, max_num_batched_tokens=48, max_model_len=512)
    outputs = llm.chat(
        [[{"role": "user", "content": q}] for q in questions],
        SamplingParams(temperature=0, max_tokens=32),
        use_tqdm=False,
    )
    assert "Paris" in outputs[0].outputs[0].text
    Reference(smollm2).check_all(
        [(o.prompt_token_ids, o.outputs[0].token_ids) for o in outputs], llm.engine.model_config.eos_token_ids
    )
    assert llm.stats()["num_free_blocks"] == 64
