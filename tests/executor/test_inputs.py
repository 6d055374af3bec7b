"""The numbers of a step: gathered from chunks, and the same whether sent one by one or in one piece."""

import numpy as np
import torch

from minivllm.executor.inputs import ALIGNMENT, StepInputs, upload_each, upload_packed
from minivllm.kv.blocks import BlockTable
from minivllm.request import Request
from minivllm.sampling import SamplingParams
from minivllm.scheduler.base import Chunk


def chunk(tokens, start, num_tokens, blocks, block_size=4):
    table = BlockTable(block_size)
    table.append_tokens(start + num_tokens, blocks)
    return Chunk(Request("r", tokens, SamplingParams()), start, num_tokens, table)


CHUNKS = [
    chunk([10, 11, 12, 13, 14], 1, 3, [7]),  # the middle of a prompt
    chunk([20, 21, 22, 23, 24, 25], 5, 1, [2, 9]),  # a decode
    chunk([30, 31], 0, 2, [5]),  # a whole prompt
]


def test_columns_of_a_mixed_step():
    inputs = StepInputs.of(CHUNKS)
    assert inputs.token_ids == [11, 12, 13, 25, 30, 31]
    assert inputs.positions == [1, 2, 3, 5, 0, 1]
    assert inputs.slots == [29, 30, 31, 37, 20, 21]
    assert (inputs.query_lens, inputs.context_lens) == ([3, 1, 2], [4, 6, 2])
    assert inputs.tables == [[7], [2, 9], [5]]
    assert inputs.sample_rows == [3, 5]
    assert not inputs.is_pure_decode and StepInputs.of(CHUNKS[1:2]).is_pure_decode


def test_packed_is_one_transfer_of_the_same_tensors_at_aligned_places():
    sent = []

    def send(numbers):
        sent.append(numbers.copy())
        return torch.from_numpy(numbers)

    inputs = StepInputs.of(CHUNKS)
    each = inputs.on_device(upload_each(torch.device("cpu")))
    packed = inputs.on_device(upload_packed(send))
    for name in ("token_ids", "positions", "slots", "sample_rows"):
        assert torch.equal(getattr(each, name), getattr(packed, name))
    for name in ("query_start", "query_lens", "context_lens", "block_tables"):
        ours = getattr(packed.meta, name)
        assert ours.dtype == torch.int64 and torch.equal(ours, getattr(each.meta, name))
        assert (ours.data_ptr() - packed.token_ids.data_ptr()) % (8 * ALIGNMENT) == 0
    assert packed.meta.query_start.tolist() == [0, 3, 4, 6]
    assert packed.meta.block_tables.tolist() == [[7, 0], [2, 9], [5, 0]]
    assert (packed.meta.max_query_len, packed.meta.max_context_len) == (3, 6)
    assert len(sent) == 1 and sent[0].dtype == np.int64


def test_a_step_that_samples_nothing_has_an_empty_column():
    inputs = StepInputs.of(CHUNKS[:1])
    assert inputs.sample_rows == []
    assert inputs.on_device(upload_packed(torch.from_numpy)).sample_rows.shape == (0,)
