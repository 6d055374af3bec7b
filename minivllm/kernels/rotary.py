"""rotary: rotate queries and keys to their positions, in place of two halves of each head.

One program a token, all of its heads: the angles of a position are loaded once. Element i of the first
half and element i of the second are a pair, as in Llama's checkpoints. (RoPE: Su et al., 2021.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def rotary_kernel(
    x,
    cos,
    sin,
    out,
    x_stride,
    NUM_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    PAD: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS_PAD)[:, None]
    column = tl.arange(0, PAD)[None, :]
    inside = (head < NUM_HEADS) & (column < HALF)
    angle = token * 2 * HALF + column
    c = tl.load(cos + angle, mask=column < HALF, other=0.0).to(tl.float32)
    s = tl.load(sin + angle, mask=column < HALF, other=0.0).to(tl.float32)
    source = x + token * x_stride + head * 2 * HALF + column
    first = tl.load(source, mask=inside, other=0.0)
    second = tl.load(source + HALF, mask=inside, other=0.0)
    target = out + (token * NUM_HEADS + head) * 2 * HALF + column
    a, b = first.to(tl.float32), second.to(tl.float32)
    tl.store(target, (a * c - b * s).to(first.dtype), mask=inside)
    tl.store(target + HALF, (b * c + a * s).to(first.dtype), mask=inside)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x: [num_tokens, num_heads, head_dim], each token's heads contiguous; cos, sin: [num_tokens,
    head_dim], the second half equal to the first → x's shape."""
    num_tokens, num_heads, head_dim = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    heads_pad, pad = triton.next_power_of_2(num_heads), triton.next_power_of_2(head_dim // 2)
    rotary_kernel[(num_tokens,)](
        x, cos, sin, out, x.stride(0), NUM_HEADS=num_heads, HALF=head_dim // 2,
        HEADS_PAD=heads_pad, PAD=pad, num_warps=num_warps(heads_pad * pad),
    )  # fmt: skip
    return out


def num_warps(pairs: int) -> int:
    """So many that a thread turns at most 16 pairs."""
    return min(16, max(4, pairs // 512))


def rotary_reference(x, cos, sin):
    """The same in torch."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (x.float() * cos.float()[:, None] + turned * sin.float()[:, None]).to(x.dtype)
