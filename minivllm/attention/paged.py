"""Paged attention in torch: keys and values in blocks anywhere in memory, found by block table.

`paged_attention` is the readable form of the idea (Kwon et al., 2023): look the blocks up, lay them
side by side, attend. Requests with a single new token are done together, padded to the longest and
masked, since one large operation beats many small ones; chunks of prompts are done one by one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .base import AttentionMeta
from .dense import causal_attention


def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    query_lens: torch.Tensor,
) -> torch.Tensor:
    """Causal attention of a ragged batch over a paged cache.

    q: [num_tokens, num_heads, head_dim]; k_cache, v_cache: [num_blocks, block_size, num_kv_heads,
    head_dim]; block_tables: [num_seqs, max_blocks]; context_lens, query_lens: [num_seqs] → like q.
    """
    out = torch.empty_like(q)
    lengths, contexts = query_lens.tolist(), context_lens.tolist()
    decode_seqs, decode_rows, row = [], [], 0
    for i, (length, context_len) in enumerate(zip(lengths, contexts, strict=True)):
        if length == 1:
            decode_seqs.append(i)
            decode_rows.append(row)
        else:
            num_blocks = -(-context_len // k_cache.shape[1])
            table = block_tables[i, :num_blocks]
            k = k_cache.index_select(0, table).flatten(0, 1)[:context_len]
            v = v_cache.index_select(0, table).flatten(0, 1)[:context_len]
            out[row : row + length] = causal_attention(q[row : row + length], k, v)
        row += length
    if len(decode_seqs) == len(lengths):
        return _decode(q, k_cache, v_cache, block_tables, context_lens)
    if decode_seqs:
        seqs = torch.tensor(decode_seqs, device=q.device)
        rows = torch.tensor(decode_rows, device=q.device)
        out[rows] = _decode(q[rows], k_cache, v_cache, block_tables[seqs], context_lens[seqs])
    return out


def _decode(q, k_cache, v_cache, block_tables, context_lens) -> torch.Tensor:
    """One query per request. q: [num_seqs, num_heads, head_dim]."""
    num_seqs, num_heads, head_dim = q.shape
    num_blocks, block_size, num_kv_heads, _ = k_cache.shape
    longest = int(context_lens.max())
    table = block_tables[:, : -(-longest // block_size)]
    shape = (num_seqs, table.shape[1] * block_size, num_kv_heads, head_dim)
    k = k_cache.index_select(0, table.flatten()).view(shape)
    v = v_cache.index_select(0, table.flatten()).view(shape)
    unseen = torch.arange(shape[1], device=q.device) >= context_lens[:, None]
    # A slot behind the context may hold anything, NaN included, and 0 · NaN is NaN: wipe the copies.
    k.masked_fill_(unseen[:, :, None, None], 0)
    v.masked_fill_(unseen[:, :, None, None], 0)
    mask = torch.zeros(unseen.shape, dtype=q.dtype, device=q.device).masked_fill_(unseen, float("-inf"))
    grouped = q.view(num_seqs, num_kv_heads, num_heads // num_kv_heads, head_dim)
    out = F.scaled_dot_product_attention(
        grouped, k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask[:, None, None]
    )
    return out.reshape(q.shape)


class PagedBackend:
    """`AttentionBackend` over one tensor [num_layers, 2, num_blocks, block_size, num_kv_heads,
    head_dim]. `attention` is the function above or a reader's own."""

    def __init__(self, config, block_size, dtype, device, attention=paged_attention) -> None:
        self._config = config
        self._block_size = block_size
        self._dtype = dtype
        self._device = device
        self._attention = attention
        self.host_data: torch.Tensor | None = None

    def allocate(self, num_blocks: int) -> None:
        config = self._config
        shape = (config.num_layers, 2, num_blocks, self._block_size, config.num_kv_heads, config.head_dim)
        # Not zeroed: a slot is read only after it was written, and touching 2 GiB takes half a second.
        self.data = torch.empty(shape, dtype=self._dtype, device=self._device)

    def allocate_host(self, num_blocks: int) -> None:
        shape = (*self.data.shape[:2], num_blocks, *self.data.shape[3:])
        self.host_data = torch.empty(shape, dtype=self._dtype, pin_memory=self.data.is_cuda)

    def move_blocks(
        self,
        swap_out: list[tuple[int, int]],
        copies: list[tuple[int, int]],
        swap_in: list[tuple[int, int]],
    ) -> None:
        for data, host_data in self._tensors():
            if swap_out:
                _copy_blocks(data, host_data, swap_out)
            if copies:
                _copy_blocks(data, data, copies)
            if swap_in:
                _copy_blocks(host_data, data, swap_in)

    def _tensors(self) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """(on the device, on the host) of everything that a block consists of."""
        return [(self.data, self.host_data)]

    def write(self, layer: int, k: torch.Tensor, v: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        self.data[layer, 0].flatten(0, 1).index_copy_(0, slot_mapping, k)
        self.data[layer, 1].flatten(0, 1).index_copy_(0, slot_mapping, v)

    def attend(self, layer: int, q: torch.Tensor, meta: AttentionMeta) -> torch.Tensor:
        k_cache, v_cache = self.data[layer]
        return self._attention(q, k_cache, v_cache, meta.block_tables, meta.context_lens, meta.query_lens)


def _copy_blocks(source: torch.Tensor, target: torch.Tensor, pairs: list[tuple[int, int]]) -> None:
    """Copy whole blocks (dimension 2) in the order of the pairs."""
    for source_block, target_block in pairs:
        target[:, :, target_block].copy_(source[:, :, source_block], non_blocking=True)
