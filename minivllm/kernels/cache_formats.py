"""8-bit keys and values: half the memory of fp16, and so half the bytes that decode has to read.

Each head of each token is stored as 8-bit numbers with one fp32 scale, its largest magnitude over the
largest number of the format. The scale belongs to the slot: it is known when the token is written, needs no
calibration data, moves with its block when that is copied, swapped or shared, and does not depend on who
else is in the batch, so a request's tokens do not either. It costs 4 bytes beside head_dim.
fp8 is e4m3: 1 sign, 4 exponent, 3 mantissa bits, up to 448. (FP8 formats: Micikevicius et al., 2022.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..config import KV_CACHE_DTYPES

LEAST_SCALE = 1e-20  # of a head that is all zeros
SCALE_BYTES = 4


@dataclass(frozen=True)
class CacheFormat:
    """How keys and values are stored. `largest`: the largest number of an 8-bit format; `unit`: what a
    number is to be multiplied by after `widen`."""

    name: str
    dtype: torch.dtype | None
    largest: float = 1.0
    unit: float = 1.0


FORMATS = {
    "": CacheFormat("", None),
    "fp8": CacheFormat("fp8", torch.float8_e4m3fn, 448.0, 256.0),
    "int8": CacheFormat("int8", torch.int8, 127.0),
}


def head_bytes(kv_cache_dtype: str, head_dim: int, dtype: torch.dtype) -> int:
    """Bytes that one head of one token takes, of keys or of values; dtype is the model's."""
    if FORMATS[KV_CACHE_DTYPES[kv_cache_dtype]].dtype is None:
        return head_dim * dtype.itemsize
    return head_dim + SCALE_BYTES


def format_of(cache: torch.Tensor) -> CacheFormat:
    """The format of a cache tensor: FORMATS[""] if it holds keys and values as they are."""
    return next((f for f in FORMATS.values() if f.dtype == cache.dtype), FORMATS[""])


def quantize(x: torch.Tensor, cache_format: CacheFormat) -> tuple[torch.Tensor, torch.Tensor]:
    """x: [..., head_dim] → (stored: the same shape, 8-bit; scale: [...], fp32)."""
    x = x.float()
    scale = (x.abs().amax(-1) / cache_format.largest).clamp_min(LEAST_SCALE)
    # Rounding in the division may end a hair above the largest number, which is NaN in fp8.
    scaled = (x / scale[..., None]).clamp(-cache_format.largest, cache_format.largest)
    if cache_format.dtype == torch.int8:
        scaled = scaled.round()
    return scaled.to(cache_format.dtype), scale


def dequantize(stored: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Inverse of `quantize`, up to rounding: fp32, of `stored`'s shape."""
    return stored.float() * scale[..., None]


def raw(cache: torch.Tensor) -> torch.Tensor:
    """The cache as a kernel takes it: fp8 as its bytes. Triton has conversions of e4m3 from sm_89 on only;
    taken apart by hand it works on every GPU, and in the interpreter."""
    return cache.view(torch.int8) if cache.dtype == torch.float8_e4m3fn else cache
