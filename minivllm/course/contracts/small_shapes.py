"""Models as a few numbers, machines too, and what a forward over them costs, counted on its own.

The contracts of lab 00 hand these plain objects to a part: numbers with names, and nothing to call, so
that a part computes from them and asks nobody. All sizes differ, so that a mix-up shows.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from .expect import show
from .rules import Broken

Numbers = SimpleNamespace

SIZES = ("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim")


def shape(**changes: int) -> Numbers:
    """A small grouped-query model whose heads together are not as wide as its hidden state."""
    sizes = dict(
        num_layers=3,
        hidden_size=40,
        intermediate_size=56,
        num_heads=6,
        num_kv_heads=2,
        head_dim=16,
        vocab_size=100,
    )
    return Numbers(**{**sizes, **changes})


def large_shape(**changes: int) -> Numbers:
    """The 80-layer model of claim C2 (Llama 3, 70 B)."""
    sizes = dict(
        num_layers=80,
        hidden_size=8192,
        intermediate_size=28672,
        num_heads=64,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=128256,
    )
    return Numbers(**{**sizes, **changes})


def random_shape(rng: random.Random) -> Numbers:
    kv_heads = rng.randint(1, 4)
    return shape(
        num_layers=rng.randint(2, 9),
        hidden_size=8 * rng.randint(3, 20),
        intermediate_size=8 * rng.randint(21, 60),
        num_heads=kv_heads * rng.randint(2, 5),
        num_kv_heads=kv_heads,
        head_dim=2 * rng.randint(3, 20),
        vocab_size=rng.randint(500, 900),
    )


def machine(flops: float, bandwidth: float, memory: int = 10**9) -> Numbers:
    return Numbers(name="a small machine", flops=flops, bandwidth=bandwidth, memory=memory)


def lent(numbers: Numbers) -> Numbers:
    """A copy for the part. What it writes there changes nothing of what is expected."""
    return Numbers(**vars(numbers))


def describe(cfg: Numbers) -> str:
    """Its sizes in a line, to follow a call."""
    sizes = ", ".join(f"{name} {getattr(cfg, name)}" for name in SIZES)
    return f"cfg: {sizes}, vocab_size {cfg.vocab_size}"


def flops_of(cfg: Numbers, num_tokens: int, context_len: int, batch: int = 1) -> int:
    """Matrix products of a layer for a token, keys seen by each query, the output layer once a request."""
    wide, narrow = cfg.num_heads * cfg.head_dim, cfg.num_kv_heads * cfg.head_dim
    products = [(cfg.hidden_size, wide), (cfg.hidden_size, narrow), (cfg.hidden_size, narrow)]
    products += [(wide, cfg.hidden_size)]
    products += [(cfg.hidden_size, cfg.intermediate_size)] * 2 + [(cfg.intermediate_size, cfg.hidden_size)]
    token = sum(2 * rows * columns for rows, columns in products)
    first = context_len - num_tokens + 1
    keys = (first + context_len) * num_tokens // 2
    request = cfg.num_layers * (num_tokens * token + 2 * 2 * wide * keys)
    return batch * (request + 2 * cfg.hidden_size * cfg.vocab_size)


def bytes_of(cfg: Numbers, num_tokens: int, context_len: int, dtype_bytes: int, batch: int = 1) -> int:
    """Weights once; for each request the new tokens' keys and values, and those of its context."""
    wide, narrow = cfg.num_heads * cfg.head_dim, cfg.num_kv_heads * cfg.head_dim
    layer = cfg.hidden_size * (2 * wide + 2 * narrow + 3 * cfg.intermediate_size)
    kv = 2 * narrow * (num_tokens + context_len)
    return dtype_bytes * (cfg.num_layers * (layer + batch * kv) + cfg.hidden_size * cfg.vocab_size)


def pair(called: str, got: Any, what: str) -> tuple[float, float]:
    """Two numbers, or `Broken`."""
    if not isinstance(got, tuple | list) or len(got) != 2 or not all(is_number(x) for x in got):
        raise Broken(called, show(got), f"a pair of numbers: {what}")
    return got[0], got[1]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(called: str, got: Any, want: float, unit: str = "", hint: str = "") -> None:
    """The same number, up to rounding in the last digits."""
    if not is_number(got) or not abs(got - want) <= 1e-9 * abs(want):
        raise Broken(called, f"{write(got)}{unit}", f"{write(want)}{unit}", hint)


def write(value: Any) -> str:
    if not is_number(value):
        return show(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
