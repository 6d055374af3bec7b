"""The engine on a GPU: the CPU's tokens in fp32, with and without graphs, and one wait a step."""

import pytest
import torch

from minivllm import LLM, SamplingParams, sampler
from tests.test_greedy_tokens import random_prompts

FAMILIES = ("llama", "qwen2", "qwen3")
BACKENDS = [
    {"enforce_eager": False},
    {"enforce_eager": True},
    {"attention_backend": "paged"},
]


def make_llm(path, **settings):
    settings = {"max_model_len": 96, "num_gpu_blocks_override": 200, "dtype": "float32", **settings}
    return LLM(path, skip_tokenizer_init=True, device="cuda", **settings)


def run(llm, prompts, params):
    """Token ids of every completion; no block may be lost."""
    outputs = llm.generate(prompts, params, use_tqdm=False)
    llm.engine.scheduler.check()
    assert llm.stats()["num_free_blocks"] == llm.stats()["num_blocks"]
    return [[c.token_ids for c in output.outputs] for output in outputs]


def greedy(*lengths):
    return [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in lengths]


@pytest.fixture(autouse=True)
def _exact_products():
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = allowed


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("block_size,budget", [(16, 64), (3, 7), (1, 2)])
def test_greedy_tokens_are_transformers(checkpoints, references, family, backend, block_size, budget):
    llm = make_llm(checkpoints[family], block_size=block_size, max_num_batched_tokens=budget, **backend)
    prompts = random_prompts(block_size, [9, 33, 1, 17, 5])
    answers = run(llm, prompts, greedy(12, 20, 30, 3, 9))
    references[family].check_all((p, a[0]) for p, a in zip(prompts, answers, strict=True))


@pytest.mark.parametrize("num_seqs", [1, 2, 3, 5, 8, 9, 17, 40])
def test_padded_graphs_of_every_size(checkpoints, references, num_seqs):
    llm = make_llm(checkpoints["llama"], num_gpu_blocks_override=400, max_num_seqs=64)
    prompts = random_prompts(num_seqs, [3 + i % 7 for i in range(num_seqs)])
    answers = run(llm, prompts, greedy(*[8 + i % 5 for i in range(num_seqs)]))
    references["llama"].check_all((p, a[0]) for p, a in zip(prompts, answers, strict=True))
    sizes = {size for size, _ in llm.engine.executor.graphs.graphs}
    assert min(size for size in llm.engine.executor.graphs.sizes if size >= num_seqs) in sizes


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("cache", ["hash", "radix"])
def test_preemption_and_shared_prefixes(checkpoints, references, mode, cache):
    llm = make_llm(
        checkpoints["qwen3"], block_size=4, num_gpu_blocks_override=10, max_model_len=40, swap_space=0.001,
        preemption_mode=mode, prefix_cache=cache, max_num_batched_tokens=8,
    )  # fmt: skip
    (stem,) = random_prompts(1, [9])
    prompts = [stem[: 3 * i] + tail for i, tail in enumerate(random_prompts(2, [6, 5, 4, 3, 2, 1]))]
    answers = run(llm, prompts, greedy(20, 22, 25, 15, 24, 18))
    references["qwen3"].check_all((p, a[0]) for p, a in zip(prompts, answers, strict=True))
    assert llm.stats()["num_preemptions"] > 0


def test_seeded_tokens_are_those_of_the_cpu(checkpoints):
    prompts = random_prompts(6, [5, 12, 30])
    params = [
        SamplingParams(temperature=0.9, seed=3, max_tokens=20, ignore_eos=True),
        SamplingParams(n=3, temperature=1.2, top_p=0.9, top_k=30, seed=4, max_tokens=20, ignore_eos=True),
        SamplingParams(
            temperature=0.7, min_p=0.05, repetition_penalty=1.2, seed=5, max_tokens=20, logprobs=2
        ),
    ]
    on_gpu = run(make_llm(checkpoints["llama"]), prompts, params)
    cpu = LLM(
        checkpoints["llama"], skip_tokenizer_init=True, device="cpu", max_model_len=96,
        num_gpu_blocks_override=200,
    )  # fmt: skip
    assert on_gpu == run(cpu, prompts, params)


def test_a_step_waits_for_the_device_once(checkpoints, monkeypatch):
    """Torch raises at every hidden wait, but in the one function that fetches the sampled tokens."""
    llm = make_llm(checkpoints["llama"], dtype="float16")
    prompts = random_prompts(7, [20, 6, 11])
    params = [
        SamplingParams(temperature=0, max_tokens=12, ignore_eos=True),
        SamplingParams(temperature=1, top_p=0.9, seed=1, max_tokens=12, ignore_eos=True, logprobs=2),
        SamplingParams(n=2, temperature=1, presence_penalty=0.5, seed=2, max_tokens=12, ignore_eos=True),
    ]
    run(llm, prompts, params)  # compiles kernels and captures graphs, which may wait
    llm.reset_prefix_cache()
    fetch, execute = sampler._to_host, llm.engine.executor.execute
    waits = []

    def fetch_once(*args):
        torch.cuda.set_sync_debug_mode("default")
        waits[-1] += 1
        result = fetch(*args)
        torch.cuda.set_sync_debug_mode("error")
        return result

    def watched(plan):
        waits.append(0)
        torch.cuda.set_sync_debug_mode("error")
        try:
            return execute(plan)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(sampler, "_to_host", fetch_once)
    monkeypatch.setattr(llm.engine.executor, "execute", watched)
    run(llm, prompts, params)
    assert len(waits) > 10 and max(waits) == 1


def test_the_cache_fills_the_memory_it_may_use_and_no_more(checkpoints):
    make_llm(checkpoints["llama"])  # whatever CUDA and its libraries load once
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    allowed = (total - free) + 600 * 2**20
    llm = make_llm(
        checkpoints["llama"], num_gpu_blocks_override=None, max_model_len=512, max_num_seqs=16384,
        gpu_memory_utilization=allowed / total,
    )  # fmt: skip
    answers = run(llm, random_prompts(8, [20, 6]), greedy(5, 5))
    assert [len(a[0]) for a in answers] == [5, 5]
    free, total = torch.cuda.mem_get_info()
    assert llm.stats()["num_blocks"] < 16384 * 512 // 16  # memory was the limit, not use
    assert allowed - 400 * 2**20 < total - free < allowed + 64 * 2**20


def test_too_little_memory_is_refused_by_name(checkpoints):
    with pytest.raises(ValueError, match="one KV block takes.*gpu_memory_utilization"):
        make_llm(checkpoints["llama"], num_gpu_blocks_override=None, gpu_memory_utilization=1e-6)
