"""Comparisons for rules: each says, when it does not hold, what a reader needs to see.

Tensors are compared by kind, then shape, then dtype, then value, so that the first thing wrong is the
thing that is named; of the values only the first that differs is shown.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from .rules import Broken, shorten


def same(called: str, got: Any, want: Any, hint: str = "") -> None:
    """Equal plain values: numbers, lists, None."""
    if type(got) is not type(want) or got != want:
        raise Broken(called, show(got), show(want), hint)


def close(called: str, got: Any, want: torch.Tensor, hint: str = "", tolerance: float = 1e-4) -> None:
    """A tensor of the same shape and dtype as `want`, and its values within `tolerance` (absolute, or
    relative for values above 1)."""
    if not isinstance(got, torch.Tensor):
        raise Broken(called, f"{show(got)}", f"a tensor {list(want.shape)}", hint)
    if got.shape != want.shape:
        raise Broken(called, f"shape {list(got.shape)}", f"shape {list(want.shape)}", hint)
    if got.dtype != want.dtype:
        raise Broken(called, str(got.dtype), str(want.dtype), hint)
    difference = (got.double() - want.double()).abs() / want.double().abs().clamp(min=1)
    wrong = ~(difference <= tolerance)  # true for NaN too
    if wrong.any():
        index = wrong.nonzero()[0].tolist()
        place = f"[{', '.join(map(str, index))}]"
        raise Broken(
            called,
            f"{got[tuple(index)].item():.4f} at {place}",
            f"{want[tuple(index)].item():.4f} there ({int(wrong.sum())} of {want.numel()} values differ)",
            hint,
        )


def refuses(called: str, action: Callable[[], Any], hint: str = "") -> None:
    """The action must raise `ValueError`."""
    try:
        got = action()
    except ValueError:
        return
    except IndexError as error:
        raise Broken(called, f"IndexError: {error}", "ValueError", hint) from None
    except RuntimeError as error:
        raise Broken(called, f"RuntimeError: {shorten(str(error))}", "ValueError", hint) from None
    raise Broken(called, "no exception" if got is None else show(got), "ValueError", hint)


def random_tensor(rng: random.Random, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normally distributed, the same for the same `rng` on every machine."""
    generator = torch.Generator().manual_seed(rng.getrandbits(60))
    return torch.randn(*shape, generator=generator).to(dtype)


def show(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, list | tuple) and any(isinstance(item, torch.Tensor) for item in value):
        return f"a {type(value).__name__} of {', '.join(show(item) for item in value)}"
    return shorten(repr(value))
