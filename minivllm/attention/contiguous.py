"""The naive KV cache as a backend: one contiguous piece of memory per request.

A "block" is here a whole request's `max_model_len` slots, reserved when the request starts, used or
not. Each block id has a cache object of its own, made by `kv_cache`; attention is dense over one
request after the other. It is the design that paging replaces, and the part that lab 01 builds.
"""

from __future__ import annotations

import torch

from .base import AttentionMeta
from .dense import causal_attention


class ContiguousKVCache:
    """Keys and values of one request, all layers, in one preallocated tensor
    [num_layers, 2, max_len, num_kv_heads, head_dim]. `lengths[layer]` tokens of a layer are filled."""

    def __init__(
        self, num_layers, max_len, num_kv_heads, head_dim, dtype=torch.float32, device="cpu"
    ) -> None:
        self.max_len = max_len
        self.data = torch.empty(num_layers, 2, max_len, num_kv_heads, head_dim, dtype=dtype, device=device)
        self.lengths = [0] * num_layers

    def append(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store k, v: [num_tokens, num_kv_heads, head_dim] behind what the layer holds. `ValueError`
        if they do not fit; then nothing is stored."""
        start, end = self.lengths[layer], self.lengths[layer] + k.shape[0]
        if end > self.max_len:
            raise ValueError(
                f"{end} tokens do not fit into a cache of max_len {self.max_len}; make it longer"
            )
        self.data[layer, 0, start:end] = k
        self.data[layer, 1, start:end] = v
        self.lengths[layer] = end

    def view(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(k, v) of the layer so far, each [length, num_kv_heads, head_dim], without copying."""
        length = self.lengths[layer]
        return self.data[layer, 0, :length], self.data[layer, 1, :length]

    def clear(self) -> None:
        """Forget everything, keep the memory: the next request starts at position 0."""
        self.lengths = [0] * len(self.lengths)


class ContiguousBackend:
    """`AttentionBackend` over one `kv_cache` object per block; `block_size` is `max_model_len`."""

    def __init__(self, config, block_size, dtype, device, kv_cache=ContiguousKVCache) -> None:
        self._new_cache = lambda: kv_cache(
            config.num_layers, block_size, config.num_kv_heads, config.head_dim, dtype=dtype, device=device
        )
        self._block_size = block_size

    def allocate(self, num_blocks: int) -> None:
        self._caches = [self._new_cache() for _ in range(num_blocks)]

    def write(self, layer: int, k: torch.Tensor, v: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        for block, offset, first, last in _runs(slot_mapping.tolist(), self._block_size):
            if offset == 0 and layer == 0:  # a new request has moved into this block
                self._caches[block].clear()
            self._caches[block].append(layer, k[first:last], v[first:last])

    def attend(self, layer: int, q: torch.Tensor, meta: AttentionMeta) -> torch.Tensor:
        out = torch.empty_like(q)
        for (start, length, _), block in zip(meta.sequences, meta.block_tables[:, 0].tolist(), strict=True):
            k, v = self._caches[block].view(layer)
            rows = slice(start, start + length)
            out[rows] = causal_attention(q[rows], k, v)
        return out


def _runs(slots: list[int], block_size: int) -> list[tuple[int, int, int, int]]:
    """(block, offset in the block, first row, end row) of each request's rows in a slot mapping."""
    runs = []
    first = 0
    for row in range(1, len(slots) + 1):
        if row == len(slots) or slots[row] // block_size != slots[first] // block_size:
            runs.append((slots[first] // block_size, slots[first] % block_size, first, row))
            first = row
    return runs
