"""What a kernel must move and compute at the least, and how near a measured time comes to that.

Every input is read once and every output written once; that is all that the roof knows (Williams et al.,
2009). Time at the roof is the longer of bytes / copy bandwidth and FLOPs / matmul peak, both measured on the
same device. Sizes are tokens and bytes. No torch here: the numbers can be checked by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..executor.cost import attention_pairs

INDEX_BYTES = 8  # slots and block ids are int64


@dataclass(frozen=True)
class Heads:
    """Shape of a model as its kernels see it; the default is Llama-3-8B's."""

    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    hidden_size: int = 4096
    intermediate_size: int = 14336


@dataclass(frozen=True)
class Work:
    num_bytes: int
    flops: int


@dataclass(frozen=True)
class Roofs:
    """bytes/s of a large copy (read and written), FLOP/s of a large matrix product."""

    bandwidth: float
    flops: float

    def achieved(self, work: Work, seconds: float) -> dict[str, Any]:
        """One measured time against the roof."""
        moving, computing = work.num_bytes / self.bandwidth, work.flops / self.flops
        return {
            "ms": seconds * 1e3,
            "gb_per_s": work.num_bytes / seconds / 1e9,
            "tflop_per_s": work.flops / seconds / 1e12,
            "bound": "memory" if moving >= computing else "compute",
            "percent_of_roof": 100 * max(moving, computing) / seconds,
        }


def store_kv(num_tokens: int, heads: Heads, itemsize: int) -> Work:
    row = heads.num_kv_heads * heads.head_dim * itemsize
    return Work(num_tokens * (4 * row + INDEX_BYTES), 0)


def rms_norm(num_tokens: int, heads: Heads, itemsize: int) -> Work:
    """With the residual: two rows read, two written, and the weight."""
    size = heads.hidden_size
    return Work((4 * num_tokens + 1) * size * itemsize, 4 * num_tokens * size)


def rotary(num_tokens: int, heads: Heads, itemsize: int) -> Work:
    """Queries and keys together, in and out, and the angles' cosines and sines."""
    num_rotated = heads.num_heads + heads.num_kv_heads
    numbers = num_tokens * heads.head_dim * (2 * num_rotated + 2)
    return Work(numbers * itemsize, 3 * num_tokens * heads.head_dim * num_rotated)


def silu_mul(num_tokens: int, heads: Heads, itemsize: int) -> Work:
    size = num_tokens * heads.intermediate_size
    return Work(3 * size * itemsize, 5 * size)


def attention(
    chunks: list[tuple[int, int]],
    heads: Heads,
    itemsize: int,
    block_size: int,
    kv_itemsize: int | None = None,
) -> Work:
    """Decode and prefill over a paged cache: `chunks` are (new tokens, context_len) of each request."""
    pairs = sum(attention_pairs(*chunk) for chunk in chunks)
    queries = sum(num_tokens for num_tokens, _ in chunks)
    keys = sum(context_len for _, context_len in chunks)
    blocks = sum(-(-context_len // block_size) for _, context_len in chunks)
    num_bytes = (
        2 * queries * heads.num_heads * heads.head_dim * itemsize
        + 2 * keys * heads.num_kv_heads * heads.head_dim * (kv_itemsize or itemsize)
        + blocks * INDEX_BYTES
    )
    return Work(num_bytes, 4 * heads.num_heads * heads.head_dim * pairs)
