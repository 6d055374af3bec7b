"""2.2 `BlockPool(num_blocks)`: `allocate(n)`, `free(blocks)`, `ref_count(block)`, `num_free`, `num_blocks`.

Which of the free blocks comes next is the pool's own business. A call that is refused changes nothing.
"""

from __future__ import annotations

from ...kv.blocks import OutOfBlocks
from .expect import refuses, same, show
from .rules import Broken, Rules

rules = Rules()


def take(pool, n: int, called: str) -> list[int]:
    """n blocks from the pool, which must be n different plain numbers of the pool's range."""
    blocks = pool.allocate(n)
    if not isinstance(blocks, list) or len(blocks) != n:
        raise Broken(called, show(blocks), f"a list of {n} block ids")
    wrong = [b for b in blocks if type(b) is not int or not 0 <= b < pool.num_blocks]
    if wrong or len(set(blocks)) != n:
        raise Broken(called, show(blocks), f"{n} different whole numbers from 0 to {pool.num_blocks - 1}")
    return list(blocks)


def runs_out(pool, n: int, called: str) -> None:
    """allocate(n) must raise `OutOfBlocks`."""
    try:
        got = pool.allocate(n)
    except OutOfBlocks:
        return
    except IndexError as error:
        raise Broken(called, f"IndexError: {error}", "OutOfBlocks") from None
    raise Broken(called, show(got), "OutOfBlocks")


@rules.add("All blocks are free at first. num_free is a property: no brackets when it is read.")
def a_new_pool_is_all_free(part, rng):
    for n in (1, 7):
        same(f"BlockPool({n}).num_free", part(n).num_free, n)
        same(f"BlockPool({n}).num_blocks", part(n).num_blocks, n)


@rules.add("Take n ids out of the free ones, and return them as a list.")
def allocate_gives_different_blocks_of_the_pool(part, rng):
    for n in (0, 1, 5, 8):
        take(part(8), n, f"BlockPool(8).allocate({n})")


@rules.add("What is taken is no longer free.")
def num_free_goes_down_and_up(part, rng):
    pool = part(8)
    first = take(pool, 3, "allocate(3)")
    same("BlockPool(8): allocate(3), num_free", pool.num_free, 5)
    take(pool, 1, "allocate(1)")
    same("BlockPool(8): allocate(3), allocate(1), num_free", pool.num_free, 4)
    pool.free(first)
    same("BlockPool(8): allocate(3), allocate(1), free of the 3, num_free", pool.num_free, 7)


@rules.add("A block has one owner: it must leave the free ones when it is given out.")
def no_block_is_given_out_twice(part, rng):
    pool = part(9)
    blocks = [b for n in (4, 1, 3, 1) for b in take(pool, n, f"allocate({n})")]
    same("BlockPool(9): allocate 4, 1, 3, 1; all ids, sorted", sorted(blocks), list(range(9)))


@rules.add("free puts the ids back among the free ones; the next allocate may hand them out.")
def freed_blocks_come_back(part, rng):
    pool = part(6)
    blocks = take(pool, 6, "allocate(6)")
    back = blocks[1:4]
    pool.free(list(back))
    again = take(pool, 3, "allocate(3)")
    same(f"BlockPool(6): allocate(6), free({back}), allocate(3), sorted", sorted(again), sorted(back))


@rules.add("raise OutOfBlocks when n is larger than num_free, before any block is taken.")
def too_many_are_refused_whole(part, rng):
    pool = part(8)
    take(pool, 3, "allocate(3)")
    runs_out(pool, 6, "BlockPool(8): allocate(3), allocate(6)")
    same("BlockPool(8): allocate(3), allocate(6) refused, num_free", pool.num_free, 5)
    take(pool, 5, "BlockPool(8): allocate(3), allocate(6) refused, allocate(5)")
    runs_out(pool, 1, "a pool with no free block: allocate(1)")
    take(pool, 0, "a pool with no free block: allocate(0)")


@rules.add("A negative number of blocks is a mistake of the caller: ValueError. list[:-1] would not notice.")
def a_negative_number_is_refused(part, rng):
    pool = part(4)
    refuses("BlockPool(4).allocate(-1)", lambda: pool.allocate(-1))
    same("BlockPool(4): allocate(-1) refused, num_free", pool.num_free, 4)


@rules.add("ref_count is 1 for a block that is taken and 0 for one that is free.")
def ref_count_tells_taken_from_free(part, rng):
    pool = part(5)
    blocks = take(pool, 3, "allocate(3)")
    counts = [pool.ref_count(b) for b in range(5)]
    same(f"allocate(3) gave {blocks}; ref_count of 0 … 4", counts, [int(b in blocks) for b in range(5)])
    pool.free(blocks[:1])
    same(f"free({blocks[:1]}), ref_count({blocks[0]})", pool.ref_count(blocks[0]), 0)
    same(f"free({blocks[:1]}), ref_count({blocks[1]})", pool.ref_count(blocks[1]), 1)


@rules.add("Make the free list in __init__, on self; not on the class, not as a default value.")
def two_pools_share_nothing(part, rng):
    first, second = part(4), part(6)
    blocks = take(first, 3, "allocate(3)")
    same("num_free of another pool", second.num_free, 6)
    same("ref_count in another pool", [second.ref_count(b) for b in blocks], [0, 0, 0])
    take(second, 6, "allocate(6) in another pool")
    same("num_free of both", [first.num_free, second.num_free], [1, 0])


@rules.add("Remember which blocks are taken; a block that is not taken cannot be freed.")
def a_double_free_is_an_error(part, rng):
    pool = part(4)
    blocks = take(pool, 2, "allocate(2)")
    pool.free(list(blocks))
    refuses(f"free({blocks}), free({blocks[:1]})", lambda: pool.free(blocks[:1]))
    fresh = part(4)
    refuses("a new pool: free([2])", lambda: fresh.free([2]))
    same("BlockPool(4), free([2]) refused, num_free", fresh.num_free, 4)


@rules.add("An id named twice in one call is a double free, too.")
def a_double_free_in_one_call_is_an_error(part, rng):
    pool = part(4)
    blocks = take(pool, 3, "allocate(3)")
    twice = [blocks[0], blocks[1], blocks[0]]
    refuses(f"allocate(3), free({twice})", lambda: pool.free(twice))
    same(f"allocate(3), free({twice}) refused, num_free", pool.num_free, 1)


@rules.add("Ids go from 0 to num_blocks − 1. In Python, −1 is an index like any other: check for it.")
def foreign_ids_are_errors(part, rng):
    pool = part(4)
    take(pool, 4, "allocate(4)")
    for block in (4, -1, 99):
        refuses(f"BlockPool(4), all taken: free([{block}])", lambda b=block: pool.free([b]))
        refuses(f"BlockPool(4), all taken: ref_count({block})", lambda b=block: pool.ref_count(b))
    same("BlockPool(4), all taken, foreign ids refused, num_free", pool.num_free, 0)


@rules.add("Look at all ids before you free the first one.")
def a_refused_free_changes_nothing(part, rng):
    pool = part(6)
    blocks = take(pool, 3, "allocate(3)")
    free = [b for b in range(6) if b not in blocks]
    for wrong in (free[0], 6, -1):
        call = [*blocks[:2], wrong, blocks[2]]
        refuses(f"{blocks} are taken: free({call})", lambda c=call: pool.free(c))
        same(f"{blocks} are taken: free({call}) refused, num_free", pool.num_free, 3)
        counts = [pool.ref_count(b) for b in blocks]
        same(f"free({call}) refused, ref_count of {blocks}", counts, [1, 1, 1])
    pool.free(blocks)
    again = take(pool, 6, "allocate(6)")
    same("then free of the three, allocate(6), sorted", sorted(again), list(range(6)))


@rules.add("free([]) does nothing: a request may end before it has a block.")
def nothing_can_be_freed(part, rng):
    pool = part(3)
    take(pool, 1, "allocate(1)")
    pool.free([])
    same("BlockPool(3): allocate(1), free([]), num_free", pool.num_free, 2)


@rules.add("Keep copies: the caller may change the list that it gave or got.")
def lists_belong_to_the_caller(part, rng):
    pool = part(5)
    blocks = pool.allocate(5)
    back = list(blocks)
    blocks.clear()
    pool.free(back)
    back.clear()
    same("allocate(5), free of the 5, the caller clears its lists, num_free", pool.num_free, 5)
    take(pool, 5, "allocate(5) after that")


@rules.add("Play the calls through by hand, with the set of taken blocks beside them.")
def any_order_of_calls_holds(part, rng):
    num_blocks = 12
    pool = part(num_blocks)
    taken: list[int] = []
    story: list[str] = []
    for _ in range(200):
        n = rng.randint(0, 5)
        if rng.random() < 0.5:
            called = f"BlockPool({num_blocks}): {', '.join(story[-6:])}, allocate({n})"
            if n > num_blocks - len(taken):
                runs_out(pool, n, called)
            else:
                blocks = take(pool, n, called)
                both = set(blocks) & set(taken)
                if both:
                    raise Broken(called, show(blocks), f"blocks that are free; {min(both)} is taken")
                taken += blocks
                story.append(f"allocate({n})")
        else:
            rng.shuffle(taken)
            back, taken = taken[:n], taken[n:]
            pool.free(list(back))
            story.append(f"free({back})")
        same(f"{', '.join(story[-6:])}; num_free", pool.num_free, num_blocks - len(taken))
