"""Right answers to lab 03 in other styles than the solution's: other grids, no tl.dot, other partial results.

Imported only where kernels are interpreted.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def one_head_of_one_token(k, v, k_cache, v_cache, slots, k_stride, v_stride, HEADS: tl.constexpr,
                          DIM: tl.constexpr, PAD: tl.constexpr):  # fmt: skip
    token, head = tl.program_id(0), tl.program_id(1)
    target = (tl.load(slots + token) * HEADS + head) * DIM
    for column in range(0, DIM, PAD):
        at = column + tl.arange(0, PAD)
        tl.store(k_cache + target + at, tl.load(k + token * k_stride + head * DIM + at, at < DIM), at < DIM)
        tl.store(v_cache + target + at, tl.load(v + token * v_stride + head * DIM + at, at < DIM), at < DIM)


def store_kv(k, v, k_cache, v_cache, slot_mapping):
    heads, dim = k.shape[1:]
    one_head_of_one_token[(len(k), heads)](
        k, v, k_cache, v_cache, slot_mapping, k.stride(0), v.stride(0), HEADS=heads, DIM=dim, PAD=4
    )


@triton.jit
def norm_in_pieces(x, weight, out, x_stride, eps, SIZE: tl.constexpr, PIECE: tl.constexpr):
    row = tl.program_id(0)
    squares = tl.zeros([PIECE], tl.float32)
    for begin in range(0, SIZE, PIECE):
        at = begin + tl.arange(0, PIECE)
        value = tl.load(x + row * x_stride + at, at < SIZE, other=0.0).to(tl.float32)
        squares += value * value
    root = tl.sqrt(tl.sum(squares) / SIZE + eps)
    for begin in range(0, SIZE, PIECE):
        at = begin + tl.arange(0, PIECE)
        value = tl.load(x + row * x_stride + at, at < SIZE).to(tl.float32)
        scaled = value / root * tl.load(weight + at, at < SIZE).to(tl.float32)
        tl.store(out + row * SIZE + at, scaled.to(out.dtype.element_ty), at < SIZE)


def rms_norm(x, weight, eps, residual=None):
    added = x if residual is None else x + residual
    out = torch.empty(x.shape, dtype=x.dtype)
    norm_in_pieces[(len(x),)](added, weight, out, added.stride(0), eps, SIZE=x.shape[1], PIECE=4)
    return out, added


@triton.jit
def one_query_head(q, k_cache, v_cache, table, context_lens, first_seen, out, lse, scale, q_stride,
                   table_stride, out_stride, SIZE: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr,
                   DIM: tl.constexpr, PAD: tl.constexpr, SPLIT: tl.constexpr):  # fmt: skip
    """A query over the tokens split · SPLIT … of its context, eight at a time; its result and the log of
    the sum of exp(score)."""
    seq, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    context_len = tl.load(context_lens + seq)
    request = tl.load(first_seen + seq)
    column = tl.arange(0, PAD)
    is_column = column < DIM
    query = tl.load(q + seq * q_stride + head * DIM + column, is_column, other=0.0).to(tl.float32)
    largest, total, acc = -1e30, 0.0, tl.zeros([PAD], tl.float32)
    for offset in range(0, SPLIT, 8):
        if split * SPLIT + offset < context_len:
            position = split * SPLIT + offset + tl.arange(0, 8)
            seen = position < context_len
            block = tl.load(table + request * table_stride + position // SIZE, seen, other=0)
            row = (block * SIZE + position % SIZE) * KV_HEADS + head // GROUP
            at, there = row[:, None] * DIM + column[None, :], seen[:, None] & is_column[None, :]
            keys = tl.load(k_cache + at, there, other=0.0).to(tl.float32)
            score = tl.where(seen, tl.sum(query[None, :] * keys, axis=1) * scale, float("-inf"))
            new = tl.maximum(largest, tl.max(score, axis=0))
            old_weight, weight = tl.exp(largest - new), tl.exp(score - new)
            values = tl.load(v_cache + at, there, other=0.0).to(tl.float32)
            acc = acc * old_weight + tl.sum(weight[:, None] * values, axis=0)
            total = total * old_weight + tl.sum(weight, axis=0)
            largest = new
    place = (seq * KV_HEADS * GROUP + head) * out_stride + split
    if split * SPLIT < context_len:
        tl.store(out + place * DIM + column, (acc / total).to(out.dtype.element_ty), is_column)
        tl.store(lse + place, largest + tl.log(total))


def _attend(q, k_cache, v_cache, tables, context_lens, requests, split, num_splits):
    """(results [rows, heads, num_splits, dim], lse), float32."""
    rows, heads, dim = q.shape
    out = torch.zeros(rows, heads, num_splits, dim)
    lse = torch.full((rows, heads, num_splits), float("-inf"))
    one_query_head[(rows, heads, num_splits)](
        q, k_cache, v_cache, tables, context_lens, requests, out, lse, dim**-0.5, q.stride(0),
        tables.stride(0), num_splits, SIZE=k_cache.shape[1], KV_HEADS=k_cache.shape[2],
        GROUP=heads // k_cache.shape[2], DIM=dim, PAD=triton.next_power_of_2(dim), SPLIT=split,
    )  # fmt: skip
    return out, lse


def paged_decode(q, k_cache, v_cache, block_tables, context_lens, max_context_len):
    longest = triton.next_power_of_2(max_context_len)
    out, _ = _attend(q, k_cache, v_cache, block_tables, context_lens, torch.arange(len(q)), longest, 1)
    return out[:, :, 0].to(q.dtype)


def paged_decode_split(q, k_cache, v_cache, block_tables, context_lens, max_context_len, split=64):
    num_splits = -(-max_context_len // split)
    requests = torch.arange(len(q))
    out, lse = _attend(q, k_cache, v_cache, block_tables, context_lens, requests, split, num_splits)
    return (out * lse.softmax(-1)[..., None]).sum(2).to(q.dtype)


def paged_prefill(
    q, k_cache, v_cache, block_tables, query_start, query_lens, context_lens, max_query_len, max_context_len
):
    requests = torch.repeat_interleave(torch.arange(len(query_lens)), query_lens)
    ends = torch.cat([torch.arange(c - n, c) + 1 for c, n in zip(context_lens, query_lens, strict=True)])
    longest = triton.next_power_of_2(max_context_len)
    return _attend(q, k_cache, v_cache, block_tables, ends, requests, longest, 1)[0][:, :, 0].to(q.dtype)
