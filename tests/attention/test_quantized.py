"""8-bit caches: how far rounding may go, that scales go where their numbers go, and who refuses them."""

import random
from types import SimpleNamespace

import pytest
import torch

from minivllm import LLM, Parts, SamplingParams
from minivllm.assembly import _block_bytes
from minivllm.attention.base import AttentionMeta
from minivllm.attention.paged import PagedBackend
from minivllm.attention.quantized import QuantizedBackend
from minivllm.config import KV_CACHE_DTYPES, EngineConfig
from minivllm.kernels.cache_formats import FORMATS, dequantize, quantize
from tests.test_greedy_tokens import random_prompts

FORMATS_8_BIT = pytest.mark.parametrize("name", ["fp8", "int8"])
SHAPE = SimpleNamespace(num_layers=2, num_kv_heads=2, head_dim=16)


@FORMATS_8_BIT
def test_rounding_goes_to_the_nearest_number(name):
    torch.manual_seed(0)
    x = torch.randn(50, 3, 64) * torch.logspace(-6, 4, 50)[:, None, None]
    x[0] = 0
    stored, scale = quantize(x, FORMATS[name])
    assert stored.dtype == FORMATS[name].dtype and scale.shape == (50, 3)
    off = (dequantize(stored, scale) - x).abs()
    half_a_step = scale[..., None] / 2
    if name == "fp8":  # 3 bits behind the first one; steps of 2⁻⁹ below 2⁻⁶
        half_a_step = torch.maximum(x.abs() / 16, scale[..., None] * 2**-10)
    assert (off <= half_a_step * 1.001).all()
    assert torch.equal(dequantize(stored, scale)[0], x[0])


@FORMATS_8_BIT
def test_a_cached_token_is_the_same_whoever_is_in_the_batch(name):
    torch.manual_seed(0)
    k = torch.randn(6, 2, 16)
    together, _ = quantize(k, FORMATS[name])
    alone = torch.cat([quantize(k[i : i + 1], FORMATS[name])[0] for i in range(6)])
    assert torch.equal(together.view(torch.int8), alone.view(torch.int8))


@FORMATS_8_BIT
@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_attention_is_that_of_the_rounded_keys_and_values(name, block_size):
    rng = random.Random(block_size)
    torch.manual_seed(block_size)
    contexts, queries = [9, 1, 20], [4, 1, 1]
    num_blocks = sum(-(-c // block_size) for c in contexts) + 2
    free = rng.sample(range(num_blocks), num_blocks)
    tables = [[free.pop() for _ in range(-(-c // block_size))] for c in contexts]
    widest = max(map(len, tables))
    meta = AttentionMeta(
        torch.tensor([0, 4, 5, 6]), torch.tensor(queries), torch.tensor(contexts),
        torch.tensor([table + [0] * (widest - len(table)) for table in tables]), 4, 20,
    )  # fmt: skip
    backends = [QuantizedBackend(SHAPE, block_size, torch.float32, "cpu", kv_cache_dtype=name),
                PagedBackend(SHAPE, block_size, torch.float32, "cpu")]  # fmt: skip
    for backend in backends:
        backend.allocate(num_blocks)
    backends[0].scales.fill_(float("nan"))
    for context, table in zip(contexts, tables, strict=True):
        slots = torch.tensor([table[i // block_size] * block_size + i % block_size for i in range(context)])
        k, v = torch.randn(2, context, 2, 16)
        backends[0].write(1, k, v, slots)
        rounded = [dequantize(*quantize(x, FORMATS[name])) for x in (k, v)]
        backends[1].write(1, *rounded, slots)
    q = torch.randn(6, 4, 16)
    torch.testing.assert_close(backends[0].attend(1, q, meta), backends[1].attend(1, q, meta))


@FORMATS_8_BIT
def test_scales_move_with_their_blocks(name):
    torch.manual_seed(0)
    backend = QuantizedBackend(SHAPE, 4, torch.float32, "cpu", kv_cache_dtype=name)
    backend.allocate(3)
    backend.allocate_host(2)
    backend.write(0, torch.randn(4, 2, 16), torch.randn(4, 2, 16), torch.arange(4))

    def block(i):
        return dequantize(backend.data[0][:, i], backend.scales[0][:, i])

    before = block(0).clone()
    backend.move_blocks([(0, 1)], [(0, 2)], [])
    backend.write(0, torch.zeros(4, 2, 16), torch.zeros(4, 2, 16), torch.arange(4))
    backend.move_blocks([], [], [(1, 1)])
    assert torch.equal(block(1), before) and torch.equal(block(2), before)
    assert not block(0).any()


@FORMATS_8_BIT
def test_tokens_do_not_depend_on_batches_blocks_or_swaps(checkpoints, name):
    def tokens(prompts, **settings):
        settings = {"num_gpu_blocks_override": 60, "max_model_len": 24, "block_size": 4, **settings}
        llm = LLM(
            checkpoints["llama"], skip_tokenizer_init=True, device="cpu", kv_cache_dtype=name, **settings
        )
        outputs = llm.generate(
            prompts, SamplingParams(temperature=0, max_tokens=9, ignore_eos=True), use_tqdm=False
        )
        return [o.outputs[0].token_ids for o in outputs]

    prompts = random_prompts(3, [9, 4, 1, 9])
    expected = [tokens([prompt])[0] for prompt in prompts]
    assert tokens(prompts) == expected
    assert tokens(prompts, max_num_batched_tokens=5, block_size=3, prefix_cache="radix") == expected
    assert tokens(prompts, num_gpu_blocks_override=6, preemption_mode="swap") == expected


@pytest.mark.parametrize("name", KV_CACHE_DTYPES)
def test_the_budget_counts_numbers_and_scales(name):
    backend = QuantizedBackend(SHAPE, 4, torch.float16, "cpu", kv_cache_dtype=name)
    backend.allocate(5)
    scales = 0 if backend.scales is None else backend.scales.nbytes
    config = EngineConfig(block_size=4, kv_cache_dtype=name)
    assert backend.data.nbytes + scales == 5 * _block_bytes(config, SHAPE, torch.float16)


def test_who_cannot_says_so(checkpoints):
    with pytest.raises(ValueError, match="kv_cache_dtype is 'fp4'"):
        EngineConfig(kv_cache_dtype="fp4")
    with pytest.raises(ValueError, match="attention_backend='paged'"):
        EngineConfig(kv_cache_dtype="int8", attention_backend="contiguous")
    for parts in (Parts(attention_backend=PagedBackend), Parts(kernels={"store_kv": print})):
        with pytest.raises(ValueError, match="know no scales"):
            LLM(
                checkpoints["llama"],
                parts=parts,
                kv_cache_dtype="int8",
                skip_tokenizer_init=True,
                device="cpu",
            )
