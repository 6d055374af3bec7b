"""The engine on kernels, through the interpreter: the same tokens as transformers, on tiny shapes."""

import pytest

from minivllm import LLM, SamplingParams
from tests.test_greedy_tokens import random_prompts


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("settings", [
    {"block_size": 3, "max_num_batched_tokens": 5},
    {"block_size": 16, "max_num_batched_tokens": 64, "prefix_cache": "radix"},
    {"block_size": 4, "max_num_batched_tokens": 7, "num_gpu_blocks_override": 6, "preemption_mode": "swap"},
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
