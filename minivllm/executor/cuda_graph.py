"""Decode steps as CUDA graphs: some hundred kernels, launched as one.

A decode step of a small batch is over sooner than Python can launch its kernels one by one. A graph is
captured once and then replayed, but it is rigid: the same number of rows, the same addresses, the same
launch sizes each time. So the batch is padded to one of a few sizes, its numbers are copied into buffers
that never move, and each graph is made for contexts up to a class of lengths, from which kernels take their
grid. A graph is captured when a step first needs it. Steps with prompt chunks, or wider than the
largest graph, run as they are.

A padding row is a request of one token that lives in `spare_block`, a block that the pool does not have:
what it writes there nobody reads, and what it reads it has just written.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ..attention.base import AttentionBackend, AttentionMeta
from .inputs import ALIGNMENT, StepInputs, round_up

LARGEST = 512  # rows; a wider step keeps the GPU busy without a graph
SHORTEST_CLASS = 1024  # tokens of context


def batch_sizes(max_num_seqs: int) -> list[int]:
    """1, 2, 4, 8, then every eighth number, up to `max_num_seqs` or LARGEST."""
    most = min(max_num_seqs, LARGEST)
    return [size for size in (1, 2, 4) if size < most] + [*range(8, most, 8), most]


def context_classes(max_model_len: int) -> list[int]:
    """Powers of four times SHORTEST_CLASS, up to `max_model_len`, which is the last one."""
    classes, length = [], SHORTEST_CLASS
    while length < max_model_len:
        classes.append(length)
        length *= 4
    return [*classes, max_model_len]


class DecodeGraphs:
    """`device` has `send` and `capture` (see device.Gpu). `spare_block` is allocated in `backend` and is no
    block of the pool. Graphs go by (batch size, context class)."""

    def __init__(
        self,
        model,
        backend: AttentionBackend,
        device,
        *,
        max_num_seqs: int,
        max_model_len: int,
        block_size: int,
        spare_block: int,
    ) -> None:
        self.sizes = batch_sizes(max_num_seqs)
        self.classes = context_classes(max_model_len)
        self.graphs: dict[tuple[int, int], Callable[[], None]] = {}
        self._model, self._backend, self._device = model, backend, device
        self._block_size, self._spare_block = block_size, spare_block
        rows = self.sizes[-1]
        # One buffer: token ids, positions, slots and context lengths, then the block tables.
        self._column = round_up(rows, ALIGNMENT)
        self._host = np.zeros(4 * self._column + rows * self._width(max_model_len), dtype=np.int64)
        self._numbers = device.send(self._host)
        self._query_start = device.send(np.arange(rows + 1))
        self._query_lens = device.send(np.ones(rows, dtype=np.int64))
        self._hidden = torch.empty(
            rows, model.config.hidden_size, dtype=model.dtype, device=self._numbers.device
        )
        self._tables_in_host: list[list[int]] = []
        self._class_in_host = 0

    def fits(self, inputs: StepInputs) -> bool:
        """Whether a graph can run this step."""
        return inputs.is_pure_decode and len(inputs.token_ids) <= self.sizes[-1]

    def run(self, inputs: StepInputs) -> torch.Tensor:
        """→ [num_tokens, hidden_size], a view that the next run overwrites."""
        num_rows = len(inputs.token_ids)
        size = next(size for size in self.sizes if size >= num_rows)
        length = next(length for length in self.classes if length >= max(inputs.context_lens))
        if (size, length) not in self.graphs:
            self._load(StepInputs([], [], [], [], [], [], []), size, length)
            self.graphs[size, length] = self._device.capture(self._forward(size, length))
        self._load(inputs, size, length)
        self.graphs[size, length]()
        return self._hidden[:num_rows]

    def _forward(self, size: int, length: int) -> Callable[[], None]:
        """The forward of `size` rows on the buffers, as a function of nothing."""
        token_ids, positions, slots, context_lens = (
            self._numbers[i * self._column : i * self._column + size] for i in range(4)
        )
        tables = self._numbers[4 * self._column :][: size * self._width(length)].view(size, -1)
        query_start, query_lens = self._query_start[: size + 1], self._query_lens[:size]
        meta = AttentionMeta(query_start, query_lens, context_lens, tables, 1, length)

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            self._backend.write(layer, k, v, slots)
            return self._backend.attend(layer, q, meta)

        def forward() -> None:
            self._hidden[:size].copy_(self._model.hidden(token_ids, positions, attend))

        return forward

    def _load(self, inputs: StepInputs, size: int, length: int) -> None:
        """Put the step's numbers, padded to `size` rows, into the buffers."""
        num_rows, width = len(inputs.token_ids), self._width(length)
        spare_slot = self._spare_block * self._block_size
        columns = (inputs.token_ids, inputs.positions, inputs.slots, inputs.context_lens)
        for i, (values, padding) in enumerate(zip(columns, (0, 0, spare_slot, 1), strict=True)):
            column = self._host[i * self._column :][:size]
            column[:num_rows] = values
            column[num_rows:] = padding
        self._load_tables(inputs.tables + [[self._spare_block]] * (size - num_rows), width)
        end = 4 * self._column + size * width
        self._device.send(self._host[:end], self._numbers[:end])

    def _load_tables(self, tables: list[list[int]], width: int) -> None:
        """Most tables are as they were a step ago: comparing two lists is quicker than converting one.
        Behind a table's end stay old block ids, which a kernel may look up but does not follow."""
        if self._class_in_host != width:
            self._class_in_host, self._tables_in_host = width, []
        rows = self._host[4 * self._column :][: len(tables) * width].reshape(-1, width)
        known = self._tables_in_host
        known += [[] for _ in range(len(tables) - len(known))]
        for i, table in enumerate(tables):
            if known[i] != table:
                blocks = table[:width]
                rows[i, : len(blocks)] = blocks
                known[i] = blocks  # last, so that an interrupted step leaves no row that is known wrongly

    def _width(self, length: int) -> int:
        """Blocks of a table row for contexts up to `length`, rounded up so that rows begin aligned."""
        return round_up(-(-length // self._block_size), ALIGNMENT)
