"""silu_mul: silu(gate) · up, the activation of the MLP, on the fused output of gate and up.

Elementwise, so all that counts is to read and write once. One program takes one piece of a row.
(SwiGLU: Shazeer, 2020.)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

PIECE = 1024


@triton.jit
def silu_mul_kernel(gate_up, out, SIZE: tl.constexpr, PIECE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    inside = column < SIZE
    gate = tl.load(gate_up + row * 2 * SIZE + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * SIZE + SIZE + column, mask=inside, other=0.0).to(tl.float32)
    activated = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * SIZE + column, activated.to(out.dtype.element_ty), mask=inside)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up: [num_rows, 2 · size], contiguous, the gate first → [num_rows, size]."""
    num_rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(num_rows, size, dtype=gate_up.dtype, device=gate_up.device)
    piece = min(PIECE, triton.next_power_of_2(size))
    silu_mul_kernel[(num_rows, triton.cdiv(size, piece))](gate_up, out, SIZE=size, PIECE=piece)
    return out


def silu_mul_reference(gate_up):
    """The same in torch."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up
