"""`triton` and `tl` for a lab, whatever the system: compiled, interpreted, or not there.

With a CUDA device kernels are compiled. Without one they run in Triton's interpreter, which has to be
chosen before triton is imported, so this file does both. Where triton has no wheel (macOS, Windows) two
stand-ins let a notebook define its kernels; launching one raises `RuntimeError`, and the lab's parts are
functions in torch.
"""

from __future__ import annotations

import os
from typing import Any

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

try:
    import triton
    import triton.language as tl

    HERE = True
except ImportError:
    HERE = False

    class _StandIn:
        """Answers every name, so that `tl.constexpr` can stand in a signature."""

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return _StandIn()

        def jit(self, function: Any) -> _StandIn:
            return _StandIn()

        def __getitem__(self, grid: Any) -> Any:
            raise RuntimeError("triton is not installed on this system, so no kernel can be launched")

    triton = tl = _StandIn()

__all__ = ["HERE", "tl", "triton"]
