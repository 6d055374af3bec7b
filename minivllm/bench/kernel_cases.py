"""The kernel benchmark's cases: what is run, on which tensors, beside which other implementations.

Shapes are those of Llama-3-8B, so that a row says something about a model people serve. A case counts its
work before it makes a tensor, so rows that do not fit into the GPU's memory are left out by name.
Tensors hold random numbers and the block tables are permuted: zeros and neighbouring blocks flatter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from . import kernel_work as work
from .kernel_work import Heads, Work

BLOCK_SIZE = 16
# Every implementation's name → a function of nothing that computes the same; minivllm's own is the first.
Actions = dict[str, Callable[[], Any]]

# (batch, context): one request, a mid batch and a large one; 64 × 4,096 is the row that the project aims at.
DECODE_SHAPES = (
    (1, 128), (1, 4096), (1, 32768), (8, 1024), (64, 128), (64, 1024), (64, 4096), (64, 32768),
    (256, 128), (256, 4096),
)  # fmt: skip
# (number of chunks, new tokens of each, context of each)
PREFILL_SHAPES = ((1, 512, 512), (1, 2048, 2048), (4, 512, 4096), (1, 2048, 32768))
TOKENS = (64, 8192)


@dataclass(frozen=True)
class Case:
    """`make(device, dtype, kernels)` → `Actions`; `memory` is bytes of all its tensors, roughly."""

    kernel: str
    shape: dict[str, int]
    work: Work
    memory: int
    make: Callable[[torch.device, torch.dtype, dict[str, Callable]], Actions]


def cases(
    itemsize: int,
    heads: Heads | None = None,
    decode_shapes=DECODE_SHAPES,
    prefill_shapes=PREFILL_SHAPES,
    tokens=TOKENS,
) -> Iterator[Case]:
    """All cases for numbers of `itemsize` bytes."""
    heads = heads or Heads()
    for batch, context in decode_shapes:
        yield _attention_case("paged_decode", [(1, context)] * batch, heads, itemsize)
    for num_chunks, num_tokens, context in prefill_shapes:
        yield _attention_case("paged_prefill", [(num_tokens, context)] * num_chunks, heads, itemsize)
    for kernel, make in (
        ("store_kv", _store_kv),
        ("rms_norm", _rms_norm),
        ("rotary", _rotary),
        ("silu_mul", _silu_mul),
    ):
        for num_tokens in tokens:
            size = getattr(work, kernel)(num_tokens, heads, itemsize)
            yield Case(
                kernel,
                {"num_tokens": num_tokens},
                size,
                3 * size.num_bytes,
                lambda *args, make=make, num_tokens=num_tokens: make(num_tokens, heads, *args),
            )


def _attention_case(kernel: str, chunks: list[tuple[int, int]], heads: Heads, itemsize: int) -> Case:
    num_tokens, context = chunks[0]
    size = work.attention(chunks, heads, itemsize, BLOCK_SIZE)
    shape = {"num_seqs": len(chunks), "query_len": num_tokens, "context_len": context}
    # The cache, a second one laid out for the peers, and the copy in between.
    return Case(
        kernel,
        shape,
        size,
        3 * size.num_bytes,
        lambda *args: _attention(len(chunks), *chunks[0], heads, *args),
    )


def _attention(num_seqs: int, num_tokens: int, context: int, heads: Heads, device, dtype, kernels) -> Actions:
    from . import kernel_peers

    per_seq = -(-context // BLOCK_SIZE)
    shape = (2, num_seqs * per_seq, BLOCK_SIZE, heads.num_kv_heads, heads.head_dim)
    cache = torch.empty(shape, dtype=dtype, device=device).normal_()
    k_cache, v_cache = cache
    tables = torch.randperm(num_seqs * per_seq, device=device).view(num_seqs, per_seq)
    q = torch.randn(num_seqs * num_tokens, heads.num_heads, heads.head_dim, dtype=dtype, device=device)
    lengths = torch.full((num_seqs,), num_tokens, device=device)
    contexts = torch.full((num_seqs,), context, device=device)
    starts = torch.arange(num_seqs + 1, device=device) * num_tokens
    if num_tokens == 1:

        def ours():
            return kernels["paged_decode"](q, k_cache, v_cache, tables, contexts, context)
    else:

        def ours():
            return kernels["paged_prefill"](
                q, k_cache, v_cache, tables, starts, lengths, contexts, num_tokens, context
            )

    return {"minivllm": ours, **kernel_peers.attention(q, k_cache, v_cache, tables, num_tokens, context)}


def _store_kv(num_tokens: int, heads: Heads, device, dtype, kernels) -> Actions:
    row = (heads.num_kv_heads, heads.head_dim)
    k, v = torch.randn(2, num_tokens, *row, dtype=dtype, device=device)
    caches = torch.zeros(2, 2, 2 * num_tokens, 1, *row, dtype=dtype, device=device)
    slots = torch.randperm(2 * num_tokens, device=device)[:num_tokens]

    def ours():
        kernels["store_kv"](k, v, caches[0, 0], caches[0, 1], slots)
        return caches[0]

    def in_torch():
        caches[1, 0].flatten(0, 1).index_copy_(0, slots, k)
        caches[1, 1].flatten(0, 1).index_copy_(0, slots, v)
        return caches[1]

    return {"minivllm": ours, "torch": in_torch}


def _rms_norm(num_tokens: int, heads: Heads, device, dtype, kernels) -> Actions:
    x, residual = torch.randn(2, num_tokens, heads.hidden_size, dtype=dtype, device=device)
    weight = torch.rand(heads.hidden_size, dtype=dtype, device=device) + 0.5
    return {
        "minivllm": lambda: kernels["rms_norm"](x, weight, 1e-5, residual)[0],
        "torch": lambda: F.rms_norm(x + residual, weight.shape, weight, 1e-5),
    }


def _rotary(num_tokens: int, heads: Heads, device, dtype, kernels) -> Actions:
    num_rotated = heads.num_heads + heads.num_kv_heads
    x = torch.randn(num_tokens, num_rotated, heads.head_dim, dtype=dtype, device=device)
    angles = torch.rand(num_tokens, heads.head_dim // 2, device=device).repeat(1, 2) * 6
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    first, second = sin.chunk(2, dim=-1)
    signed = torch.cat([-first, second], dim=-1)[:, None]

    def in_torch():
        return (x * cos[:, None]).add_(x.roll(heads.head_dim // 2, dims=-1).mul_(signed))

    return {"minivllm": lambda: kernels["rotary"](x, cos, sin), "torch": in_torch}


def _silu_mul(num_tokens: int, heads: Heads, device, dtype, kernels) -> Actions:
    gate_up = torch.randn(num_tokens, 2 * heads.intermediate_size, dtype=dtype, device=device)

    def in_torch():
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    return {"minivllm": lambda: kernels["silu_mul"](gate_up), "torch": in_torch}
