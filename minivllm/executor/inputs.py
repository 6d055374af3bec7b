"""A step's numbers, gathered from its chunks, and their way to the device.

The new tokens of all chunks are laid one behind the other, so the linear layers see one matrix,
whatever mixture of prompt chunks and decodes it is; only attention looks at request borders. On a CPU
each column becomes a tensor of its own. A GPU gets all columns in one copy from pinned memory, which it
fetches by itself while the host goes on: one copy of a few kilobytes costs as much as one of eight bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch

from ..attention.base import AttentionMeta
from ..scheduler.base import Chunk

# Slices of the one buffer begin at multiples of 128 bytes: kernels are compiled once, for aligned pointers.
ALIGNMENT = 16

# Columns of whole numbers, one- or two-dimensional, to int64 tensors of the same shapes on the device.
Upload = Callable[[list[list]], list[torch.Tensor]]


@dataclass
class StepInputs:
    """One entry a new token in `token_ids`, `positions` and `slots`; one a chunk in `query_lens`,
    `context_lens` and `tables`, which holds the chunks' block ids as they are, of any length.
    `sample_rows`: the row of the last token of each chunk that samples."""

    token_ids: list[int]
    positions: list[int]
    slots: list[int]
    query_lens: list[int]
    context_lens: list[int]
    tables: list[list[int]]
    sample_rows: list[int]

    @classmethod
    def of(cls, chunks: list[Chunk]) -> StepInputs:
        inputs = cls([], [], [], [], [], [], [])
        for chunk in chunks:
            end = chunk.start + chunk.num_tokens
            inputs.token_ids += chunk.request.token_ids[chunk.start : end]
            inputs.positions += range(chunk.start, end)
            inputs.slots += chunk.table.slot_mapping(chunk.start, chunk.num_tokens)
            inputs.query_lens.append(chunk.num_tokens)
            inputs.context_lens.append(end)
            inputs.tables.append(chunk.table.blocks)
            if chunk.samples:
                inputs.sample_rows.append(len(inputs.token_ids) - 1)
        return inputs

    @property
    def is_pure_decode(self) -> bool:
        """True if every request has one new token, be it sampled or the last of a prompt."""
        return len(self.token_ids) == len(self.query_lens)

    def on_device(self, upload: Upload) -> DeviceInputs:
        widest = max(len(table) for table in self.tables)
        columns = [
            self.token_ids,
            self.positions,
            self.slots,
            [0, *accumulate(self.query_lens)],
            self.query_lens,
            self.context_lens,
            [table + [0] * (widest - len(table)) for table in self.tables],
            self.sample_rows,
        ]
        token_ids, positions, slots, query_start, query_lens, context_lens, tables, rows = upload(columns)
        meta = AttentionMeta(
            query_start, query_lens, context_lens, tables, max(self.query_lens), max(self.context_lens)
        )
        return DeviceInputs(token_ids, positions, slots, rows, meta)


@dataclass
class DeviceInputs:
    """The same as int64 tensors: token_ids, positions, slots: [num_tokens]; sample_rows: [num_samples]."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    sample_rows: torch.Tensor
    meta: AttentionMeta


def upload_each(device: torch.device) -> Upload:
    """An `Upload` that makes one tensor a column."""
    return lambda columns: [torch.tensor(column, dtype=torch.int64, device=device) for column in columns]


def upload_packed(send: Callable[[np.ndarray], torch.Tensor]) -> Upload:
    """An `Upload` that packs all columns into one array and calls `send` once; the tensors are views."""

    def upload(columns: list[list]) -> list[torch.Tensor]:
        arrays = [np.asarray(column, dtype=np.int64) for column in columns]
        starts = [0, *accumulate(round_up(array.size, ALIGNMENT) for array in arrays)]
        packed = np.zeros(starts[-1], dtype=np.int64)
        for start, array in zip(starts, arrays, strict=False):
            packed[start : start + array.size] = array.ravel()
        whole = send(packed)
        return [
            whole[start : start + array.size].view(array.shape)
            for start, array in zip(starts, arrays, strict=False)
        ]

    return upload


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
