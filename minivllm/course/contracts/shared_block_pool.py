"""2.5 `SharedBlockPool(num_blocks)`: the pool of 2.2, and `share(blocks)`, `copy_on_write(block)`.

`ref_count` is the number of owners; `free` drops one, and a block without owners is free.
"""

from __future__ import annotations

from .block_pool import runs_out, take
from .expect import refuses, same, show
from .rules import Broken, Rules

rules = Rules()


@rules.add("Nobody shares yet, so it is still the pool of 2.2: let that pool allocate and free.")
def without_sharing_it_is_the_pool_of_before(part, rng):
    pool = part(6)
    same("SharedBlockPool(6).num_blocks, num_free", [pool.num_blocks, pool.num_free], [6, 6])
    blocks = take(pool, 4, "allocate(4)")
    same("allocate(4), ref_count of each", [pool.ref_count(b) for b in blocks], [1] * 4)
    runs_out(pool, 3, "SharedBlockPool(6): allocate(4), allocate(3)")
    pool.free(blocks[:3])
    same("allocate(4), free of 3, num_free", pool.num_free, 5)
    same("ref_count of what is free again", [pool.ref_count(b) for b in blocks[:3]], [0] * 3)
    take(pool, 5, "allocate(4), free of 3, allocate(5)")


@rules.add("share adds one owner to each block, and takes none from the pool.")
def share_adds_an_owner(part, rng):
    pool = part(6)
    a, b = take(pool, 2, "allocate(2)")
    pool.share([a, b])
    pool.share([a])
    called = "allocate(2), share of both, share of the first: ref_count"
    same(called, [pool.ref_count(a), pool.ref_count(b)], [3, 2])
    same("allocate(2), share, share: num_free", pool.num_free, 4)


@rules.add("free drops one owner; the block goes back to the pool only when none is left.")
def a_block_is_free_when_its_last_owner_leaves(part, rng):
    pool = part(3)
    (block,) = take(pool, 1, "allocate(1)")
    pool.share([block])
    pool.free([block])
    same("allocate(1), share, free: num_free", pool.num_free, 2)
    same("allocate(1), share, free: ref_count", pool.ref_count(block), 1)
    others = take(pool, 2, "allocate(2)")
    if block in others:
        raise Broken("allocate(1), share, free, allocate(2)", show(others), f"{block} not given out again")
    pool.free([block])
    same("the last owner frees it: num_free", pool.num_free, 1)
    same("allocate(1) after that", take(pool, 1, "allocate(1)"), [block])


@rules.add("An id named twice in one call counts twice, in share and in free.")
def a_block_named_twice_counts_twice(part, rng):
    pool = part(3)
    (block,) = take(pool, 1, "allocate(1)")
    pool.share([block, block])
    same("allocate(1), share of it twice in one call: ref_count", pool.ref_count(block), 3)
    pool.free([block, block])
    same("then free of it twice in one call: ref_count", pool.ref_count(block), 1)
    pool.free([block])
    same("then free once more: num_free", pool.num_free, 3)


@rules.add("Only a block that has an owner can get another. Look at all ids before you change the first.")
def free_and_foreign_blocks_cannot_be_shared(part, rng):
    pool = part(4)
    blocks = take(pool, 2, "allocate(2)")
    free = next(b for b in range(4) if b not in blocks)
    for wrong in (free, 4, -1):
        call = [blocks[0], wrong, blocks[1]]
        refuses(f"{blocks} are taken: share({call})", lambda c=call: pool.share(c))
        same(f"share({call}) refused: ref_count", [pool.ref_count(b) for b in blocks], [1, 1])
    same("after that: num_free", pool.num_free, 2)


@rules.add("Count how often each id is named, and compare with its owners before anything changes.")
def more_drops_than_owners_are_refused_whole(part, rng):
    pool = part(5)
    a, b = take(pool, 2, "allocate(2)")
    pool.share([a])
    free = next(x for x in range(5) if x not in (a, b))
    for call in ([a, b, a, a], [a, b, b], [a, free], [b, 5], [b, -1]):
        refuses(f"{a} has 2 owners, {b} has 1: free({call})", lambda c=call: pool.free(c))
        same(f"free({call}) refused: ref_count", [pool.ref_count(x) for x in (a, b)], [2, 1])
        same(f"free({call}) refused: num_free", pool.num_free, 3)
    pool.free([a, b, a])
    same(f"then free({[a, b, a]}): num_free", pool.num_free, 5)
    refuses(f"and once more free([{a}])", lambda: pool.free([a]))


@rules.add("A block that comes from the pool again has one owner, whatever it had before.")
def a_block_starts_anew(part, rng):
    pool = part(1)
    (block,) = take(pool, 1, "allocate(1)")
    pool.share([block])
    pool.free([block, block])
    take(pool, 1, "allocate(1)")
    same("1 block: allocate, share, free twice, allocate: ref_count", pool.ref_count(block), 1)


@rules.add("ref_count refuses ids that are not of this pool, as in 2.2.")
def foreign_ids_have_no_count(part, rng):
    pool = part(4)
    take(pool, 4, "allocate(4)")
    for block in (4, -1):
        refuses(f"SharedBlockPool(4).ref_count({block})", lambda b=block: pool.ref_count(b))


@rules.add("A block with one owner can be written where it is: return it as it is, take nothing.")
def the_only_owner_writes_in_place(part, rng):
    pool = part(2)
    (block,) = take(pool, 1, "allocate(1)")
    same(f"one owner: copy_on_write({block})", pool.copy_on_write(block), block)
    same("after that: num_free, ref_count", [pool.num_free, pool.ref_count(block)], [1, 1])


@rules.add("Shared: take a new block, drop one owner of the old one, return the new one.")
def a_shared_block_is_left_to_the_others(part, rng):
    pool = part(4)
    (block,) = take(pool, 1, "allocate(1)")
    pool.share([block, block])
    seen = [block]
    for owners in (2, 1):
        copy = pool.copy_on_write(block)
        if copy in seen or not 0 <= copy < 4:
            raise Broken(f"{owners + 1} owners: copy_on_write({block})", show(copy), "a block of its own")
        seen.append(copy)
        counts = [pool.ref_count(block), pool.ref_count(copy)]
        same(f"then ref_count of {block} and of the copy", counts, [owners, 1])
    same(f"the last owner: copy_on_write({block})", pool.copy_on_write(block), block)
    same("three owners, each with a block now: num_free", pool.num_free, 1)


@rules.add("Take the new block first; when the pool is empty, OutOfBlocks must leave all as it was.")
def without_a_free_block_nothing_changes(part, rng):
    pool = part(2)
    a, b = take(pool, 2, "allocate(2)")
    pool.share([a])
    called = f"no block free, {a} has 2 owners: copy_on_write({a})"
    runs_out(_Copier(pool), a, called)
    same(f"{called} refused: ref_count", [pool.ref_count(x) for x in (a, b)], [2, 1])
    same(f"one owner: copy_on_write({b})", pool.copy_on_write(b), b)


class _Copier:
    """Lets `runs_out` look at copy_on_write."""

    def __init__(self, pool) -> None:
        self.allocate = pool.copy_on_write


@rules.add("Nobody may write into a block that nobody owns: ValueError.")
def a_free_block_is_not_written(part, rng):
    pool = part(3)
    (block,) = take(pool, 1, "allocate(1)")
    pool.free([block])
    for wrong in (block, 3, -1):
        refuses(f"nobody owns it: copy_on_write({wrong})", lambda b=wrong: pool.copy_on_write(b))
    same("after that: num_free", pool.num_free, 3)


@rules.add("Make the counts in __init__, on self.")
def two_pools_share_nothing(part, rng):
    first, second = part(3), part(3)
    blocks = take(first, 2, "allocate(2)")
    first.share(list(blocks))
    same("ref_count in another pool", [second.ref_count(b) for b in blocks], [0, 0])
    same("num_free of both", [first.num_free, second.num_free], [1, 3])


@rules.add("Play the calls through by hand, with the number of owners of each block beside them.")
def any_order_of_calls_holds(part, rng):
    num_blocks = 8
    pool, owners = part(num_blocks), [0] * num_blocks
    story: list[str] = []
    for _ in range(250):
        refs = [b for b in range(num_blocks) for _ in range(owners[b])]
        some = rng.sample(refs, min(len(refs), rng.randint(0, 3)))
        kind = rng.choice(["allocate", "share", "free", "free", "copy"])
        before = ", ".join(story[-6:])
        if kind == "allocate" or (kind == "copy" and not some):
            n = rng.randint(0, 3)
            if n > owners.count(0):
                runs_out(pool, n, f"{before}, allocate({n})")
            else:
                for block in _new(pool.allocate(n), owners, f"{before}, allocate({n})"):
                    owners[block] = 1
                story.append(f"allocate({n})")
        elif kind == "copy":
            _copy(pool, owners, some[0], f"{before}, copy_on_write({some[0]})")
            story.append(f"copy_on_write({some[0]})")
        else:
            (pool.share if kind == "share" else pool.free)(list(some))
            for block in some:
                owners[block] += 1 if kind == "share" else -1
            story.append(f"{kind}({some})")
        called = f"SharedBlockPool({num_blocks}): {', '.join(story[-6:])}"
        same(f"{called}; ref_count of 0 … 7", [pool.ref_count(b) for b in range(num_blocks)], owners)
        same(f"{called}; num_free", pool.num_free, owners.count(0))


def _copy(pool, owners: list[int], block: int, called: str) -> None:
    if owners[block] == 1:
        same(called, pool.copy_on_write(block), block)
    elif 0 not in owners:
        runs_out(_Copier(pool), block, called)
    else:
        (copy,) = _new([pool.copy_on_write(block)], owners, called)
        owners[block] -= 1
        owners[copy] = 1


def _new(blocks: list[int], owners: list[int], called: str) -> list[int]:
    if len(set(blocks)) != len(blocks) or any(owners[b] for b in blocks):
        raise Broken(called, show(blocks), "blocks that nobody owns")
    return blocks
