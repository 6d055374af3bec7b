"""6.3 `CountedCache(block_size)`: `match`, `insert`, `acquire`, `release`, `forget`, `clear`,
`users(block)`, and the properties `unused` (a list, least recently used first) and `num_evictable`.

A call that is refused changes nothing. `release` keeps the order that it is given.
"""

from __future__ import annotations

from .expect import same
from .prefix_story import Requests, Told, Truth
from .rules import Rules

rules = Rules()


def _cache(part, blocks=(7, 8, 9)) -> Told:
    """Blocks of 2 with the tokens 1, 2, 3 …, in use by whoever inserted them."""
    told = Told(part(2), "CountedCache(2)")
    told.do("insert", list(range(1, 2 * len(blocks) + 1)), list(blocks))
    return told


def _counts(told: Told, counts: dict[int, int]) -> None:
    got = {block: told.cache.users(block) for block in counts}
    same(f"{told.story}; users of {', '.join(map(str, counts))}", got, counts)


@rules.add("Who inserts a block is using it: it starts with one user.")
def an_inserted_block_has_one_user(part, rng):
    told = _cache(part)
    _counts(told, {7: 1, 8: 1, 9: 1, 10: 0})
    told.reads([], "unused")
    told.reads(0, "num_evictable")


@rules.add("match only looks; it is the index's. acquire is what counts.")
def match_counts_nobody(part, rng):
    told = _cache(part)
    told.matches([7, 8], 2, [1, 2, 3, 4, 5])
    _counts(told, {7: 1, 8: 1, 9: 1})
    told.do("release", [7, 8, 9])
    told.matches([7, 8], 2, [1, 2, 3, 4, 5])
    told.reads(3, "num_evictable")


@rules.add("One more user for each block. What is in use is not in the queue.")
def acquire_adds_a_user(part, rng):
    told = _cache(part)
    told.do("acquire", [7, 8])
    told.do("acquire", [7])
    _counts(told, {7: 3, 8: 2, 9: 1})
    told.do("acquire", [])
    told.reads(0, "num_evictable")


@rules.add("A block joins the queue when its last user goes, not before.")
def a_block_is_unused_when_its_last_user_leaves(part, rng):
    told = _cache(part)
    told.do("acquire", [7])
    told.do("release", [7, 8])
    _counts(told, {7: 1, 8: 0, 9: 1})
    told.reads([8], "unused")
    told.do("release", [7])
    told.reads([8, 7], "unused")
    told.reads(2, "num_evictable")


@rules.add("Append to the queue's end, in the order of the list: a dict keeps the order of insertion.")
def the_queue_is_in_order_of_release(part, rng):
    told = _cache(part, (7, 8, 9, 3))
    told.do("release", [9])
    told.do("release", [3, 7, 8])
    told.reads([9, 3, 7, 8], "unused")


@rules.add("acquire takes the block out of the queue, wherever it stands; release puts it at the end.")
def a_block_in_use_again_leaves_the_queue(part, rng):
    told = _cache(part)
    told.do("release", [7, 8, 9])
    told.do("acquire", [8])
    told.reads([7, 9], "unused")
    _counts(told, {8: 1})
    told.do("acquire", [7])
    told.do("release", [7, 8])
    told.reads([9, 7, 8], "unused")


@rules.add("Blocks of a table that are not cached, such as the last, half-filled one, are passed over.")
def release_passes_over_what_is_not_cached(part, rng):
    told = _cache(part)
    told.do("release", [7, 8, 9, 50])
    told.reads([7, 8, 9], "unused")
    _counts(told, {50: 0})
    told.do("release", [50])
    told.reads(3, "num_evictable")


@rules.add("The caller of insert uses what it gets back: count it on the block that was there before.")
def who_finds_its_content_cached_uses_that_block(part, rng):
    told = _cache(part)
    told.expect([7, 8, 22], "insert", [1, 2, 3, 4, 8, 8], [20, 21, 22])
    _counts(told, {7: 2, 8: 2, 9: 1, 20: 0, 21: 0, 22: 1})
    told.do("release", [7, 8, 9])
    told.do("release", [7, 8, 22])
    told.expect([7], "insert", [1, 2], [30])
    _counts(told, {7: 1})
    told.reads([9, 8, 22], "unused")


@rules.add("A request inserts its blocks again as it grows. What it used before it does not use twice.")
def nobody_is_counted_twice(part, rng):
    told = _cache(part)
    told.expect([7, 8, 9, 10], "insert", list(range(1, 9)), [7, 8, 9, 10])
    _counts(told, {7: 1, 8: 1, 9: 1, 10: 1})
    told.do("acquire", [7, 8])
    told.expect([7, 8, 31], "insert", [1, 2, 3, 4, 0, 0], [7, 8, 31])
    _counts(told, {7: 2, 8: 2, 9: 1, 31: 1})


@rules.add("Only what is cached can be acquired. Look at all of them before you count the first.")
def what_is_not_cached_cannot_be_acquired(part, rng):
    told = _cache(part)
    told.refuses("acquire", [7, 50, 8])
    _counts(told, {7: 1, 8: 1, 50: 0})
    told.do("release", [7])
    told.refuses("acquire", [7, 50])
    told.reads([7], "unused")


@rules.add("A block without users cannot lose one. Look at all of them before you count the first.")
def one_release_too_many_is_refused(part, rng):
    told = _cache(part)
    told.do("release", [8])
    told.refuses("release", [7, 8, 9])
    _counts(told, {7: 1, 8: 0, 9: 1})
    told.reads([8], "unused")


@rules.add("Take the block out of the index, the counts and the queue.")
def what_is_forgotten_is_gone(part, rng):
    told = _cache(part)
    told.do("release", [9, 8])
    told.do("forget", [8])
    told.matches([7], 2, [1, 2, 3, 4, 5, 6, 0])
    told.reads([9], "unused")
    told.reads(1, "num_evictable")
    told.refuses("acquire", [8])
    told.expect([8], "insert", [6, 6], [8])
    _counts(told, {8: 1})


@rules.add("What somebody uses, or what is not cached, cannot be forgotten. Look at all of them first.")
def what_is_in_use_is_not_forgotten(part, rng):
    told = _cache(part)
    told.do("release", [9])
    for call in ([9, 7], [9, 50], [7]):
        told.refuses("forget", call)
        told.reads([9], "unused")
    told.matches([7, 8, 9], 2, [1, 2, 3, 4, 5, 6, 0])
    told.do("forget", [])
    told.reads([9], "unused")


@rules.add("clear begins a new index; who uses a block keeps it, whatever the new index says of its content.")
def what_is_in_use_outlives_clear(part, rng):
    told = _cache(part, (7,))
    told.do("clear")
    told.matches([], 2, [1, 2, 3])
    told.expect([20], "insert", [1, 2], [20])
    told.expect([7, 8], "insert", [1, 2, 3, 4], [7, 8])
    _counts(told, {7: 1, 8: 1, 20: 1})
    told.do("release", [7])
    told.do("forget", [7])
    told.matches([20, 8], 2, [1, 2, 3, 4, 5])


@rules.add("Make the counts and the queue in __init__, on self.")
def two_caches_share_nothing(part, rng):
    _cache(part).do("release", [7, 8])
    told = Told(part(2), "another CountedCache(2)")
    told.reads(0, "num_evictable")
    _counts(told, {7: 0, 8: 0})
    told.matches([], 2, [1, 2, 3])


@rules.add("`unused` is a copy: what a caller does to it leaves the queue as it is.")
def lists_belong_to_the_caller(part, rng):
    told = _cache(part)
    told.do("release", [7, 8])
    told.cache.unused.clear()
    told.reads([7, 8], "unused")


@rules.add("Play the calls through by hand, with the users of each block beside them.")
def any_order_of_calls_holds(part, rng):
    for size in (1, 2):
        told, truth = Told(part(size), f"CountedCache({size})"), Truth(size)
        requests = _Queues(told, truth, rng, tail_first=False)

        def forget(truth=truth, told=told):
            some = rng.sample(truth.unused, rng.randint(1, len(truth.unused)))
            truth.forget(some)
            told.do("forget", some)

        requests.play(60, forget)


class _Queues(Requests):
    """The order of the unused is read, too."""

    def compare(self) -> None:
        self.told.reads(list(self.truth.unused), "unused")
        super().compare()
