"""The compiled kernels against float64, on the ragged batches that the interpreter gets, and larger ones."""

import random
from dataclasses import fields, replace

import pytest
import torch

pytest.importorskip("triton", reason="triton has no wheel for this system")

from minivllm.executor.device import FIRST_WITH_BF16  # noqa: E402
from minivllm.kernels import load  # noqa: E402
from minivllm.kernels.rms_norm import rms_norm_reference  # noqa: E402
from minivllm.kernels.rotary import rotary_reference  # noqa: E402
from minivllm.kernels.silu_mul import silu_mul_reference  # noqa: E402
from minivllm.kernels.store_kv import store_kv_reference  # noqa: E402
from tests.kernels.batches import TOLERANCE, batch, error  # noqa: E402

# head_dim, query heads of a KV head, block_size, format of the cache
SHAPES = [
    (64, 3, 16, ""), (80, 1, 3, ""), (96, 8, 1, ""), (128, 4, 16, ""), (128, 4, 256, ""), (256, 3, 16, ""),
    (128, 4, 16, "fp8"), (80, 3, 3, "fp8"), (64, 3, 16, "int8"), (256, 1, 16, "int8"),
]  # fmt: skip


@pytest.fixture(params=TOLERANCE, ids=str)
def dtype(request):
    if request.param == torch.bfloat16 and torch.cuda.get_device_capability() < FIRST_WITH_BF16:
        pytest.skip("this GPU has no bf16 arithmetic; the engine takes fp16 here")
    return request.param


@pytest.fixture(autouse=True)
def _same_numbers_each_time():
    torch.manual_seed(0)


def on_gpu(drawn):
    moved = {f.name: getattr(drawn, f.name) for f in fields(drawn)}
    scales = {name: scale.cuda() for name, scale in moved.pop("scales").items()}
    return replace(drawn, scales=scales, **{name: tensor.cuda() for name, tensor in moved.items()})


@pytest.mark.parametrize("head_dim,group,block_size,cache", SHAPES)
def test_paged_decode(dtype, head_dim, group, block_size, cache):
    rng = random.Random(f"{dtype} {head_dim} {block_size} {cache}")
    contexts = [rng.randint(1, 3000) for _ in range(5)]
    drawn = on_gpu(batch(rng, dtype, head_dim, group, block_size, contexts, [1] * 5, 2, cache))
    assert error(drawn.decode(load()["paged_decode"]), drawn.expected) < TOLERANCE[dtype]
    # Graphs are captured for contexts longer than any in the batch.
    caches = drawn.k_cache, drawn.v_cache, drawn.tables
    out = load()["paged_decode"](drawn.q, *caches, drawn.contexts, 4 * max(contexts), **drawn.scales)
    assert error(out, drawn.expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("head_dim,group,block_size,cache", SHAPES)
def test_paged_prefill(dtype, head_dim, group, block_size, cache):
    rng = random.Random(f"{dtype} {head_dim} {block_size} {cache}")
    contexts = [rng.randint(1, 1500) for _ in range(4)]
    queries = [rng.randint(1, min(400, context)) for context in contexts]
    drawn = on_gpu(batch(rng, dtype, head_dim, group, block_size, contexts, queries, 2, cache))
    assert error(drawn.prefill(load()["paged_prefill"]), drawn.expected) < TOLERANCE[dtype]


def test_store_kv_writes_its_slots_and_no_others(dtype):
    qkv = torch.randn(300, 24, 64, device="cuda").to(dtype)
    k, v = qkv[:, 8:16], qkv[:, 16:]
    slots = torch.randperm(1024, device="cuda")[:300]
    caches = [torch.full((64, 16, 8, 64), 7.0, dtype=dtype, device="cuda") for _ in range(4)]
    load()["store_kv"](k, v, caches[0], caches[1], slots)
    store_kv_reference(k, v, caches[2], caches[3], slots)
    assert torch.equal(caches[0], caches[2]) and torch.equal(caches[1], caches[3])


@pytest.mark.parametrize("size", [576, 4096])
@pytest.mark.parametrize("with_residual", [False, True])
def test_rms_norm(dtype, size, with_residual):
    x, residual = torch.randn(2, 70, size, device="cuda").to(dtype)
    weight = torch.rand(size, device="cuda").to(dtype) + 0.5
    residual = residual if with_residual else None
    out, added = load()["rms_norm"](x, weight, 1e-5, residual)
    # The norm is that of the sum as it is stored, so it is held against that, and the sum by itself.
    assert error(added, x.double() + residual.double() if with_residual else x) < TOLERANCE[dtype]
    expected, _ = rms_norm_reference(added.double(), weight.double(), 1e-5)
    assert error(out, expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("head_dim", [64, 80, 128])
def test_rotary(dtype, head_dim):
    x = torch.randn(70, 40, head_dim, device="cuda").to(dtype)[:, 1:33]
    angles = torch.rand(70, head_dim // 2, device="cuda").repeat(1, 2) * 6
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    expected = rotary_reference(x.double(), cos.double(), sin.double())
    assert error(load()["rotary"](x, cos, sin), expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("size", [3, 1536, 14336])
def test_silu_mul(dtype, size):
    gate_up = torch.randn(70, 2 * size, device="cuda").to(dtype) * 4
    assert error(load()["silu_mul"](gate_up), silu_mul_reference(gate_up.double())) < TOLERANCE[dtype]


def test_offsets_past_2_31_elements():
    """A cache whose last blocks lie behind the reach of 32-bit offsets."""
    block_size, num_kv_heads, head_dim = 256, 8, 128
    num_blocks = 2**31 // (block_size * num_kv_heads * head_dim) + 3
    needed = 2 * 2 * num_blocks * block_size * num_kv_heads * head_dim
    if torch.cuda.mem_get_info()[0] < 1.2 * needed:
        pytest.skip(f"takes {needed / 2**30:.1f} GiB of GPU memory")
    cache = torch.empty(2, num_blocks, block_size, num_kv_heads, head_dim, dtype=torch.float16, device="cuda")
    cache[:, 0], cache[:, -2:] = 9.0, 9.0
    context = 300
    k, v = torch.randn(2, context, num_kv_heads, head_dim, device="cuda").half()
    tables = torch.tensor([[num_blocks - 1, num_blocks - 2]], device="cuda")
    position = torch.arange(context, device="cuda")
    slots = tables[0][position // block_size] * block_size + position % block_size
    load()["store_kv"](k, v, cache[0], cache[1], slots)
    assert torch.equal(cache[0].flatten(0, 1)[slots], k) and torch.equal(cache[1].flatten(0, 1)[slots], v)
    assert (cache[:, 0] == 9).all()  # where an offset that wrapped around would have written
    q = torch.randn(1, 2 * num_kv_heads, head_dim, device="cuda").half()
    keys, values = (x.double().repeat_interleave(2, dim=1) for x in (k, v))
    weights = (torch.einsum("hd,thd->ht", q[0].double(), keys) * head_dim**-0.5).softmax(-1)
    expected = torch.einsum("ht,thd->hd", weights, values)[None]
    contexts, one = torch.tensor([context], device="cuda"), torch.ones(1, dtype=torch.int64, device="cuda")
    decoded = load()["paged_decode"](q, cache[0], cache[1], tables, contexts, context)
    start = torch.tensor([0, 1], device="cuda")
    prefilled = load()["paged_prefill"](q, cache[0], cache[1], tables, start, one, contexts, 1, context)
    for out in (decoded, prefilled):
        assert error(out, expected) < TOLERANCE[torch.float16]
