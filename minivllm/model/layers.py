"""The small functions between the matrix products: norm, rotary embedding, gate.

Each computes what transformers computes, operation for operation in fp32, because the engine's
tokens are compared with its tokens one by one. All act on rows independently: a row's result does
not depend on which other rows are in the batch. `TorchOps` is the set of them that a decoder calls.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from .config import RopeConfig


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Scale each row to a root mean square of 1, then by `weight`, which has x's last dimension or
    x's last two (one weight a head). (Zhang and Sennrich, 2019.)"""
    if weight.ndim == 1:
        return F.rms_norm(x, weight.shape, weight, eps)
    return F.rms_norm(x, weight.shape[-1:], None, eps) * weight


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up: [num_tokens, 2 · intermediate_size], gate first → silu(gate) · up."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def rotary_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Radians per position of each pair of a head's dimensions: [head_dim / 2], fp32. (RoPE: Su et
    al., 2021; "llama3" scaling: Llama 3.1, 2024.)"""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.type == "linear":
        return frequencies / rope.factor
    if rope.type == "llama3":
        return _stretch_low_frequencies(frequencies, rope)
    return frequencies


def _stretch_low_frequencies(frequencies: torch.Tensor, rope: RopeConfig) -> torch.Tensor:
    """A pair that turns less than `low_freq_factor` times over the original context is slowed down by
    `factor`; one that turns more than `high_freq_factor` times stays; between, a linear blend."""
    wavelengths = 2 * math.pi / frequencies
    length, low, high = rope.original_max_position_embeddings, rope.low_freq_factor, rope.high_freq_factor
    slowed = frequencies / rope.factor
    share_kept = (length / wavelengths - low) / (high - low)
    blend = (1 - share_kept) * slowed + share_kept * frequencies
    scaled = torch.where(wavelengths > length / low, slowed, blend)
    return torch.where(wavelengths < length / high, frequencies, scaled)


def rotary_cos_sin(
    positions: torch.Tensor, frequencies: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin for `rotate`: positions [num_tokens] → two tensors [num_tokens, 1, head_dim]; the
    first half of sin is negated. Computed from positions once a step, so there is no table whose
    length could limit the context."""
    angles = positions.float()[:, None, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1).to(dtype), torch.cat((-sin, sin), dim=-1).to(dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate pair (i, i + head_dim / 2) of each head by its angle. x: [num_tokens, heads, head_dim].
    Rolling by half a head swaps the pair, and the sign sits in `sin`."""
    return (x * cos).add_(x.roll(x.shape[-1] // 2, dims=-1).mul_(sin))


class TorchOps:
    """What a decoder does between its matrix products. `kernels.ops.KernelOps` does the same on kernels."""

    cos_sin = staticmethod(rotary_cos_sin)
    rotate = staticmethod(rotate)
    silu_mul = staticmethod(silu_mul)

    def add_norm(
        self, x: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, update: [num_tokens, hidden_size] → (norm of x + update, x + update). Without an update, x."""
        if update is not None:
            x = x + update
        return rms_norm(x, weight, eps), x
