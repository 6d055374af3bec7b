"""Block pool and block table against a model that is too simple to be wrong."""

import random
from collections import Counter

import pytest

from minivllm.kv.blocks import BlockPool, BlockTable, OutOfBlocks


def test_allocation_is_all_or_nothing():
    pool = BlockPool(3)
    pool.allocate(2)
    with pytest.raises(OutOfBlocks, match="2 blocks wanted, 1 of 3 are free"):
        pool.allocate(2)
    assert pool.num_free == 1


def test_shared_block_returns_to_the_pool_with_its_last_reference():
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.share([block])
    pool.free([block])
    assert pool.ref_count(block) == 1 and pool.num_free == 1
    pool.free([block])
    assert pool.ref_count(block) == 0 and pool.num_free == 2


@pytest.mark.parametrize("bad", [1, 3, -1])
def test_freeing_or_sharing_what_is_free_or_foreign_is_an_error_and_changes_nothing(bad):
    pool = BlockPool(3)
    used = pool.allocate(1)
    assert used != [bad]
    for method in (pool.free, pool.share):
        with pytest.raises(ValueError):
            method([*used, bad])
        assert pool.ref_count(used[0]) == 1
        pool.check()


def test_freeing_one_block_twice_in_one_call_is_an_error_and_changes_nothing():
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    with pytest.raises(ValueError, match="freed 2 times"):
        pool.free([block, block])
    assert pool.ref_count(block) == 1
    pool.check()


@pytest.mark.parametrize("seed", range(10))
def test_pool_agrees_with_a_counter_over_random_calls(seed):
    rng = random.Random(seed)
    pool, counts = BlockPool(12), Counter()
    for _ in range(500):
        used = [b for b in counts.elements()]
        action = rng.choice(["allocate", "share", "free"])
        if action == "allocate":
            n = rng.randint(0, 5)
            if n > 12 - len(set(used)):
                with pytest.raises(OutOfBlocks):
                    pool.allocate(n)
            else:
                blocks = pool.allocate(n)
                assert len(set(blocks)) == n and not set(blocks) & set(used)
                counts.update(blocks)
        elif used:
            some = rng.sample(used, rng.randint(1, min(4, len(used))))
            if action == "share":
                pool.share(some)
                counts.update(some)
            else:
                pool.free(some)
                counts.subtract(some)
        counts = +counts
        assert pool.num_free == 12 - len(counts)
        assert all(pool.ref_count(b) == counts[b] for b in range(12))
        pool.check()


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
def test_table_wastes_less_than_one_block_and_maps_every_position(block_size):
    rng = random.Random(block_size)
    pool, table = BlockPool(200), BlockTable(block_size)
    where = {}
    for _ in range(20):
        n = rng.randint(0, 9)
        table.append_tokens(n, pool.allocate(table.blocks_needed(n)))
        assert 0 <= len(table.blocks) * block_size - table.num_tokens < block_size
        slots = table.slot_mapping(0, table.num_tokens)
        assert len(set(slots)) == table.num_tokens
        for position, slot in enumerate(slots):
            assert where.setdefault(position, slot) == slot, "a token has moved"
            assert slot // block_size == table.blocks[position // block_size]
        start = rng.randint(0, table.num_tokens)
        assert table.slot_mapping(start, table.num_tokens - start) == slots[start:]


def test_table_refuses_wrong_block_counts_and_positions():
    table = BlockTable(4)
    with pytest.raises(ValueError, match="5 more tokens need 2 new blocks, 1 were given"):
        table.append_tokens(5, [0])
    table.append_tokens(5, [0, 3])
    for start, n in ((0, 6), (-1, 2), (5, 1)):
        with pytest.raises(ValueError, match="table of 5 tokens"):
            table.slot_mapping(start, n)
    assert table.slot_mapping(3, 2) == [3, 12]


def test_forked_table_grows_on_its_own():
    table = BlockTable(2)
    table.append_tokens(3, [4, 5])
    child = table.fork()
    child.append_tokens(2, [6])
    assert (table.blocks, table.num_tokens) == ([4, 5], 3)
    assert (child.blocks, child.num_tokens) == ([4, 5, 6], 5)
