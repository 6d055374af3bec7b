"""What both prefix caches promise, against a slow model: a dictionary of whole prefixes."""

import random

import pytest

from minivllm.kv.prefix import HashPrefixCache, block_name
from minivllm.kv.radix import RadixPrefixCache
from tests.sim import Sim

CACHES = {"hash": HashPrefixCache, "radix": RadixPrefixCache}
both = pytest.mark.parametrize("kind", CACHES)


def filled(kind, block_size=2, tokens=(1, 2, 3, 4, 5, 6), blocks=(7, 8, 9), salt=None):
    cache = CACHES[kind](block_size)
    assert cache.insert(list(tokens), list(blocks), salt) == list(blocks)
    return cache


@both
def test_match_stops_at_the_first_difference_and_before_the_last_token(kind):
    cache = filled(kind)
    assert cache.match([1, 2, 3, 4, 5, 6, 7]).blocks == [7, 8, 9]
    assert cache.match([1, 2, 3, 4, 5, 6]).blocks == [7, 8]
    assert cache.match([1, 2, 9, 4, 5, 6, 7]).blocks == [7]
    assert cache.match([9, 2, 3, 4, 5]).blocks == []
    assert cache.match([1]).blocks == []


@both
def test_same_tokens_behind_another_prefix_are_another_block(kind):
    """Why the parent belongs into the name: keys and values depend on everything before them."""
    cache = filled(kind, tokens=(1, 2, 3, 4), blocks=(7, 8))
    assert cache.match([9, 9, 3, 4, 5]).blocks == []
    assert cache.match([3, 4, 5]).blocks == []
    assert block_name(b"a", [3, 4]) != block_name(b"b", [3, 4])


@both
def test_salts_never_share(kind):
    cache = filled(kind, salt="tenant a")
    assert cache.match([1, 2, 3], "tenant b").blocks == cache.match([1, 2, 3]).blocks == []
    assert cache.match([1, 2, 3], "tenant a").blocks == [7]


@both
def test_content_that_is_cached_already_keeps_its_first_block(kind):
    cache = filled(kind)
    assert cache.insert([1, 2, 3, 4, 8, 8], [20, 21, 22]) == [7, 8, 22]
    assert cache.match([1, 2, 3, 4, 8, 8, 0]).blocks == [7, 8, 22]
    cache.check()


@both
def test_blocks_in_use_are_never_evicted_and_the_tail_goes_before_the_head(kind):
    cache = filled(kind)
    assert cache.num_evictable == 0
    with pytest.raises(ValueError, match="1 blocks are to be evicted, 0 are unused"):
        cache.evict(1)
    cache.release([7, 8, 9])
    cache.acquire([7])
    assert cache.num_evictable == 2
    assert cache.evict(2) == [9, 8]
    cache.release([7])
    assert cache.evict(1) == [7]
    cache.check()


@both
def test_the_least_recently_used_prefix_goes_first(kind):
    cache = CACHES[kind](1)
    for first, block in ((1, 10), (2, 20), (3, 30)):
        cache.insert([first, 9], [block, block + 1])
        cache.release([block, block + 1])
    cache.acquire([10, 11])
    cache.release([10, 11])
    assert cache.evict(6) == [21, 20, 31, 30, 11, 10]


def test_tree_finds_the_part_of_a_block_that_agrees():
    cache = filled("radix", block_size=4, tokens=range(8), blocks=(5, 6))
    assert cache.match([0, 1, 2, 3, 4, 5, 9, 9, 9]) == ([5], 4, (6, 2))
    assert cache.match([0, 1, 2, 3, 4, 5, 6, 7]) == ([5], 4, (6, 3))  # the last token is computed
    assert cache.match([0, 1, 9]) == ([], 0, (5, 2))
    cache.insert([0, 1, 2, 3, 4, 5, 6, 9], [5, 7])
    assert cache.match([0, 1, 2, 3, 4, 5, 6, 9, 1]) == ([5, 7], 8, None)


def test_hash_chain_finds_whole_blocks_only():
    cache = filled("hash", block_size=4, tokens=range(8), blocks=(5, 6))
    assert cache.match([0, 1, 2, 3, 4, 5, 6, 9, 9]) == ([5], 4, None)


@both
def test_reset_hides_everything_and_keeps_what_is_in_use(kind):
    cache = filled(kind)
    cache.insert([5, 5], [30])
    cache.release([30])
    assert cache.reset() == [30]
    assert cache.match([1, 2, 3, 4]).blocks == []
    cache.release([7, 8, 9])
    assert sorted(cache.evict(3)) == [7, 8, 9]
    cache.check()


@both
@pytest.mark.parametrize("seed", range(15))
def test_random_use_agrees_with_a_dictionary_of_prefixes(kind, seed):
    rng = random.Random(seed)
    size = rng.choice([1, 2, 3])
    cache, truth, users, next_block = CACHES[kind](size), {}, {}, 0
    tables = []
    for _ in range(300):
        action = rng.random()
        if action < 0.45:
            tokens = [rng.randint(0, 2) for _ in range(rng.randint(1, 5 * size))]
            match = cache.match(tokens)
            prefixes = [tuple(tokens[: i * size]) for i in range(1, (len(tokens) - 1) // size + 1)]
            expected = []
            for prefix in prefixes:
                if prefix not in truth:
                    break
                expected.append(truth[prefix])
            assert match.blocks == expected and match.num_tokens == len(expected) * size
            cache.acquire(match.blocks)
            for block in match.blocks:
                users[block] += 1
            num_full = len(tokens) // size
            blocks = match.blocks + list(range(next_block, next_block + num_full - len(match.blocks)))
            next_block += num_full
            kept = cache.insert(tokens, blocks)
            for i in range(len(match.blocks), num_full):
                block = truth.setdefault(tuple(tokens[: (i + 1) * size]), blocks[i])
                assert kept[i] == block
                users[block] = users.get(block, 0) + 1
            tables.append(kept)
        elif action < 0.8 and tables:
            table = tables.pop(rng.randrange(len(tables)))
            cache.release(table)
            for block in table:
                users[block] -= 1
        elif cache.num_evictable:
            n = rng.randint(1, cache.num_evictable)
            gone = cache.evict(n)
            assert len(set(gone)) == n and all(users[block] == 0 for block in gone)
            for block in gone:
                del users[block]
            truth = {prefix: block for prefix, block in truth.items() if block not in gone}
        cache.check()
        assert cache.num_evictable == sum(1 for count in users.values() if count == 0)
        assert set(cache.cached_blocks()) == set(users)


@both
def test_a_request_never_evicts_what_it_is_about_to_hit(kind):
    """The pool is full of cached blocks, and the oldest are exactly those the new request needs."""
    sim = Sim(num_blocks=6, block_size=2, enable_prefix_caching=True, prefix_cache=kind)
    sim.add([1, 2, 3, 4, 5], 1)
    sim.run()
    sim.add([8, 8, 8, 8, 8], 1)
    sim.run()
    again = sim.add([1, 2, 3, 4, 6, 6, 6, 6, 6, 6, 6], 1)
    sim.run()
    assert again.num_cached_tokens == 4


@both
def test_requests_share_blocks_as_soon_as_they_are_computed(kind):
    sim = Sim(
        num_blocks=40, block_size=2, enable_prefix_caching=True, prefix_cache=kind, max_num_batched_tokens=64
    )
    prompt = list(range(9))
    first, second = sim.add(prompt, 4), sim.add(prompt, 4)
    sim.step()  # both compute the same prompt in one step: one copy of the full blocks is kept
    tables = [sim.kv.tables[r.request_id].blocks for r in (first, second)]
    assert tables[0][:4] == tables[1][:4] and tables[0][4] != tables[1][4]
    third = sim.add(prompt, 4)
    sim.step()
    assert third.num_cached_tokens == 8
    sim.run()


@both
def test_statistics_do_not_count_what_is_recomputed_after_preemption(kind):
    sim = Sim(num_blocks=8, block_size=2, enable_prefix_caching=True, prefix_cache=kind)
    for i in range(4):
        sim.add([10 * i + j for j in range(5)], 8)
    sim.run()
    assert sim.scheduler.num_preemptions > 0
    assert (sim.kv.num_prefix_queries, sim.kv.num_prefix_hits) == (20, 0)
