"""paged_prefill: chunks of prompts over their paged context, causal, any part of it cached.

A program owns a tile of one request's queries for one head, and walks over the context tile by tile with
the online softmax; it stops where causality does. Short and long chunks, and single decode tokens,
lie in one ragged batch. (FlashAttention: Dao et al., 2022; FlashAttention-2: Dao, 2023.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .paged_decode import dot_dtype, gather, num_warps, tile_size

QUERY_TILE = 16


@triton.jit
def paged_prefill_kernel(
    q, k_cache, v_cache, block_tables, query_start, query_lens, context_lens, out, scale,
    q_stride, table_stride, max_context_len,
    BLOCK_SIZE: tl.constexpr, NUM_KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr,
    QUERY_TILE: tl.constexpr, DIM_PAD: tl.constexpr, TILE: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    tile, seq, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query_len, context_len = tl.load(query_lens + seq), tl.load(context_lens + seq)
    if tile * QUERY_TILE < query_len:
        index = tile * QUERY_TILE + tl.arange(0, QUERY_TILE)
        column = tl.arange(0, DIM_PAD)
        is_column = column < HEAD_DIM
        is_query = (index < query_len)[:, None] & is_column[None, :]
        token = (tl.load(query_start + seq) + index).to(tl.int64)
        queries = tl.load(
            q + token[:, None] * q_stride + head * HEAD_DIM + column[None, :], mask=is_query, other=0.0
        ).to(DOT)
        position = context_len - query_len + index  # a query sees the keys up to its own position
        end = tl.minimum(context_len - query_len + (tile + 1) * QUERY_TILE, context_len)
        largest = tl.full([QUERY_TILE], float("-inf"), tl.float32)
        total = tl.zeros([QUERY_TILE], tl.float32)
        acc = tl.zeros([QUERY_TILE, DIM_PAD], tl.float32)
        for begin in range(0, max_context_len, TILE):
            if begin < end:
                key = begin + tl.arange(0, TILE)
                is_key = key < end
                block = tl.load(block_tables + seq * table_stride + key // BLOCK_SIZE, mask=is_key, other=0)
                slot = block.to(tl.int64) * BLOCK_SIZE + key % BLOCK_SIZE
                at = (slot[:, None] * NUM_KV_HEADS + head // GROUP) * HEAD_DIM + column[None, :]
                is_loaded = is_key[:, None] & is_column[None, :]
                keys = tl.load(k_cache + at, mask=is_loaded, other=0.0)
                scores = tl.dot(queries, tl.trans(keys.to(DOT)), input_precision="ieee") * scale
                scores = tl.where(key[None, :] <= position[:, None], scores, float("-inf"))
                new_largest = tl.maximum(largest, tl.max(scores, axis=1))
                weights = tl.exp(scores - new_largest[:, None])
                shrink = tl.exp(largest - new_largest)
                total = total * shrink + tl.sum(weights, axis=1)
                values = tl.load(v_cache + at, mask=is_loaded, other=0.0)
                acc = acc * shrink[:, None] + tl.dot(weights.to(DOT), values.to(DOT), input_precision="ieee")
                largest = new_largest
        target = out + token[:, None] * q_stride + head * HEAD_DIM + column[None, :]
        tl.store(target, (acc / total[:, None]).to(out.dtype.element_ty), mask=is_query)


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
) -> torch.Tensor:
    """q: [num_tokens, num_heads, head_dim], contiguous; request i's rows begin at query_start[i]; caches:
    [num_blocks, block_size, num_kv_heads, head_dim], contiguous; block_tables: [num_seqs, max_blocks];
    query_lens, context_lens: [num_seqs], with the largest of each as numbers → q's shape."""
    num_tokens, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    dim_pad = triton.next_power_of_2(head_dim)
    q = q.contiguous()
    out = torch.empty_like(q)
    grid = (triton.cdiv(max_query_len, QUERY_TILE), len(query_lens), num_heads)
    paged_prefill_kernel[grid](
        q, k_cache, v_cache, block_tables, query_start, query_lens, context_lens, out, head_dim**-0.5,
        q.stride(0), block_tables.stride(0), max_context_len,
        BLOCK_SIZE=block_size, NUM_KV_HEADS=num_kv_heads, GROUP=num_heads // num_kv_heads, HEAD_DIM=head_dim,
        QUERY_TILE=QUERY_TILE, DIM_PAD=dim_pad, TILE=tile_size(dim_pad),
        DOT=dot_dtype(q.dtype), num_warps=num_warps(dim_pad),
    )  # fmt: skip
    return out


def paged_prefill_reference(
    q, k_cache, v_cache, block_tables, query_start, query_lens, context_lens, max_query_len, max_context_len
):
    """The same in torch, request by request."""
    out = torch.empty_like(q)
    for i, (start, n, context_len) in enumerate(
        zip(query_start.tolist(), query_lens.tolist(), context_lens.tolist(), strict=False)
    ):
        k, v = (gather(cache, block_tables[i], context_len, q.shape[1]) for cache in (k_cache, v_cache))
        scores = torch.einsum("qhd,thd->hqt", q[start : start + n].float(), k) * q.shape[2] ** -0.5
        seen = torch.ones(n, context_len, dtype=torch.bool, device=q.device).tril(context_len - n)
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        out[start : start + n] = torch.einsum("hqt,thd->qhd", weights, v).to(q.dtype)
    return out
