"""6.5 `RadixCache(block_size)`: a prefix cache that is a tree of blocks, with the interface of the engine's.

What differs from 6.4: `match` also names the block that begins with the next k tokens (`partial`), and
which leaf is evicted first is only settled between paths that do not touch.
"""

from __future__ import annotations

import random

from .expect import same, show
from .prefix_story import Requests, Told, Truth
from .rules import Broken, Rules

rules = Rules()


def _cache(part, size=2, tokens=(1, 2, 3, 4, 5, 6), blocks=(7, 8, 9), salt=None) -> Told:
    told = Told(part(size), f"RadixCache({size})")
    told.do("insert", list(tokens), list(blocks), *([] if salt is None else [salt]))
    return told


def _finds(told: Told, want: tuple, tokens: list[int], salt=None) -> None:
    """The whole answer, partial included."""
    got = told.found(tokens, salt)
    same(f"{told.story}: blocks, num_tokens, partial", got, want)


def _evicts(told: Told, n: int, truth: Truth) -> list[int]:
    """n blocks without users, none of them before one that hangs on it."""
    gone = told.do("evict", n)
    wrong = [block for block in gone if block not in truth.unused]
    if len(gone) != n or len(set(gone)) != n or wrong:
        raise Broken(told.story, show(gone), f"{n} different blocks that nobody uses")
    for i, block in enumerate(gone):
        path = next(prefix for prefix, b in truth.block_of.items() if b == block)
        longer = [b for prefix, b in truth.block_of.items() if prefix[: len(path)] == path and b != block]
        left = [b for b in longer if b not in gone[:i]]
        if left:
            raise Broken(told.story, show(gone), f"{left[0]}, which hangs on {block}, before {block}")
    return gone


@rules.add("Walk from the root: the child with the next block_size tokens as its key.")
def what_was_inserted_is_found(part, rng):
    told = _cache(part)
    _finds(told, ([7, 8, 9], 6, None), [1, 2, 3, 4, 5, 6, 7])
    _finds(told, ([7], 2, None), [1, 2, 9, 4, 5])
    _finds(told, ([], 0, None), [9, 2, 3])
    _finds(Told(part(2), "RadixCache(2)"), ([], 0, None), [1, 2, 3])
    _finds(Told(part(2), "RadixCache(2)"), ([], 0, None), [])


@rules.add("Whole blocks of the first len(tokens) − 1 tokens. The rest of those may be a partial hit.")
def a_match_is_never_the_whole_prompt(part, rng):
    told = _cache(part)
    _finds(told, ([7, 8], 4, (9, 1)), [1, 2, 3, 4, 5, 6])
    _finds(told, ([7, 8], 4, None), [1, 2, 3, 4, 5])
    _finds(told, ([], 0, None), [1])
    _finds(_cache(part, 1, (1, 2, 3)), ([7, 8], 2, None), [1, 2, 3])


@rules.add("Where the path ends, compare the next tokens with the children's keys, one by one.")
def the_part_of_a_block_that_agrees_is_found(part, rng):
    told = _cache(part, 4, range(8), (5, 6))
    _finds(told, ([5], 4, (6, 2)), [0, 1, 2, 3, 4, 5, 9, 9, 9])
    _finds(told, ([5], 4, (6, 3)), [0, 1, 2, 3, 4, 5, 6, 7])
    _finds(told, ([], 0, (5, 2)), [0, 1, 9])
    _finds(told, ([], 0, None), [9, 1, 2, 3, 4])


@rules.add("Of several children take the one that agrees longest.")
def the_longest_part_wins(part, rng):
    for order in ((0, 1, 2), (2, 1, 0)):
        told = Told(part(4), "RadixCache(4)")
        for i in order:
            told.do("insert", [[1, 9, 9, 9], [1, 2, 3, 9], [1, 2, 9, 9]][i], [10 + i])
        _finds(told, ([], 0, (11, 3)), [1, 2, 3, 4, 5])


@rules.add("One root a salt.")
def salts_never_share(part, rng):
    told = _cache(part, salt="a")
    _finds(told, ([], 0, None), [1, 2, 3, 4, 5], "b")
    _finds(told, ([], 0, None), [1, 2, 3, 4, 5])
    _finds(told, ([7, 8], 4, None), [1, 2, 3, 4, 5], "a")


@rules.add("Where a child with this key exists, keep its block; who inserts uses that one.")
def what_is_cached_already_keeps_its_block(part, rng):
    told = _cache(part)
    told.expect([7, 8, 22], "insert", [1, 2, 3, 4, 8, 8], [20, 21, 22])
    _finds(told, ([7, 8, 22], 6, None), [1, 2, 3, 4, 8, 8, 0])
    _finds(told, ([7, 8, 9], 6, None), [1, 2, 3, 4, 5, 6, 0])
    same(f"{told.story}; users of 7, 8, 9, 22", [told.cache.users(b) for b in (7, 8, 9, 22)], [2, 2, 1, 1])


@rules.add("A request inserts its blocks again as it grows. Begin behind those that it used before.")
def nobody_is_counted_twice(part, rng):
    told = _cache(part)
    told.expect([7, 8, 9, 10], "insert", list(range(1, 9)), [7, 8, 9, 10])
    told.do("acquire", [7, 8])
    told.expect([7, 8, 31], "insert", [1, 2, 3, 4, 0, 0], [7, 8, 31])
    same(f"{told.story}; users of 7, 9, 10, 31", [told.cache.users(b) for b in (7, 9, 10, 31)], [2, 1, 1, 1])


@rules.add("Evict leaves only: a node without children and without users. Its parent may be a leaf then.")
def leaves_go_first(part, rng):
    told = _cache(part)
    told.do("release", [7, 8, 9])
    told.expect([9], "evict", 1)
    _finds(told, ([7, 8], 4, None), [1, 2, 3, 4, 5, 6, 0])
    told.expect([8, 7], "evict", 2)
    _finds(told, ([], 0, None), [1, 2, 3])
    told.expect([3], "insert", [1, 2], [3])


@rules.add("The least recently used leaf goes first.")
def the_least_recently_used_goes_first(part, rng):
    told = Told(part(1), "RadixCache(1)")
    for first, block in ((1, 10), (2, 20), (3, 30)):
        told.do("insert", [first, 9], [block, block + 1])
        told.do("release", [block, block + 1])
    told.do("acquire", [10, 11])
    told.do("release", [10, 11])
    told.expect([21, 20, 31, 30, 11, 10], "evict", 6)


@rules.add("Count first: n larger than num_evictable is a ValueError, and nothing is evicted.")
def what_is_in_use_is_never_evicted(part, rng):
    told = _cache(part)
    told.refuses("evict", 1)
    told.do("release", [7, 8, 9])
    told.do("acquire", [7])
    told.refuses("evict", 3)
    told.reads(2, "num_evictable")
    told.expect([9, 8], "evict", 2)
    told.expect([], "evict", 0)
    _finds(told, ([7], 2, None), [1, 2, 3, 4, 5])


@rules.add("reset is given; insert continues at the last block that its caller used before.")
def reset_hides_everything(part, rng):
    told = _cache(part)
    told.do("insert", [5, 5], [30])
    told.do("release", [30])
    told.expect([30], "reset")
    _finds(told, ([], 0, None), [1, 2, 3, 4, 5])
    told.expect([7, 8, 9, 11], "insert", list(range(1, 9)), [7, 8, 9, 11])
    _finds(told, ([], 0, None), [1, 2, 3, 4, 5])
    told.do("release", [7, 8, 9, 11])
    told.expect([11, 9, 8, 7], "evict", 4)


@rules.add("Make new lists: the caller may change what it gave or got.")
def lists_belong_to_the_caller(part, rng):
    cache, blocks, tokens = part(2), [7, 8], [1, 2, 3, 4, 5]
    kept = cache.insert(tokens, blocks, None)
    kept.clear()
    same("the caller's blocks after insert", blocks, [7, 8])
    blocks[0] = 99
    cache.match(tokens, None)[0].append(5)
    same("the caller's tokens after match", tokens, [1, 2, 3, 4, 5])
    _finds(Told(cache, "insert, match, the caller changes its lists"), ([7, 8], 4, None), tokens)


class _Trees(Requests):
    """The same random requests; a partial hit must be one of the longest that there are."""

    def _match(self, tokens: list[int], salt: str | None) -> list[int]:
        told, truth = self.told, self.truth
        want, possible = truth.match(tokens, salt), truth.partial(tokens, salt)
        blocks, num_tokens, partial = told.found(tokens, salt)
        same(f"{told.story}: blocks, num_tokens", [blocks, num_tokens], [want, len(want) * truth.size])
        longest = max(possible.values(), default=0)
        k = 0 if partial is None else partial[1]
        same(f"{told.story}: tokens of the partial hit", k, longest)
        if partial is not None and (k == 0 or possible.get(partial[0]) != k):
            raise Broken(f"{told.story}: partial", show(partial), f"a block that begins with {k} of them")
        return want


@rules.add("Play the calls through by hand, with the tree on paper.")
def any_order_of_calls_holds(part, rng: random.Random):
    for size in (1, 2, 3):
        told, truth = Told(part(size), f"RadixCache({size})"), Truth(size)

        def evict(truth=truth, told=told):
            truth.forget(_evicts(told, rng.randint(1, len(truth.unused)), truth))

        _Trees(told, truth, rng, tail_first=True).play(50, evict)
