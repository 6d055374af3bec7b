"""The engine as it is put together on a GPU, on a CPU that passes for one: memory, dtype, graphs, tokens."""

import pytest
import torch

from minivllm import LLM, SamplingParams
from minivllm.executor.memory import MemoryUse
from tests.executor.pretend_cuda import pretend_cuda
from tests.test_greedy_tokens import random_prompts

BLOCK_BYTES = 16 * 3 * 2 * 2 * 8 * 4  # block_size, layers, keys and values, KV heads, head_dim, fp32
# 900 of 1,000 blocks may be used; 120 are, 20 of them only in the midst of a step.
USE = MemoryUse(1000 * BLOCK_BYTES, resting=90 * BLOCK_BYTES, peak=110 * BLOCK_BYTES, others=10 * BLOCK_BYTES)


def make_llm(path, **settings):
    settings = {"dtype": "float32", "max_model_len": 4096 // 8, "gpu_memory_utilization": 0.9, **settings}
    return LLM(path, skip_tokenizer_init=True, device="cuda", max_num_batched_tokens=6, **settings)


@pytest.mark.parametrize("eager", [False, True])
def test_tokens_and_blocks_of_an_engine_on_a_gpu(checkpoints, references, monkeypatch, eager):
    with pretend_cuda(monkeypatch, USE):
        llm = make_llm(checkpoints["llama"], enforce_eager=eager)
        prompts = random_prompts(9, [5, 2, 8])
        params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (6, 4, 3)]
        outputs = llm.generate(prompts, params, use_tqdm=False)
    references["llama"].check_all((o.prompt_token_ids, o.outputs[0].token_ids) for o in outputs)
    executor, data = llm.engine.executor, llm.engine.executor.backend.data
    if eager:
        assert executor.graphs is None
        assert llm.stats()["num_blocks"] == data.shape[2] == 900 - 120
    else:
        assert llm.stats()["num_blocks"] == data.shape[2] - 1 == 900 - 120 - 20 - 1
        assert {size for size, _ in executor.graphs.graphs} <= set(executor.graphs.sizes) == {1, 2, 4, 6}
    assert llm.stats()["num_free_blocks"] == llm.stats()["num_blocks"]


@pytest.mark.parametrize("capability,dtype", [((7, 5), torch.float16), ((8, 0), torch.bfloat16)])
def test_dtype_auto_follows_the_gpu(checkpoints, monkeypatch, capability, dtype):
    with pretend_cuda(monkeypatch, USE, capability):
        llm = make_llm(checkpoints["llama"], dtype="auto", num_gpu_blocks_override=3)
    assert llm.engine.executor.model.dtype == llm.engine.executor.backend.data.dtype == dtype


def test_bf16_is_refused_on_a_gpu_without_it(checkpoints, monkeypatch):
    with pretend_cuda(monkeypatch, USE, (7, 5)), pytest.raises(ValueError, match="capability 7.5"):
        make_llm(checkpoints["llama"], dtype="bfloat16")


def test_a_gpu_too_small_is_refused_with_the_way_out(checkpoints, monkeypatch):
    with pretend_cuda(monkeypatch, USE), pytest.raises(ValueError, match="one KV block takes.*raise gpu_mem"):
        make_llm(checkpoints["llama"], gpu_memory_utilization=0.1)


def test_torch_attention_on_a_gpu_has_no_graphs(checkpoints, monkeypatch):
    with pretend_cuda(monkeypatch, USE):
        llm = make_llm(checkpoints["llama"], attention_backend="paged")
        outputs = llm.generate([[1, 2, 3]], SamplingParams(max_tokens=2), use_tqdm=False)
    assert llm.engine.executor.graphs is None and len(outputs[0].outputs[0].token_ids) == 2
