"""Caches of more than 2³¹ elements: an offset of 32 bits would wrap around and hit memory of others.

The memory is only reserved, and a few pages of it are touched. Kernels get a cache that seems to end after
one block, as the interpreter copies whole tensors onto themselves; they go by the block ids alone.
"""

import math
import mmap
import random

import pytest
import torch

from minivllm.kernels.cache_formats import FORMATS, dequantize, raw
from minivllm.kernels.paged_decode import paged_decode
from minivllm.kernels.paged_prefill import paged_prefill
from minivllm.kernels.store_kv import store_kv
from tests.attention.test_paged import spec
from tests.kernels.batches import TOLERANCE, error

BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM, CONTEXT = 16, 2, 64, 40
BLOCK = (BLOCK_SIZE, NUM_KV_HEADS, HEAD_DIM)
FAR = 2**31 // math.prod(BLOCK) + 7  # the first block whose elements lie behind the 2³¹st
NUM_BLOCKS = 4
NORESERVE = 0x4000  # Linux's MAP_NORESERVE, which Python's mmap names from 3.11 on


def reserved(shape, dtype):
    """(block 0, blocks FAR … FAR + NUM_BLOCKS − 1) of one array, of `shape` each block."""
    count = math.prod(shape)
    size = (FAR + NUM_BLOCKS) * count * dtype.itemsize
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    near = torch.frombuffer(memory, dtype=dtype, count=count)
    offset = FAR * count * dtype.itemsize
    far = torch.frombuffer(memory, dtype=dtype, count=NUM_BLOCKS * count, offset=offset)
    return near.view(1, *shape), far.view(NUM_BLOCKS, *shape)


@pytest.mark.parametrize("cache", ["", "int8"])
def test_blocks_behind_2_to_the_31_elements(cache):
    torch.manual_seed(0)
    dtype = FORMATS[cache].dtype or torch.float16
    k_near, k_far = reserved(BLOCK, dtype)
    v_near, v_far = reserved(BLOCK, dtype)
    scales = {}
    if cache:
        (k_scale, k_scale_far), (v_scale, v_scale_far) = (reserved(BLOCK[:2], torch.float32) for _ in "kv")
        scales = {"k_scale": k_scale, "v_scale": v_scale}
    blocks = random.Random(0).sample(range(NUM_BLOCKS), 3)
    table = torch.tensor([[FAR + block for block in blocks]])
    k, v = torch.randn(2, CONTEXT, NUM_KV_HEADS, HEAD_DIM).half()
    position = torch.arange(CONTEXT)
    slots = table[0, position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
    store_kv(k, v, k_near, v_near, slots, **scales)
    assert not raw(k_near).any() and not raw(v_near).any()

    if cache:
        k_far, v_far = dequantize(k_far, k_scale_far), dequantize(v_far, v_scale_far)
    written = [x[blocks].flatten(0, 1)[:CONTEXT].double() for x in (k_far, v_far)]
    assert error(written[0], k) < 0.01 and error(written[1], v) < 0.01
    q = torch.randn(3, NUM_KV_HEADS * 3, HEAD_DIM).half()
    contexts = torch.tensor([CONTEXT])
    out = paged_decode(q[2:], k_near, v_near, table, contexts, CONTEXT, 32, **scales)
    assert error(out, spec(q[2:].double(), *written)) < TOLERANCE[torch.float16]
    lengths = torch.tensor([0, 3]), torch.tensor([3]), contexts
    out = paged_prefill(q, k_near, v_near, table, *lengths, 3, CONTEXT, **scales)
    assert error(out, spec(q.double(), *written)) < TOLERANCE[torch.float16]
