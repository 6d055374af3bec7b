"""The attention kernels against float64 on ragged batches (batches.py): every dtype meets every head dim, and
all groups and block sizes go round among these pairs.

MINIVLLM_KERNEL_BATCHES sets how many random batches of any mixture are drawn besides (8).
"""

import os
import random

import pytest
import torch

from minivllm.kernels.paged_decode import paged_decode, paged_decode_reference
from minivllm.kernels.paged_prefill import paged_prefill, paged_prefill_reference
from tests.kernels.batches import BLOCK_SIZES, GROUPS, HEAD_DIMS, TOLERANCE, batch, error

pytestmark = pytest.mark.usefixtures("poisoned")
PAIRS = [
    (dtype, head_dim, GROUPS[(i + j) % 3], BLOCK_SIZES[(2 * i + j) % 4])
    for i, dtype in enumerate(TOLERANCE)
    for j, head_dim in enumerate(HEAD_DIMS)
]
NUM_BATCHES = int(os.environ.get("MINIVLLM_KERNEL_BATCHES", "8"))


@pytest.mark.parametrize("dtype, head_dim, group, block_size", PAIRS)
def test_decode(dtype, head_dim, group, block_size):
    rng = random.Random(f"{dtype} {head_dim} {group}")
    contexts = [rng.randint(1, 300), rng.randint(129, 300)]
    num_kv_heads = 2 if group == 1 else 1
    drawn = batch(rng, dtype, head_dim, group, block_size, contexts, [1, 1], num_kv_heads)
    for split in (512, 128):
        assert error(drawn.decode(paged_decode, split), drawn.expected) < TOLERANCE[dtype], split
    assert error(drawn.decode(paged_decode_reference), drawn.expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype, head_dim, group, block_size", PAIRS)
def test_prefill(dtype, head_dim, group, block_size):
    rng = random.Random(f"{dtype} {head_dim} {group}")
    contexts = [rng.randint(41, 300), rng.randint(1, 40)]
    queries = [rng.randint(1, 40), contexts[1]]  # the second has nothing cached
    drawn = batch(rng, dtype, head_dim, group, block_size, contexts, queries)
    assert error(drawn.prefill(paged_prefill), drawn.expected) < TOLERANCE[dtype]
    assert error(drawn.prefill(paged_prefill_reference), drawn.expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("cache", ["fp8", "int8"])
@pytest.mark.parametrize("head_dim", [80, 256])
def test_8_bit_caches_are_read_exactly(dtype, cache, head_dim):
    rng = random.Random(f"{dtype} {cache} {head_dim}")
    drawn = batch(rng, dtype, head_dim, 3, 3, [rng.randint(130, 300), 7], [1, 1], cache=cache)
    for out in (drawn.decode(paged_decode, 128), drawn.prefill(paged_prefill)):
        assert error(out, drawn.expected) < TOLERANCE[dtype]
    assert error(drawn.decode(paged_decode_reference), drawn.expected) < TOLERANCE[dtype]
    assert error(drawn.prefill(paged_prefill_reference), drawn.expected) < TOLERANCE[dtype]


@pytest.mark.parametrize("number", range(NUM_BATCHES))
def test_random_batches(number):
    rng = random.Random(number)
    dtype, block_size = rng.choice(list(TOLERANCE)), rng.choice([*BLOCK_SIZES, rng.randint(1, 70)])
    head_dim, group, num_kv_heads = rng.choice(HEAD_DIMS), rng.choice(GROUPS), rng.randint(1, 2)
    contexts = [rng.randint(1, 300) for _ in range(rng.randint(1, 3))]
    queries = [rng.choice([1, rng.randint(1, min(40, context))]) for context in contexts]
    cache = rng.choice(["", "", "fp8", "int8"])
    about = (dtype, block_size, head_dim, group, num_kv_heads, contexts, queries, cache)
    drawn = batch(rng, dtype, head_dim, group, block_size, contexts, queries, num_kv_heads, cache)
    assert error(drawn.prefill(paged_prefill), drawn.expected) < TOLERANCE[dtype], about
    if max(queries) == 1:
        split = rng.choice([128, 256, 512])
        assert error(drawn.decode(paged_decode, split), drawn.expected) < TOLERANCE[dtype], about


def test_a_group_of_more_than_16_query_heads():
    drawn = batch(random.Random(0), torch.float16, 64, 20, 16, [33], [1])
    assert error(drawn.decode(paged_decode), drawn.expected) < TOLERANCE[torch.float16]
