"""paged_decode: one new query a request over its paged context, the kernel an engine lives in.

Decode reads every key and value of the context once and does little with them, so it is bound by memory
bandwidth. Hence: one program serves all query heads of a KV head (they read the same keys), and a
context is split among programs, so that a single long request keeps a whole GPU busy; a second kernel
puts the splits together. The softmax is computed online: m is the largest score so far, l the sum of
exp(score − m), acc the weighted values; two partial results combine by rescaling to a common m.
(Online softmax: Milakov and Gimelshein, 2018. Flash-decoding: Dao et al., 2023.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from . import interpreting

SPLIT = 512  # tokens of context that one program reads
# A tensor-core product has at least 16 rows: smaller groups of query heads are padded.
LEAST_ROWS = 16


@triton.jit
def paged_decode_kernel(
    q, k_cache, v_cache, block_tables, context_lens, out, lse, scale, q_stride, table_stride, num_splits,
    BLOCK_SIZE: tl.constexpr, NUM_KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr, DIM_PAD: tl.constexpr, TILE: tl.constexpr, SPLIT: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    seq, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    context_len = tl.load(context_lens + seq)
    row, column = tl.arange(0, ROWS), tl.arange(0, DIM_PAD)
    is_row, is_column = row < GROUP, column < HEAD_DIM
    is_query = is_row[:, None] & is_column[None, :]
    head = kv_head * GROUP + row
    queries = tl.load(
        q + seq.to(tl.int64) * q_stride + head[:, None] * HEAD_DIM + column[None, :], mask=is_query, other=0.0
    ).to(DOT)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM_PAD], tl.float32)
    begin = split * SPLIT
    for offset in range(0, SPLIT, TILE):
        if begin + offset < context_len:
            position = begin + offset + tl.arange(0, TILE)
            is_seen = position < context_len
            block = tl.load(block_tables + seq * table_stride + position // BLOCK_SIZE, mask=is_seen, other=0)
            slot = block.to(tl.int64) * BLOCK_SIZE + position % BLOCK_SIZE
            at = (slot[:, None] * NUM_KV_HEADS + kv_head) * HEAD_DIM + column[None, :]
            is_loaded = is_seen[:, None] & is_column[None, :]
            keys = tl.load(k_cache + at, mask=is_loaded, other=0.0)
            scores = tl.dot(queries, tl.trans(keys.to(DOT)), input_precision="ieee") * scale
            scores = tl.where(is_seen[None, :], scores, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(scores, axis=1))
            weights = tl.exp(scores - new_largest[:, None])
            shrink = tl.exp(largest - new_largest)
            total = total * shrink + tl.sum(weights, axis=1)
            values = tl.load(v_cache + at, mask=is_loaded, other=0.0)
            acc = acc * shrink[:, None] + tl.dot(weights.to(DOT), values.to(DOT), input_precision="ieee")
            largest = new_largest
    if begin < context_len:
        partial = (seq.to(tl.int64) * NUM_KV_HEADS * GROUP + head) * num_splits + split
        result = acc / total[:, None]
        tl.store(
            out + partial[:, None] * HEAD_DIM + column[None, :],
            result.to(out.dtype.element_ty),
            mask=is_query,
        )
        tl.store(lse + partial, largest + tl.log(total), mask=is_row)


@triton.jit
def combine_splits_kernel(
    partial, lse, context_lens, out, num_splits,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DIM_PAD: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    seq, head = tl.program_id(0), tl.program_id(1)
    context_len = tl.load(context_lens + seq)
    column = tl.arange(0, DIM_PAD)
    is_column = column < HEAD_DIM
    first = (seq.to(tl.int64) * NUM_HEADS + head) * num_splits
    largest = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([DIM_PAD], tl.float32)
    for split in range(0, num_splits):
        if split * SPLIT < context_len:
            this = tl.load(lse + first + split + tl.arange(0, 1))
            new_largest = tl.maximum(largest, this)
            shrink, weight = tl.exp(largest - new_largest), tl.exp(this - new_largest)
            piece = tl.load(partial + (first + split) * HEAD_DIM + column, mask=is_column, other=0.0)
            acc = acc * shrink + piece * weight
            total = total * shrink + weight
            largest = new_largest
    target = out + (seq.to(tl.int64) * NUM_HEADS + head) * HEAD_DIM + column
    tl.store(target, (acc / total).to(out.dtype.element_ty), mask=is_column)


def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    max_context_len: int,
    split: int = SPLIT,
) -> torch.Tensor:
    """q: [num_seqs, num_heads, head_dim], each request's heads contiguous; caches: [num_blocks,
    block_size, num_kv_heads, head_dim], contiguous; block_tables: [num_seqs, max_blocks];
    context_lens: [num_seqs], none above `max_context_len` → q's shape."""
    num_seqs, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    group, dim_pad = num_heads // num_kv_heads, triton.next_power_of_2(head_dim)
    num_splits = triton.cdiv(max_context_len, split)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(num_seqs, num_heads, num_splits, dtype=torch.float32, device=q.device)
    partial = out
    if num_splits > 1:
        partial = torch.empty(*lse.shape, head_dim, dtype=torch.float32, device=q.device)
    paged_decode_kernel[(num_seqs, num_kv_heads, num_splits)](
        q, k_cache, v_cache, block_tables, context_lens, partial, lse, head_dim**-0.5,
        q.stride(0), block_tables.stride(0), num_splits,
        BLOCK_SIZE=block_size, NUM_KV_HEADS=num_kv_heads, GROUP=group, HEAD_DIM=head_dim,
        ROWS=max(LEAST_ROWS, triton.next_power_of_2(group)), DIM_PAD=dim_pad,
        TILE=min(tile_size(dim_pad), split), SPLIT=split, DOT=dot_dtype(q.dtype),
        num_warps=num_warps(dim_pad),
    )  # fmt: skip
    if num_splits > 1:
        combine_splits_kernel[(num_seqs, num_heads)](
            partial, lse, context_lens, out, num_splits,
            NUM_HEADS=num_heads, HEAD_DIM=head_dim, DIM_PAD=dim_pad, SPLIT=split,
        )  # fmt: skip
    return out


def dot_dtype(dtype: torch.dtype) -> tl.dtype:
    """Type of the factors of tensor-core products: that of the tensors. The interpreter multiplies the
    bit patterns of bf16 as if they were numbers, so there they are widened first."""
    if dtype == torch.bfloat16:
        return tl.float32 if interpreting() else tl.bfloat16
    return tl.float16 if dtype == torch.float16 else tl.float32


def tile_size(dim_pad: int) -> int:
    """Tokens a tile. With larger ones the compiler runs out of registers and spills (see the report in
    ahead_of_time.py), on sm_75 first, which has no asynchronous copies and the smallest products."""
    return 32 if dim_pad <= 64 else 16


def num_warps(dim_pad: int) -> int:
    """Warps a program: the tiles of a wide head are shared by more of them."""
    return 8 if dim_pad <= 128 else 16


def paged_decode_reference(q, k_cache, v_cache, block_tables, context_lens, max_context_len):
    """The same in torch, request by request."""
    outputs = []
    for i, context_len in enumerate(context_lens.tolist()):
        k, v = (gather(cache, block_tables[i], context_len, q.shape[1]) for cache in (k_cache, v_cache))
        weights = (torch.einsum("hd,thd->ht", q[i].float(), k) * q.shape[2] ** -0.5).softmax(-1)
        outputs.append(torch.einsum("ht,thd->hd", weights, v))
    return torch.stack(outputs).to(q.dtype)


def gather(cache: torch.Tensor, table: torch.Tensor, context_len: int, num_heads: int) -> torch.Tensor:
    """One request's keys or values, fp32, repeated for each query head: [context_len, num_heads,
    head_dim]."""
    blocks = table[: -(-context_len // cache.shape[1])]
    rows = cache[blocks].flatten(0, 1)[:context_len]
    return rows.float().repeat_interleave(num_heads // cache.shape[2], dim=1)
