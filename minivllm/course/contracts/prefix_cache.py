"""6.4 `PrefixCache(block_size)`: the cache of 6.3 with `release`, `evict(n)`, `reset()`, and
`begin(pool, tokens, salt)`.

`release` gets a table from head to tail. The pool of `begin` is a `BlockPool` of lab 02 with `share`.
"""

from __future__ import annotations

from .expect import same
from .prefix_pool import PooledCache
from .prefix_story import Requests, Told, Truth
from .rules import Rules

rules = Rules()


def _cache(part, blocks=(7, 8, 9)) -> Told:
    told = Told(part(2), "PrefixCache(2)")
    told.do("insert", list(range(1, 2 * len(blocks) + 1)), list(blocks))
    return told


@rules.add("Let the cache of 6.3 do what it did before.")
def it_matches_and_counts_as_before(part, rng):
    told = _cache(part)
    told.matches([7, 8], 2, [1, 2, 3, 4, 5])
    told.do("acquire", [7])
    told.expect([7, 21], "insert", [1, 2, 8, 8], [20, 21])
    same(f"{told.story}; users of 7, 8, 21", [told.cache.users(b) for b in (7, 8, 21)], [3, 1, 1])
    told.do("release", [8, 9])
    told.reads(2, "num_evictable")


@rules.add("evict returns n blocks that nobody uses, and no later match finds them.")
def evicted_blocks_are_forgotten(part, rng):
    told = Told(part(2), "PrefixCache(2)")
    told.do("insert", [1, 2], [7])
    told.do("insert", [5, 6], [8])
    told.do("release", [7])
    told.expect([], "evict", 0)
    told.expect([7], "evict", 1)
    told.matches([], 2, [1, 2, 3])
    told.matches([8], 2, [5, 6, 7])
    told.reads(0, "num_evictable")


@rules.add("A tail is worth nothing without its head: release the end of the table first.")
def the_tail_goes_before_the_head(part, rng):
    told = _cache(part)
    told.do("release", [7, 8, 9])
    told.expect([9], "evict", 1)
    told.matches([7, 8], 2, [1, 2, 3, 4, 5, 6, 0])
    told.expect([8, 7], "evict", 2)


@rules.add("A block with a user is never evicted. Count first: n larger than num_evictable is a ValueError.")
def what_is_in_use_is_never_evicted(part, rng):
    told = _cache(part)
    told.refuses("evict", 1)
    told.do("release", [7, 8, 9])
    told.do("acquire", [7])
    told.refuses("evict", 3)
    told.reads(2, "num_evictable")
    told.matches([7, 8, 9], 2, [1, 2, 3, 4, 5, 6, 0])
    told.expect([9, 8], "evict", 2)
    told.matches([7], 2, [1, 2, 3, 4, 5])
    told.do("release", [7])
    told.expect([7], "evict", 1)


@rules.add("The least recently used goes first: take from the front of the queue.")
def the_least_recently_used_goes_first(part, rng):
    told = Told(part(1), "PrefixCache(1)")
    for first, block in ((1, 10), (2, 20), (3, 30)):
        told.do("insert", [first, 9], [block, block + 1])
        told.do("release", [block, block + 1])
    told.do("acquire", [10, 11])
    told.do("release", [10, 11])
    told.expect([21, 20, 31], "evict", 3)
    told.expect([30, 11, 10], "evict", 3)


@rules.add("Blocks of a table that are not cached are passed over, as in 6.3.")
def release_passes_over_what_is_not_cached(part, rng):
    told = _cache(part)
    told.do("release", [7, 8, 9, 50])
    told.expect([9, 8, 7], "evict", 3)


@rules.add("reset gives back what nobody used; what is in use can be evicted when it is released.")
def reset_hides_everything(part, rng):
    told = _cache(part)
    told.do("insert", [5, 5], [30])
    told.do("release", [30])
    told.expect([30], "reset")
    told.matches([], 2, [1, 2, 3, 4, 5])
    told.do("release", [7, 8, 9])
    told.expect([9, 8, 7], "evict", 3)
    told.expect([12], "insert", [1, 2], [12])
    told.matches([12], 2, [1, 2, 3])


@rules.add("Without a hit: as many blocks as the tokens need, from the pool. The last may be half empty.")
def begin_allocates_what_is_not_cached(part, rng):
    for num_tokens in (1, 2, 3, 8):
        PooledCache(part, 4).begins(list(range(num_tokens)))
    PooledCache(part, 4).begins([])


@rules.add("The cached blocks come first, and only the others are allocated.")
def begin_uses_what_is_cached(part, rng):
    game = PooledCache(part, 6)
    game.cached([1, 2, 3, 4])
    game.begins([1, 2, 3, 4, 5])
    game.begins([1, 2, 9, 9])
    game.begins([1, 2, 3, 4])


@rules.add("Acquire in the cache and share in the pool: both count, and both are undone at the end.")
def begin_counts_in_cache_and_pool(part, rng):
    game = PooledCache(part, 6)
    game.cached([1, 2, 3, 4])
    first, second = game.begins([1, 2, 3, 4, 5]), game.begins([1, 2, 3, 4, 6])
    for blocks in (first, second):
        game.do("release", blocks)
        game.pool.free(blocks)
    same(f"{game.story}: free and evictable", [game.pool.num_free, game.cache.num_evictable], [4, 2])


@rules.add("Evict exactly what the pool is short of, and give it to pool.free: the cache's reference ends.")
def begin_evicts_no_more_than_it_must(part, rng):
    game = PooledCache(part, 6)
    game.cached([1, 2, 3, 4])
    game.cached([5, 6, 7, 8])
    game.begins([9])
    same(f"{game.story}: evictable", game.cache.num_evictable, 4)
    game.begins([9, 8, 9, 8, 9])
    same(f"{game.story}: evictable", game.cache.num_evictable, 2)


@rules.add("First match and acquire, then evict: a block that nobody uses yet may be the oldest of all.")
def begin_never_evicts_its_own_hit(part, rng):
    game = PooledCache(part, 6)
    game.cached([1, 2, 3, 4])
    game.cached([8, 8, 8, 8])
    game.begins([1, 2, 3, 4, 6, 6, 6, 6, 6, 6])


@rules.add("A hit that was evictable is no longer free: count what is free after acquire, not before.")
def begin_counts_a_hit_once(part, rng):
    game = PooledCache(part, 4)
    game.cached([1, 2, 3, 4])
    game.begins([1, 2, 3, 4, 5, 5, 5, 5, 5])
    game.begins([1, 2, 3, 4, 5, 5, 5])


@rules.add("If the blocks do not suffice return None, with every count as it was before.")
def begin_takes_all_or_nothing(part, rng):
    game = PooledCache(part, 4)
    game.cached([1, 2, 3, 4])
    game.begins(list(range(50, 59)))
    game.begins([1, 2, 3, 4, 5, 5, 5, 5, 5])
    game.begins([1, 2, 3, 4, 5])
    game.begins([7] * 5)
    game.begins([7] * 2)


@rules.add("Give the salt to match.")
def begin_keeps_tenants_apart(part, rng):
    game = PooledCache(part, 12)
    game.cached([1, 2, 3, 4], "a")
    game.begins([1, 2, 3, 4, 5], "b")
    game.begins([1, 2, 3, 4, 5])
    game.begins([1, 2, 3, 4, 5], "a")


@rules.add("Make the cache of 6.3 in __init__, on self.")
def two_caches_share_nothing(part, rng):
    _cache(part).do("release", [7, 8])
    told = Told(part(2), "another PrefixCache(2)")
    told.reads(0, "num_evictable")
    told.matches([], 2, [1, 2, 3])


@rules.add("Play the calls through by hand: users of each block, and the queue of the unused.")
def any_order_of_calls_holds(part, rng):
    for size in (1, 2):
        told, truth = Told(part(size), f"PrefixCache({size})"), Truth(size)

        def evict(truth=truth, told=told):
            gone = truth.unused[: rng.randint(1, len(truth.unused))]
            truth.forget(gone)
            told.expect(gone, "evict", len(gone))

        Requests(told, truth, rng, tail_first=True).play(60, evict)


@rules.add("Play it with a pool of eight: every owner of a block is a request, or the cache.")
def any_order_of_beginnings_holds(part, rng):
    game, tables = PooledCache(part, 8), []
    for _ in range(80):
        if tables and rng.random() < 0.45:
            tokens, blocks = tables.pop(rng.randrange(len(tables)))
            full = blocks[: len(tokens) // 2]
            kept = game.do("insert", tokens, full)
            for mine, now in zip(full, kept, strict=True):
                if mine == now and game.pool.ref_count(now) == game.cache.users(now):
                    game.pool.share([now])  # newly cached: the cache's own reference
                elif mine != now:
                    game.pool.share([now])
                    game.pool.free([mine])
            table = kept + blocks[len(full) :]
            game.do("release", table)
            game.pool.free(table)
        else:
            tokens = [rng.randint(1, 2) for _ in range(rng.randint(1, 9))]
            blocks = game.begins(tokens)
            if blocks is not None:
                tables.append((tokens, blocks))
