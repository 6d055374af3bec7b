"""Every kernel against float64, on ragged batches with garbage wherever nothing may be read.

The error is max|Δ| / max|reference|: at most 2e-6 in fp32, 2e-3 in fp16, 1e-2 in bf16.
"""

import random

import pytest
import torch

from minivllm.kernels.paged_decode import paged_decode, paged_decode_reference
from minivllm.kernels.paged_prefill import paged_prefill, paged_prefill_reference
from minivllm.kernels.rms_norm import rms_norm, rms_norm_reference
from minivllm.kernels.rotary import rotary, rotary_reference
from minivllm.kernels.silu_mul import silu_mul, silu_mul_reference
from minivllm.kernels.store_kv import store_kv, store_kv_reference
from tests.attention.test_paged import spec

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def error(out, expected):
    assert not out.isnan().any()
    return ((out.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


def batch(
    rng, dtype, head_dim, group, block_size, longest=300, most_queries=40, num_kv_heads=2, decode=False
):
    """A ragged batch; blocks are permuted, slots that hold no token hold NaN."""
    torch.manual_seed(rng.randrange(10**6))
    contexts = [rng.randint(1, longest) for _ in range(2)]
    queries = [1 if decode else rng.randint(1, min(c, most_queries)) for c in contexts]
    widest = max(-(-c // block_size) for c in contexts)
    num_blocks = 2 * widest + 1
    free = rng.sample(range(num_blocks), num_blocks)
    cache = torch.full((2, num_blocks, block_size, num_kv_heads, head_dim), float("nan"), dtype=dtype)
    tables = torch.full((2, widest), -1)
    q, expected = [], []
    for i, (context, n) in enumerate(zip(contexts, queries, strict=True)):
        blocks = torch.tensor([free.pop() for _ in range(-(-context // block_size))])
        kv = torch.randn(2, context, num_kv_heads, head_dim).to(dtype)
        position = torch.arange(context)
        cache[:, blocks[position // block_size], position % block_size] = kv
        tables[i, : len(blocks)] = blocks
        q.append(torch.randn(n, num_kv_heads * group, head_dim).to(dtype))
        expected.append(spec(q[-1].double(), kv[0].double(), kv[1].double()))
    return torch.cat(q), cache, tables, torch.tensor(contexts), torch.tensor(queries), torch.cat(expected)


@DTYPES
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("group", [1, 3, 8])
def test_paged_decode(dtype, head_dim, group):
    rng = random.Random(f"{dtype} {head_dim} {group}")
    block_size = rng.choice([1, 3, 16, 256])
    q, cache, tables, contexts, _, expected = batch(rng, dtype, head_dim, group, block_size, decode=True)
    for split in (512, 64):
        out = paged_decode(q, cache[0], cache[1], tables, contexts, int(contexts.max()), split)
        assert error(out, expected) < TOLERANCE[dtype], (block_size, split)
    reference = paged_decode_reference(q, cache[0], cache[1], tables, contexts, int(contexts.max()))
    assert error(reference, expected) < TOLERANCE[dtype]


@DTYPES
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("group", [1, 3, 8])
def test_paged_prefill(dtype, head_dim, group):
    rng = random.Random(f"{dtype} {head_dim} {group}")
    q, cache, tables, contexts, queries, expected = batch(
        rng, dtype, head_dim, group, rng.choice([1, 3, 16, 256]), longest=120, num_kv_heads=1
    )
    start = torch.tensor([0, int(queries[0]), int(queries.sum())])
    out = paged_prefill(
        q, cache[0], cache[1], tables, start, queries, contexts, int(queries.max()), int(contexts.max())
    )
    assert error(out, expected) < TOLERANCE[dtype]
    reference = paged_prefill_reference(q, cache[0], cache[1], tables, start, queries, contexts, 0, 0)
    assert error(reference, expected) < TOLERANCE[dtype]


@DTYPES
def test_store_kv_writes_its_slots_and_no_others(dtype):
    torch.manual_seed(0)
    qkv = torch.randn(5, 9, 24).to(dtype)  # strided views, as the fused projection gives them
    k, v = qkv[:, 3:6], qkv[:, 6:9]
    slots = torch.tensor([7, 0, 13, 14, 2])
    caches = [torch.full((4, 4, 3, 24), 7.0, dtype=dtype) for _ in range(4)]
    store_kv(k, v, caches[0], caches[1], slots)
    store_kv_reference(k, v, caches[2], caches[3], slots)
    assert torch.equal(caches[0], caches[2]) and torch.equal(caches[1], caches[3])


@DTYPES
@pytest.mark.parametrize("size", [1, 80, 576])
@pytest.mark.parametrize("with_residual", [False, True])
def test_rms_norm(dtype, size, with_residual):
    torch.manual_seed(size)
    x, weight = torch.randn(3, size).to(dtype), torch.rand(size).to(dtype) + 0.5
    residual = torch.randn(3, size).to(dtype) if with_residual else None
    out, added = rms_norm(x, weight, 1e-5, residual)
    expected, expected_added = rms_norm_reference(
        x.double(), weight.double(), 1e-5, residual.double() if with_residual else None
    )
    assert error(out, expected) < TOLERANCE[dtype] and error(added, expected_added) < TOLERANCE[dtype]


@DTYPES
@pytest.mark.parametrize("head_dim", [64, 80, 96])
def test_rotary(dtype, head_dim):
    torch.manual_seed(head_dim)
    x = torch.randn(4, 7, head_dim).to(dtype)[:, 1:6]
    angles = torch.rand(4, head_dim // 2).repeat(1, 2) * 6
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    expected = rotary_reference(x.double(), cos.double(), sin.double())
    assert error(rotary(x, cos, sin), expected) < TOLERANCE[dtype]


@DTYPES
@pytest.mark.parametrize("size", [3, 1024, 1536])
def test_silu_mul(dtype, size):
    torch.manual_seed(size)
    gate_up = torch.randn(2, 2 * size).to(dtype) * 4
    assert error(silu_mul(gate_up), silu_mul_reference(gate_up.double())) < TOLERANCE[dtype]
