"""paged_decode: one new query a request over its paged context, the kernel an engine lives in.

Decode reads every key and value of the context once and does little with them, so it is bound by memory
bandwidth. Hence: one program serves all query heads of a KV head (they read the same keys), and a
context is split among programs, so that a single long request keeps a whole GPU busy; a second kernel
puts the splits together. Each split leaves its result and log(sum of exp of its scores), which is the
weight that it has among the others. (Flash-decoding: Dao et al., 2023.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .cache_formats import dequantize, format_of, raw
from .online_softmax import attend_tile
from .tiles import architecture, decode_tiling

SPLIT = 512  # tokens of context that one program reads


@triton.jit(do_not_specialize=["table_stride", "num_splits"])
def paged_decode_kernel(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens, out, lse, scale, q_stride,
    table_stride, num_splits, BLOCK_SIZE: tl.constexpr, NUM_KV_HEADS: tl.constexpr, GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr, ROWS: tl.constexpr, DIM_PAD: tl.constexpr, TILE: tl.constexpr,
    SPLIT: tl.constexpr, DOT: tl.constexpr, FORMAT: tl.constexpr, LARGEST: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    seq, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    context_len = tl.load(context_lens + seq).to(tl.int32)
    row, column = tl.arange(0, ROWS), tl.arange(0, DIM_PAD)
    is_query = (row < GROUP)[:, None] & (column < HEAD_DIM)[None, :]
    head = kv_head * GROUP + row
    source = q + seq * q_stride + head[:, None] * HEAD_DIM + column[None, :]
    queries = tl.load(source, mask=is_query, other=0.0).to(DOT)
    position = tl.zeros([ROWS], tl.int32) + context_len - 1
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM_PAD], tl.float32)
    end = tl.minimum((split + 1) * SPLIT, context_len)
    for begin in range(split * SPLIT, end, TILE):
        acc, largest, total = attend_tile(
            queries, position, begin, end, acc, largest, total, block_tables + seq * table_stride,
            k_cache, v_cache, k_scale, v_scale, kv_head, scale, BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM, DIM_PAD,
            TILE, DOT, FORMAT, LARGEST, UNIT,
        )  # fmt: skip
    if split * SPLIT < context_len:
        partial = (seq * NUM_KV_HEADS * GROUP + head) * num_splits + split
        result = acc * (UNIT / LARGEST) / total[:, None]
        target = out + partial[:, None] * HEAD_DIM + column[None, :]
        tl.store(target, result.to(out.dtype.element_ty), mask=is_query)
        tl.store(lse + partial, largest + tl.log(total), mask=row < GROUP)


@triton.jit(do_not_specialize=["num_splits"])
def combine_splits_kernel(
    partial, lse, context_lens, out, num_splits,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DIM_PAD: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    seq, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    context_len = tl.load(context_lens + seq).to(tl.int32)
    column = tl.arange(0, DIM_PAD)
    is_column = column < HEAD_DIM
    first = (seq * NUM_HEADS + head) * num_splits
    largest = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([DIM_PAD], tl.float32)
    for split in range(0, tl.cdiv(context_len, SPLIT)):
        this = tl.load(lse + first + split + tl.arange(0, 1))
        new_largest = tl.maximum(largest, this)
        shrink, weight = tl.exp(largest - new_largest), tl.exp(this - new_largest)
        piece = tl.load(partial + (first + split) * HEAD_DIM + column, mask=is_column, other=0.0)
        acc = acc * shrink + piece * weight
        total = total * shrink + weight
        largest = new_largest
    target = out + (seq * NUM_HEADS + head) * HEAD_DIM + column
    tl.store(target, (acc / total).to(out.dtype.element_ty), mask=is_column)


def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    max_context_len: int,
    split: int = SPLIT,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """q: [num_seqs, num_heads, head_dim], each request's heads contiguous; caches: [num_blocks,
    block_size, num_kv_heads, head_dim], contiguous; block_tables: [num_seqs, max_blocks];
    context_lens: [num_seqs], none above `max_context_len`; k_scale, v_scale: [num_blocks, block_size,
    num_kv_heads], with 8-bit caches only → q's shape."""
    num_seqs, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    group, dim_pad = num_heads // num_kv_heads, triton.next_power_of_2(head_dim)
    cache_format = format_of(k_cache)
    tiling = decode_tiling(q.dtype, dim_pad, group, k_scale is not None, architecture(q.device))
    num_splits = triton.cdiv(max_context_len, split)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(num_seqs, num_heads, num_splits, dtype=torch.float32, device=q.device)
    partial = out
    if num_splits > 1:
        partial = torch.empty(*lse.shape, head_dim, dtype=torch.float32, device=q.device)
    paged_decode_kernel[(num_seqs, num_kv_heads, num_splits)](
        q, raw(k_cache), raw(v_cache), k_scale, v_scale, block_tables, context_lens, partial, lse,
        head_dim**-0.5, q.stride(0), block_tables.stride(0), num_splits,
        BLOCK_SIZE=block_size, NUM_KV_HEADS=num_kv_heads, GROUP=group, HEAD_DIM=head_dim,
        ROWS=tiling.rows, DIM_PAD=dim_pad, TILE=tiling.tile, SPLIT=split, DOT=tiling.dot,
        FORMAT=cache_format.name, LARGEST=cache_format.largest, UNIT=cache_format.unit,
        **tiling.options,
    )  # fmt: skip
    if num_splits > 1:
        combine_splits_kernel[(num_seqs, num_heads)](
            partial, lse, context_lens, out, num_splits,
            NUM_HEADS=num_heads, HEAD_DIM=head_dim, DIM_PAD=dim_pad, SPLIT=split,
        )  # fmt: skip
    return out


def paged_decode_reference(
    q, k_cache, v_cache, block_tables, context_lens, max_context_len, split=SPLIT, k_scale=None, v_scale=None
):
    """The same in torch, request by request."""
    outputs = []
    for i, context_len in enumerate(context_lens.tolist()):
        k = gather(k_cache, block_tables[i], context_len, q.shape[1], k_scale)
        v = gather(v_cache, block_tables[i], context_len, q.shape[1], v_scale)
        weights = (torch.einsum("hd,thd->ht", q[i].float(), k) * q.shape[2] ** -0.5).softmax(-1)
        outputs.append(torch.einsum("ht,thd->hd", weights, v))
    return torch.stack(outputs).to(q.dtype)


def gather(
    cache: torch.Tensor,
    table: torch.Tensor,
    context_len: int,
    num_heads: int,
    scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """One request's keys or values, fp32, repeated for each query head: [context_len, num_heads,
    head_dim]."""
    blocks = table[: -(-context_len // cache.shape[1])]
    rows = cache[blocks].float() if scale is None else dequantize(cache[blocks], scale[blocks])
    rows = rows.flatten(0, 1)[:context_len]
    return rows.repeat_interleave(num_heads // cache.shape[2], dim=1)
