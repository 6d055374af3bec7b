"""What a decoder does between its matrix products, on kernels: norm, rotation, gate.

A decoder's own operations are torch's (`model.layers.TorchOps`); an engine that runs on kernels sets these in
their place. Each reads its input once and writes its result once, where torch takes several passes over
memory, and adding to the residual stream goes along with the norm that follows. `functions` are kernels by
name, a reader's own among them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


class KernelOps:
    """`TorchOps` on kernels. The norm of single heads that Qwen3 has is no part of it."""

    def __init__(self, functions: dict[str, Callable]) -> None:
        self._rms_norm = functions["rms_norm"]
        self._rotary = functions["rotary"]
        self.silu_mul = functions["silu_mul"]

    def cos_sin(
        self, positions: torch.Tensor, frequencies: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin as `rotary` wants them: [num_tokens, head_dim], both halves equal."""
        angles = positions.float()[:, None] * frequencies
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), dim=-1).to(dtype), torch.cat((sin, sin), dim=-1).to(dtype)

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return self._rotary(x, cos, sin)

    def add_norm(
        self, x: torch.Tensor, update: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x, update: [num_tokens, hidden_size] → (norm of x + update, x + update). Without an update, x."""
        if update is None:
            return self._rms_norm(x, weight, eps)
        return self._rms_norm(update, weight, eps, x)
