"""The KV budget in numbers, and the step that measures it."""

import pytest
import torch

from minivllm import LLM
from minivllm.assembly import _gpu_budget
from minivllm.executor.device import auto_dtype, check_dtype
from minivllm.executor.memory import MemoryUse, fit_blocks, kv_budget, largest_step
from tests.executor.fake_gpu import FakeGpu

USE = MemoryUse(total=1000, resting=200, peak=300, others=50)


def test_the_budget_is_what_everything_else_leaves():
    assert kv_budget(USE, 0.9, with_graphs=False) == 900 - 50 - 300
    assert kv_budget(USE, 0.9, with_graphs=True) == 900 - 50 - 300 - 100
    assert kv_budget(USE, 0.2, with_graphs=False) < 0


def test_blocks_fill_the_budget_but_no_more_than_could_be_used():
    assert fit_blocks(1000, 64, most=100) == 15
    assert fit_blocks(1000, 64, most=100, spare=1) == 14
    assert fit_blocks(1000, 64, most=7) == 7


@pytest.mark.parametrize("budget", [63, 0, -5])
def test_no_room_for_one_block_names_sizes_and_ways_out(budget):
    with pytest.raises(ValueError, match="one KV block takes .* GiB.*are free.*gpu_memory_utilization"):
        fit_blocks(budget, 64, most=7)
    with pytest.raises(ValueError, match="one KV block"):
        fit_blocks(64, 64, most=7, spare=1)


@pytest.mark.parametrize(
    "tokens,seqs,longest,lengths",
    [
        (10, 3, 100, [8, 1, 1]),  # one long prompt among decodes
        (10, 3, 4, [4, 4, 2]),  # no chunk longer than a request can be
        (2, 5, 4, [1, 1]),  # more requests than tokens
        (100, 2, 4, [4, 4]),  # more tokens than the requests can have
    ],
)
def test_the_largest_step_has_all_tokens_and_all_requests(tokens, seqs, longest, lengths):
    plan = largest_step(tokens, seqs, longest, block_size=4)
    assert [chunk.num_tokens for chunk in plan.chunks] == lengths
    assert all(chunk.samples for chunk in plan.chunks)
    assert {block for chunk in plan.chunks for block in chunk.table.blocks} == {0}


@pytest.mark.parametrize("settings", [{}, {"attention_backend": "contiguous", "num_gpu_blocks_override": 2}])
def test_the_measured_step_runs_on_a_cache_of_one_block(checkpoints, settings):
    settings = {"max_num_batched_tokens": 40, "max_num_seqs": 3, "max_model_len": 64, **settings}
    llm = LLM(checkpoints["qwen3"], skip_tokenizer_init=True, device="cpu", **settings)
    executor = llm.engine.executor
    budget = _gpu_budget(llm.engine.config, executor, FakeGpu(USE), with_graphs=True)
    assert budget == kv_budget(USE, 0.92, with_graphs=True)
    num_seqs = 1 if settings.get("attention_backend") == "contiguous" else 3
    assert executor.shapes["token_ids"] == (40,) and executor.shapes["logits"] == (num_seqs, 160)


@pytest.mark.parametrize(
    "capability,dtype",
    [((7, 0), torch.float16), ((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)],
)
def test_auto_dtype_is_bf16_only_where_it_is_native(capability, dtype):
    assert auto_dtype(capability) == dtype
    check_dtype(dtype, capability)


def test_bf16_is_refused_where_it_is_emulated():
    with pytest.raises(ValueError, match="compute capability 7.5.*float16"):
        check_dtype(torch.bfloat16, (7, 5))
    check_dtype(torch.float32, (7, 5))
