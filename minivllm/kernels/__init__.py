"""Triton kernels, one a file, each with the torch function that it must equal beside it.

On a GPU they are compiled; with TRITON_INTERPRET=1 in the environment (before Python starts) the same
source runs on CPU tensors, slowly and exactly, which is how they are tested here. Only triton's public API
is used. `load()` is where the rest of the package meets triton, so that it imports without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module, util

# Kernel name → module and wrapper. A reader's own functions may stand in for any of them.
KERNELS = {
    "store_kv": "store_kv",
    "rms_norm": "rms_norm",
    "rotary": "rotary",
    "silu_mul": "silu_mul",
    "paged_decode": "paged_decode",
    "paged_prefill": "paged_prefill",
}


def interpreting() -> bool:
    """True if kernels run in Triton's interpreter, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def why_not(device_type: str) -> str | None:
    """Why kernels cannot run on this device, with the way out; None if they can."""
    if util.find_spec("triton") is None:
        return "triton is not installed (it has no wheel for this system); use attention_backend='paged'"
    if device_type != "cuda" and not interpreting():
        return (
            f"Triton kernels do not run on {device_type}; use attention_backend='paged', or set "
            "TRITON_INTERPRET=1 before Python starts, to run them slowly in Triton's interpreter"
        )
    return None


def load(own: dict[str, Callable] | None = None) -> dict[str, Callable]:
    """{kernel name: function}, `own` taking precedence. `ValueError` for a name that is no kernel."""
    own = own or {}
    unknown = sorted(own.keys() - KERNELS.keys())
    if unknown:
        raise ValueError(f"there is no kernel {unknown[0]!r}; the kernels are {', '.join(KERNELS)}")
    return {
        name: own.get(name) or getattr(import_module(f"minivllm.kernels.{module}"), name)
        for name, module in KERNELS.items()
    }
