"""paged_prefill: chunks of prompts over their paged context, causal, any part of it cached.

A program owns a tile of one request's queries for one head, and walks over the context tile by tile with
the online softmax; it stops where causality does. Short and long chunks, and single decode tokens,
lie in one ragged batch. (FlashAttention: Dao et al., 2022; FlashAttention-2: Dao, 2023.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .cache_formats import format_of, raw
from .online_softmax import attend_tile
from .paged_decode import gather
from .tiles import architecture, prefill_tiling


@triton.jit(do_not_specialize=["table_stride"])
def paged_prefill_kernel(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, query_start, query_lens, context_lens, out, scale,
    q_stride, out_stride, table_stride, BLOCK_SIZE: tl.constexpr, NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, DIM_PAD: tl.constexpr,
    TILE: tl.constexpr, DOT: tl.constexpr, FORMAT: tl.constexpr, LARGEST: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    tile, seq, head = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    query_len = tl.load(query_lens + seq).to(tl.int32)
    if tile * ROWS < query_len:
        context_len = tl.load(context_lens + seq).to(tl.int32)
        index = tile * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, DIM_PAD)
        is_query = (index < query_len)[:, None] & (column < HEAD_DIM)[None, :]
        token = tl.load(query_start + seq).to(tl.int64) + index
        at = head * HEAD_DIM + column[None, :]
        queries = tl.load(q + token[:, None] * q_stride + at, mask=is_query, other=0.0).to(DOT)
        first = context_len - query_len  # the position of the request's first query
        position = first + index
        end = tl.minimum(first + (tile + 1) * ROWS, context_len)
        largest = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, DIM_PAD], tl.float32)
        for begin in range(0, end, TILE):
            acc, largest, total = attend_tile(
                queries, position, begin, end, acc, largest, total, block_tables + seq * table_stride,
                k_cache, v_cache, k_scale, v_scale, head // GROUP, scale, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM,
                DIM_PAD, TILE, DOT, FORMAT, LARGEST, UNIT,
            )  # fmt: skip
        result = acc * (UNIT / LARGEST) / total[:, None]
        tl.store(out + token[:, None] * out_stride + at, result.to(out.dtype.element_ty), mask=is_query)


def paged_prefill(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_start: torch.Tensor,
    query_lens: torch.Tensor,
    context_lens: torch.Tensor,
    max_query_len: int,
    max_context_len: int,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """q: [num_tokens, num_heads, head_dim], each token's heads contiguous; request i's rows begin at
    query_start[i]; caches: [num_blocks, block_size, num_kv_heads, head_dim], contiguous; block_tables:
    [num_seqs, max_blocks]; query_lens, context_lens: [num_seqs], with the largest of each as numbers;
    k_scale, v_scale: [num_blocks, block_size, num_kv_heads], with 8-bit caches only → q's shape."""
    _, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    dim_pad = triton.next_power_of_2(head_dim)
    cache_format = format_of(k_cache)
    tiling = prefill_tiling(q.dtype, dim_pad, k_scale is not None, architecture(q.device))
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    grid = (triton.cdiv(max_query_len, tiling.rows), len(query_lens), num_heads)
    paged_prefill_kernel[grid](
        q, raw(k_cache), raw(v_cache), k_scale, v_scale, block_tables, query_start, query_lens, context_lens,
        out, head_dim**-0.5, q.stride(0), out.stride(0), block_tables.stride(0),
        BLOCK_SIZE=block_size, NUM_KV_HEADS=num_kv_heads, GROUP=num_heads // num_kv_heads, HEAD_DIM=head_dim,
        ROWS=tiling.rows, DIM_PAD=dim_pad, TILE=tiling.tile, DOT=tiling.dot,
        FORMAT=cache_format.name, LARGEST=cache_format.largest, UNIT=cache_format.unit,
        **tiling.options,
    )  # fmt: skip
    return out


def paged_prefill_reference(
    q, k_cache, v_cache, block_tables, query_start, query_lens, context_lens, max_query_len, max_context_len,
    k_scale=None, v_scale=None,
):  # fmt: skip
    """The same in torch, request by request."""
    out = torch.empty_like(q)
    for i, (start, n, context_len) in enumerate(
        zip(query_start.tolist(), query_lens.tolist(), context_lens.tolist(), strict=False)
    ):
        k = gather(k_cache, block_tables[i], context_len, q.shape[1], k_scale)
        v = gather(v_cache, block_tables[i], context_len, q.shape[1], v_scale)
        scores = torch.einsum("qhd,thd->hqt", q[start : start + n].float(), k) * q.shape[2] ** -0.5
        seen = torch.ones(n, context_len, dtype=torch.bool, device=q.device).tril(context_len - n)
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        out[start : start + n] = torch.einsum("hqt,thd->qhd", weights, v).to(q.dtype)
    return out
