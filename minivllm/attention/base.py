"""What every attention backend must do, and the batch description that it is given.

A backend owns the KV cache tensors. A batch is **ragged**: the new tokens of all its requests lie
one after the other, `query_lens[i]` of them for request i, be it a chunk of a prompt or the single
token of a decode. `context_lens[i]` counts every token whose key and value exist once this step's
have been written, the new ones included. (PagedAttention: Kwon et al., 2023.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch


@dataclass
class AttentionMeta:
    """One step's batch, as attention sees it. All tensors are int64 on the model's device.

    query_start: [num_seqs + 1]; request i's new tokens are rows query_start[i] … query_start[i+1].
    query_lens: [num_seqs]. context_lens: [num_seqs], past and new tokens together.
    block_tables: [num_seqs, max_blocks], padded with 0 behind a request's last block.
    max_query_len, max_context_len: the largest of each, as numbers, known without asking the device.
    """

    query_start: torch.Tensor
    query_lens: torch.Tensor
    context_lens: torch.Tensor
    block_tables: torch.Tensor
    max_query_len: int = 0
    max_context_len: int = 0

    @cached_property
    def sequences(self) -> list[tuple[int, int, int]]:
        """(first row, number of new tokens, context length) of each request, as Python numbers."""
        starts = self.query_start.tolist()
        return list(zip(starts[:-1], self.query_lens.tolist(), self.context_lens.tolist(), strict=True))


class AttentionBackend(Protocol):
    """KV cache plus attention over it. Built once per engine; `layer` counts from 0."""

    def allocate(self, num_blocks: int) -> None:
        """Make room for `num_blocks` blocks in every layer. Called once, before anything else."""

    def allocate_host(self, num_blocks: int) -> None:
        """Make room for `num_blocks` blocks in host memory. Called at most once; only for swapping."""

    def move_blocks(
        self,
        swap_out: list[tuple[int, int]],
        copies: list[tuple[int, int]],
        swap_in: list[tuple[int, int]],
    ) -> None:
        """Copy blocks, all layers, in this order: device to host, device to device, host to device.
        Pairs are (source block, target block). Only called when sharing or swapping is on."""

    def write(self, layer: int, k: torch.Tensor, v: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Store new keys and values. k, v: [num_tokens, num_kv_heads, head_dim] (k after rotary);
        slot_mapping: [num_tokens], block id · block_size + offset in the block."""

    def attend(self, layer: int, q: torch.Tensor, meta: AttentionMeta) -> torch.Tensor:
        """Causal attention of each new token over its own request. q: [num_tokens, num_heads,
        head_dim] → the same shape. Called after `write` of the same layer."""
