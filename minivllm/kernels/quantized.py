"""store_quantized: put new keys and values into an 8-bit cache; and the conversions that its readers use.

One program a token, as in store_kv: it finds each head's scale, and stores the head divided by it. In
attention the scale of a key multiplies its score and that of a value its weight: no element is ever rescaled.
What is stored and why: cache_formats.py.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .cache_formats import LEAST_SCALE, format_of, quantize, raw


@triton.jit
def widen(stored, DOT: tl.constexpr, FORMAT: tl.constexpr):
    """Stored numbers as factors of a product. fp8 comes out 2⁻⁸ too small: its sign, exponent and
    mantissa are put where fp16 has them, whose exponent counts from 15 instead of 7."""
    if FORMAT == "fp8":
        bits = stored.to(tl.int16)
        half = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)
        return half.to(tl.float16, bitcast=True).to(DOT)
    return stored.to(DOT)


@triton.jit
def narrow(x, FORMAT: tl.constexpr):
    """fp32 numbers in the format's range → its bits, rounded to the nearest, ties to even."""
    to_integer = 12582912.0  # 1.5 · 2²³: behind it, fp32 has no room for a fraction
    if FORMAT == "int8":
        return ((x + to_integer) - to_integer).to(tl.int8)
    # The distance between neighbours is 2^(exponent − 3), below the smallest exponent, −6, too.
    exponent = tl.maximum((x.to(tl.int32, bitcast=True) >> 23) & 0xFF, 127 - 6)
    distance = ((exponent - 3) << 23).to(tl.float32, bitcast=True)
    rounded = ((x / distance + to_integer) - to_integer) * distance
    half = (rounded * 0.00390625).to(tl.float16).to(tl.int16, bitcast=True)
    return (((half >> 8) & 0x80) | ((half >> 7) & 0x7F)).to(tl.int8)


@triton.jit
def store_quantized_kernel(
    k, v, k_cache, v_cache, slot_mapping, k_scale, v_scale, k_stride, v_stride,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HEADS_PAD: tl.constexpr, DIM_PAD: tl.constexpr,
    LARGEST: tl.constexpr, LEAST_SCALE: tl.constexpr, FORMAT: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token).to(tl.int64)
    head, column = tl.arange(0, HEADS_PAD), tl.arange(0, DIM_PAD)
    is_head = head < NUM_HEADS
    inside = is_head[:, None] & (column < HEAD_DIM)[None, :]
    at = head[:, None] * HEAD_DIM + column[None, :]
    to, to_scale = slot * (NUM_HEADS * HEAD_DIM) + at, slot * NUM_HEADS + head
    keys = tl.load(k + token * k_stride + at, mask=inside, other=0.0).to(tl.float32)
    stored, scale = _quantized(keys, LARGEST, LEAST_SCALE, FORMAT)
    tl.store(k_cache + to, stored, mask=inside)
    tl.store(k_scale + to_scale, scale, mask=is_head)
    values = tl.load(v + token * v_stride + at, mask=inside, other=0.0).to(tl.float32)
    stored, scale = _quantized(values, LARGEST, LEAST_SCALE, FORMAT)
    tl.store(v_cache + to, stored, mask=inside)
    tl.store(v_scale + to_scale, scale, mask=is_head)


@triton.jit
def _quantized(x, LARGEST: tl.constexpr, LEAST_SCALE: tl.constexpr, FORMAT: tl.constexpr):
    scale = tl.maximum(tl.max(tl.abs(x), axis=1) / LARGEST, LEAST_SCALE)
    scaled = tl.minimum(tl.maximum(x / scale[:, None], -LARGEST), LARGEST)
    return narrow(scaled, FORMAT), scale


def store_quantized(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    """As `store_kv`, into 8-bit caches; k_scale, v_scale: [num_blocks, block_size, num_kv_heads], fp32."""
    num_tokens, num_heads, head_dim = k.shape
    cache_format = format_of(k_cache)
    store_quantized_kernel[(num_tokens,)](
        k, v, raw(k_cache), raw(v_cache), slot_mapping, k_scale, v_scale, k.stride(0), v.stride(0),
        NUM_HEADS=num_heads, HEAD_DIM=head_dim, HEADS_PAD=triton.next_power_of_2(num_heads),
        DIM_PAD=triton.next_power_of_2(head_dim), LARGEST=cache_format.largest, LEAST_SCALE=LEAST_SCALE,
        FORMAT=cache_format.name,
    )  # fmt: skip


def store_quantized_reference(k, v, k_cache, v_cache, slot_mapping, k_scale, v_scale) -> None:
    """The same in torch, which copies fp8 by index only as bytes."""
    for x, cache, scales in ((k, k_cache, k_scale), (v, v_cache, v_scale)):
        stored, scale = quantize(x, format_of(cache))
        raw(cache).flatten(0, 1).index_copy_(0, slot_mapping, raw(stored))
        scales.flatten(0, 1).index_copy_(0, slot_mapping, scale)
