"""Ragged batches for attention kernels, with garbage wherever nothing may be read, and the error of a result.

The error is max|Δ| / max|reference| against float64: at most 2e-6 in fp32, 2e-3 in fp16, 1e-2 in bf16.
"""

from dataclasses import dataclass

import torch

from minivllm.kernels.cache_formats import FORMATS, dequantize, quantize, raw
from tests.attention.test_paged import spec

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}
HEAD_DIMS = (64, 80, 96, 128, 256)
GROUPS = (1, 3, 8)
BLOCK_SIZES = (1, 3, 16, 256)


def error(out, expected):
    assert not out.isnan().any()
    return ((out.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


@dataclass
class Batch:
    """Tensors as the kernels take them, and `expected`, in float64."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    tables: torch.Tensor
    starts: torch.Tensor
    queries: torch.Tensor
    contexts: torch.Tensor
    expected: torch.Tensor
    scales: dict[str, torch.Tensor]

    def decode(self, function, split=512):
        longest = int(self.contexts.max())
        return function(
            self.q, self.k_cache, self.v_cache, self.tables, self.contexts, longest, split, **self.scales
        )

    def prefill(self, function):
        longest = int(self.queries.max()), int(self.contexts.max())
        caches = self.k_cache, self.v_cache, self.tables
        return function(self.q, *caches, self.starts, self.queries, self.contexts, *longest, **self.scales)


def batch(rng, dtype, head_dim, group, block_size, contexts, queries, num_kv_heads=1, cache=""):
    """Request i has contexts[i] tokens, the last queries[i] of them new. Blocks are permuted; slots that
    hold no token hold NaN, or a large number of an 8-bit format with a scale of NaN; tables end in −1."""
    torch.manual_seed(rng.randrange(10**6))
    widest = max(-(-c // block_size) for c in contexts)
    num_blocks = len(contexts) * widest + 1
    free = rng.sample(range(num_blocks), num_blocks)
    shape = (2, num_blocks, block_size, num_kv_heads, head_dim)
    form = FORMATS[cache]
    if cache:
        stored = torch.full(shape, 0x7E, dtype=torch.int8).view(form.dtype)
        scales = torch.full(shape[:-1], float("nan"))
    else:
        stored = torch.full(shape, float("nan"), dtype=dtype)
    tables = torch.full((len(contexts), widest), -1)
    q, expected = [], []
    for i, (context, n) in enumerate(zip(contexts, queries, strict=True)):
        blocks = torch.tensor([free.pop() for _ in range(-(-context // block_size))])
        position = torch.arange(context)
        block, offset = blocks[position // block_size], position % block_size
        kv = torch.randn(2, context, num_kv_heads, head_dim).to(dtype)
        if cache:
            # Values of any size. Not keys: with scores in the hundreds fp32's exp is no better than 1e-5.
            kv[1] *= rng.choice([0.01, 1, 30])
            numbers, scale = quantize(kv, form)
            raw(stored)[:, block, offset], scales[:, block, offset] = raw(numbers), scale
            kv = dequantize(numbers.double(), scale.double())
        else:
            stored[:, block, offset] = kv
        tables[i, : len(blocks)] = blocks
        # Rows are strided, as in the fused projection of q, k and v.
        q.append(torch.randn(n, num_kv_heads * group + 2, head_dim).to(dtype)[:, : num_kv_heads * group])
        expected.append(spec(q[-1].double(), kv[0].double(), kv[1].double()))
    strided = torch.randn(sum(queries), num_kv_heads * group + 2, head_dim).to(dtype)
    strided[:, : num_kv_heads * group] = torch.cat(q)
    lengths = torch.tensor(queries)
    return Batch(
        strided[:, : num_kv_heads * group], stored[0], stored[1], tables,
        torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]), lengths, torch.tensor(contexts),
        torch.cat(expected), {"k_scale": scales[0], "v_scale": scales[1]} if cache else {},
    )  # fmt: skip
