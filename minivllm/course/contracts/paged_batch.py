"""A ragged batch for kernels: `Batch` of exercise 2.4, its arguments in the order that each kernel takes.

The caches lie between two blocks of NaN, so that a kernel that reads past their ends, as wrong offsets do,
gives a wrong number more often than it ends the process. `want` is what each row of q must become.
"""

from __future__ import annotations

from itertools import accumulate

import torch

from .expect import close
from .paged_attention import NAN, Batch
from .rules import Broken
from .tiny_model import attention_by_heads

NAMES = ("q", "k_cache", "v_cache", "block_tables", "context_lens")


class KernelBatch(Batch):
    """`requests` is a list of (context length, new tokens). Unused slots hold NaN unless told otherwise."""

    def __init__(self, rng, requests, block_size=4, heads=2, kv_heads=1, dim=8, garbage=NAN, width=0):
        super().__init__(rng, requests, block_size, heads, kv_heads, dim, garbage, width)
        self.k_cache, self.v_cache = (_between_nan(cache) for cache in (self.k_cache, self.v_cache))
        self.contexts = [context for context, _ in requests]
        self.sizes = f"block_size {block_size}, {heads} heads, {kv_heads} KV heads, head_dim {dim}"

    @property
    def shared(self) -> list[torch.Tensor]:
        return [self.q, self.k_cache, self.v_cache, self.block_tables]

    def decode(self, *more) -> list:
        """For paged_decode, and with `split` behind it for paged_decode_split."""
        return [*self.shared, self.context_lens, max(self.contexts), *more]

    def prefill(self) -> list:
        start = torch.tensor([0, *accumulate(self.queries)])
        longest = max(self.queries), max(self.contexts)
        return [*self.shared, start, self.query_lens, self.context_lens, *longest]

    def to(self, dtype: torch.dtype) -> KernelBatch:
        """Its tensors in another dtype; what is wanted is that of the rounded numbers, within a tolerance."""
        self.q, self.k_cache, self.v_cache = (x.to(dtype) for x in (self.q, self.k_cache, self.v_cache))
        self.want = self.want.to(dtype)
        return self


def expected(batch: KernelBatch) -> torch.Tensor:
    """What each row of q must become, in float64 from the caches as they are now."""
    rows, size = [], batch.k_cache.shape[1]
    for table, context, n in zip(batch.block_tables, batch.contexts, batch.queries, strict=True):
        blocks = table[: -(-context // size)]
        k, v = (cache[blocks].flatten(0, 1)[:context].double() for cache in (batch.k_cache, batch.v_cache))
        for seen in range(context - n + 1, context + 1):
            rows.append(attention_by_heads(batch.q[len(rows)].double(), k[:seen], v[:seen]))
    return torch.stack(rows).to(batch.q.dtype)


def scores_far_from_zero(part, name: str, batch: KernelBatch, arguments) -> None:
    """Scores of hundreds, then all of them far below 0: what is masked has no score of 0 that could be the
    largest. `arguments` is a function, asked after the batch has changed."""
    batch.q = batch.q * 400
    want = expected(batch)
    close(f"q times 400: {call(name, batch)}", part(*arguments()), want, tolerance=1e-3)
    batch.q = torch.full_like(batch.q, 10.0)
    batch.k_cache.copy_(0.1 * batch.k_cache - 10)
    want = expected(batch)
    close(f"every score below −200: {call(name, batch)}", part(*arguments()), want, tolerance=1e-3)


def check(part, name: str, batch: KernelBatch, arguments: list, note: str = "", tolerance=1e-4) -> None:
    """Call the part on the batch and compare."""
    close(f"{note}{call(name, batch)}", part(*arguments), batch.want, tolerance=tolerance)


def call(name: str, batch: KernelBatch) -> str:
    tables = batch.block_tables.tolist()
    news = "" if set(batch.queries) == {1} else f", query_lens={batch.queries}"
    return f"{name}(…, block_tables={tables}, context_lens={batch.contexts}{news}), {batch.sizes}"


def left_alone(part, name: str, batch: KernelBatch, arguments: list) -> None:
    """Nothing that the part was given has changed."""
    tensors = [x for x in arguments if isinstance(x, torch.Tensor)]
    copies = [x.clone() for x in tensors]
    part(*arguments)
    for number, (now, before) in enumerate(zip(tensors, copies, strict=True)):
        if not torch.equal(now.nan_to_num(), before.nan_to_num()):
            which = NAMES[number] if number < 4 else "one of the lengths"
            raise Broken(call(name, batch), f"{which} changed", f"{which} as it was")


def _between_nan(cache: torch.Tensor) -> torch.Tensor:
    blocks, *rest = cache.shape
    memory = torch.full((blocks + 2, *rest), NAN)
    memory[1:-1] = cache
    return memory[1:-1]
