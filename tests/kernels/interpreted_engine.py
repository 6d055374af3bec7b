"""The engine on kernels, through the interpreter: the same tokens as transformers, on tiny shapes."""

import pytest

from minivllm import LLM, Parts, SamplingParams
from minivllm.kernels import load
from tests.test_greedy_tokens import random_prompts


@pytest.mark.parametrize("family, settings", [
    ("llama", {"block_size": 3, "max_num_batched_tokens": 5}),
    ("qwen2", {"block_size": 16, "max_num_batched_tokens": 64, "prefix_cache": "radix"}),
    ("qwen3", {"block_size": 4, "max_num_batched_tokens": 7, "num_gpu_blocks_override": 6,
               "preemption_mode": "swap"}),
])  # fmt: skip
def test_greedy_tokens_on_kernels(checkpoints, references, family, settings):
    settings = {"num_gpu_blocks_override": 60, "max_model_len": 24, **settings}
    llm = LLM(
        checkpoints[family], skip_tokenizer_init=True, attention_backend="triton", device="cpu", **settings
    )
    prompts = random_prompts(3, [9, 4, 1])
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (5, 9, 3)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    references[family].check_all((o.prompt_token_ids, o.outputs[0].token_ids) for o in outputs)
    llm.engine.scheduler.check()
    assert llm.stats()["num_free_blocks"] == llm.stats()["num_blocks"]


@pytest.mark.parametrize("kv_cache_dtype", ["fp8", "int8"])
def test_8_bit_caches_give_the_tokens_that_torch_gives_with_them(checkpoints, kv_cache_dtype):
    prompts, params = (
        random_prompts(5, [9, 1, 6]),
        SamplingParams(temperature=0, max_tokens=4, ignore_eos=True),
    )
    tokens = []
    for backend in ("paged", "triton"):
        llm = LLM(
            checkpoints["llama"], skip_tokenizer_init=True, attention_backend=backend, device="cpu",
            kv_cache_dtype=kv_cache_dtype, num_gpu_blocks_override=30, max_model_len=24, block_size=4,
            max_num_batched_tokens=7,
        )  # fmt: skip
        outputs = llm.generate(prompts, params, use_tqdm=False)
        tokens.append([o.outputs[0].token_ids for o in outputs])
    assert tokens[0] == tokens[1]


def test_every_kernel_is_at_work_and_a_readers_own_takes_its_place(checkpoints, references):
    calls = dict.fromkeys(load(), 0)

    def counting(name, kernel):
        def counted(*args, **kwargs):
            calls[name] += 1
            return kernel(*args, **kwargs)

        return counted

    kernels = {name: counting(name, kernel) for name, kernel in load().items()}
    llm = LLM(
        checkpoints["llama"], skip_tokenizer_init=True, attention_backend="triton", device="cpu",
        parts=Parts(kernels=kernels), num_gpu_blocks_override=8, max_model_len=24,
    )  # fmt: skip
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    outputs = llm.generate(random_prompts(1, [4]), params, use_tqdm=False)
    references["llama"].check_all((o.prompt_token_ids, o.outputs[0].token_ids) for o in outputs)
    layers = llm.engine.executor.model.config.num_layers
    assert calls == {
        "store_kv": 3 * layers,
        "rotary": 3 * layers,
        "silu_mul": 3 * layers,
        "rms_norm": 3 * (2 * layers + 1),
        "paged_prefill": layers,
        "paged_decode": 2 * layers,
    }
