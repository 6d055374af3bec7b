"""rms_norm: root-mean-square norm of each row, with the residual addition before it fused in.

One program a row. Fusing saves one reading and one writing of the row, and a norm does little else.
(RMSNorm: Zhang and Sennrich, 2019.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(
    x,
    residual,
    weight,
    out,
    added,
    x_stride,
    eps,
    SIZE: tl.constexpr,
    PAD: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, PAD)
    inside = column < SIZE
    dtype = out.dtype.element_ty
    value = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        value += tl.load(residual + row * SIZE + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(added + row * SIZE + column, value.to(dtype), mask=inside)
        value = value.to(dtype).to(tl.float32)  # the norm is that of the rounded sum, as in torch
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / SIZE + eps)
    scaled = (value * scale).to(dtype).to(tl.float32)
    result = scaled * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * SIZE + column, result.to(dtype), mask=inside)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """x: [num_rows, size], rows contiguous; residual: [num_rows, size] or None; weight: [size]
    → (norm of x + residual, x + residual); without a residual the second is x itself."""
    num_rows, size = x.shape
    out = torch.empty(num_rows, size, dtype=x.dtype, device=x.device)
    added = x if residual is None else torch.empty_like(out)
    pad = triton.next_power_of_2(size)
    rms_norm_kernel[(num_rows,)](
        x, x if residual is None else residual, weight, out, added, x.stride(0), eps,
        SIZE=size, PAD=pad, HAS_RESIDUAL=residual is not None, num_warps=num_warps(pad),
    )  # fmt: skip
    return out, added


def num_warps(pad: int) -> int:
    """So many that a thread holds 16 numbers of a wide row."""
    return min(16, max(4, pad // 512))


def rms_norm_reference(x, weight, eps, residual=None):
    """The same in torch, rounded where transformers rounds."""
    added = x if residual is None else x + residual
    wide = added.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return scaled.to(x.dtype) * weight, added
