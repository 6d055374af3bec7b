"""store_kv: put the step's new keys and values into their slots of the paged cache.

One program a token: it looks its slot up and copies one row of keys and one of values. Offsets are
int64, since a cache of more than 2³¹ elements is common.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .quantized import store_quantized, store_quantized_reference


@triton.jit
def store_kv_kernel(
    k,
    v,
    k_cache,
    v_cache,
    slot_mapping,
    k_stride,
    v_stride,
    cache_stride,
    ROW: tl.constexpr,
    ROW_PAD: tl.constexpr,
):
    token = tl.program_id(0)
    slot = tl.load(slot_mapping + token).to(tl.int64)
    column = tl.arange(0, ROW_PAD)
    inside = column < ROW
    source = token.to(tl.int64)
    new_k = tl.load(k + source * k_stride + column, mask=inside)
    new_v = tl.load(v + source * v_stride + column, mask=inside)
    tl.store(k_cache + slot * cache_stride + column, new_k, mask=inside)
    tl.store(v_cache + slot * cache_stride + column, new_v, mask=inside)


def store_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """k, v: [num_tokens, num_kv_heads, head_dim], each row contiguous; caches: [num_blocks, block_size,
    num_kv_heads, head_dim], contiguous; slot_mapping: [num_tokens], block · block_size + offset;
    k_scale, v_scale: [num_blocks, block_size, num_kv_heads], with 8-bit caches only (quantized.py)."""
    if k_scale is not None:
        return store_quantized(k, v, k_cache, v_cache, slot_mapping, k_scale, v_scale)
    num_tokens, num_kv_heads, head_dim = k.shape
    row = num_kv_heads * head_dim
    store_kv_kernel[(num_tokens,)](
        k, v, k_cache, v_cache, slot_mapping, k.stride(0), v.stride(0), row,
        ROW=row, ROW_PAD=triton.next_power_of_2(row),
    )  # fmt: skip


def store_kv_reference(k, v, k_cache, v_cache, slot_mapping, k_scale=None, v_scale=None) -> None:
    """The same in torch."""
    if k_scale is not None:
        return store_quantized_reference(k, v, k_cache, v_cache, slot_mapping, k_scale, v_scale)
    k_cache.flatten(0, 1).index_copy_(0, slot_mapping, k)
    v_cache.flatten(0, 1).index_copy_(0, slot_mapping, v)
