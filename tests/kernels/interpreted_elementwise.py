"""The kernels between attention and the matrix products, against float64 and, where bits count, torch."""

import pytest
import torch

from minivllm.kernels.cache_formats import FORMATS, quantize
from minivllm.kernels.quantized import store_quantized_reference
from minivllm.kernels.rms_norm import rms_norm, rms_norm_reference
from minivllm.kernels.rotary import rotary, rotary_reference
from minivllm.kernels.silu_mul import silu_mul, silu_mul_reference
from minivllm.kernels.store_kv import store_kv, store_kv_reference
from tests.kernels.batches import TOLERANCE, error

pytestmark = pytest.mark.usefixtures("poisoned")
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


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
@pytest.mark.parametrize("size", [1, 80, 576, 4096])
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
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
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


def trying_numbers(dtype):
    """Heads of 80 numbers at many scales: all of fp8's, halves between them, zeros, the least and the
    largest."""
    torch.manual_seed(0)
    x = torch.randn(40, 3, 80) * torch.logspace(-4, 4, 40)[:, None, None]
    codes = torch.arange(0x7F, dtype=torch.int8).view(torch.float8_e4m3fn).float()
    halves = (codes[1:] + codes[:-1]) / 2
    x[0].view(-1)[:127], x[1].view(-1)[:126] = codes, halves
    x[0, :, 0] = x[1, :, 0] = 448  # so that the scale is 1
    x[2], x[3, 0] = 0, 1e-30
    x[4] = torch.arange(240).view(3, 80) - 120.5
    return x.to(dtype)


@DTYPES
@pytest.mark.parametrize("cache", ["fp8", "int8"])
def test_store_kv_rounds_to_8_bits_as_torch_does(dtype, cache):
    form, k = FORMATS[cache], trying_numbers(dtype)
    v, slots = -k.flip(0), torch.randperm(48)[: len(k)]

    def caches():
        stored = torch.full((2, 16, 3, 3, 80), 5, dtype=torch.int8).view(form.dtype)
        return [*stored, *torch.full((2, 16, 3, 3), 7.0)]

    ours, expected = caches(), caches()
    store_kv(k, v, ours[0], ours[1], slots, ours[2], ours[3])
    store_quantized_reference(k, v, expected[0], expected[1], slots, expected[2], expected[3])
    assert all(torch.equal(a.float(), b.float()) for a, b in zip(ours, expected, strict=True))
    assert torch.equal(ours[0].float().flatten(0, 1)[slots], quantize(k, form)[0].float())
