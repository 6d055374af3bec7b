"""Paging in three small pieces: what an allocator wastes, a pool without sharing, a pool with it.

`replay` counts the two kinds of fragmentation for any allocator that rounds requests up to a unit.
`BlockPool` gives out blocks to one owner each; `SharedBlockPool` lies around such a pool and counts owners,
using its interface alone, so that it extends any pool that keeps it. The engine's own pool,
the block table and paged attention are in kv/blocks.py and attention/paged.py. The reference of lab 02.
"""

from __future__ import annotations

from collections import Counter

from ...kv.blocks import OutOfBlocks


def replay(trace: list[tuple[str, int]], num_slots: int, unit: int, contiguous: bool) -> tuple[int, int, int]:
    """(slots reserved and never used, requests refused, requests refused although enough slots were
    free). A trace entry is a request's name and the slots it needs, or 0 when it ends; sizes are rounded
    up to multiples of `unit`, and a contiguous piece goes to the lowest hole that takes it."""
    held: dict[str, tuple[int, int]] = {}  # name → (start, size); starts mean nothing unless contiguous
    internal = refused = external = 0
    for name, length in trace:
        if length == 0:
            held.pop(name, None)
            continue
        size = -(-length // unit) * unit
        free = num_slots - sum(taken for _, taken in held.values())
        start = _lowest_hole(held, size) if contiguous else num_slots - free
        if start + size > num_slots:
            refused += 1
            external += size <= free
        else:
            held[name] = start, size
            internal += size - length
    return internal, refused, external


def _lowest_hole(held: dict[str, tuple[int, int]], size: int) -> int:
    start = 0
    for taken, taken_size in sorted(held.values()):
        if taken - start >= size:
            break
        start = taken + taken_size
    return start


class BlockPool:
    """`num_blocks` blocks, each free or with one owner. Last in, first out."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks))
        self._is_free = [True] * num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    def ref_count(self, block: int) -> int:
        """1 for a block that is taken, 0 for one that is free; `ValueError` for an id not of this pool."""
        if not 0 <= block < self.num_blocks:
            raise ValueError(f"block {block} is not of this pool, whose ids are 0 to {self.num_blocks - 1}")
        return 0 if self._is_free[block] else 1

    def allocate(self, n: int) -> list[int]:
        """Take n free blocks; `OutOfBlocks`, and none taken, if there are fewer."""
        if n < 0:
            raise ValueError(f"cannot allocate {n} blocks; ask for 0 or more")
        if n > len(self._free):
            raise OutOfBlocks(f"{n} blocks wanted, {len(self._free)} are free")
        blocks = [self._free.pop() for _ in range(n)]
        for block in blocks:
            self._is_free[block] = False
        return blocks

    def free(self, blocks: list[int]) -> None:
        """Give blocks back; `ValueError`, and nothing changed, unless all are taken and named once."""
        if len(set(blocks)) < len(blocks) or not all(self.ref_count(block) for block in blocks):
            raise ValueError(f"{blocks} are not all taken, or one is named twice; free a block once")
        for block in blocks:
            self._is_free[block] = True
        self._free += blocks


class SharedBlockPool:
    """A pool whose blocks have any number of owners. `share` adds one to each block, `free` drops one."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._pool = BlockPool(num_blocks)
        self._owners: Counter[int] = Counter()

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    def ref_count(self, block: int) -> int:
        """Number of owners, 0 for a free block; `ValueError` for an id not of this pool."""
        return self._owners[block] if self._pool.ref_count(block) else 0

    def allocate(self, n: int) -> list[int]:
        """Take n free blocks, each with one owner; `OutOfBlocks`, and none taken, if there are fewer."""
        blocks = self._pool.allocate(n)
        self._owners.update(blocks)
        return blocks

    def share(self, blocks: list[int]) -> None:
        """One more owner for each block; `ValueError`, and nothing changed, if one of them is free."""
        if not all(self.ref_count(block) for block in blocks):
            raise ValueError(f"{blocks} are not all taken; only what has an owner can be shared")
        self._owners.update(blocks)

    def free(self, blocks: list[int]) -> None:
        """One owner less for each block; those with none left go back. `ValueError`, and nothing
        changed, for more drops than a block has owners."""
        drops = Counter(blocks)
        if any(n > self.ref_count(block) for block, n in drops.items()):
            raise ValueError(f"{blocks} names a block more often than it has owners; drop each owner once")
        self._owners.subtract(drops)
        self._pool.free([block for block in drops if self._owners[block] == 0])

    def copy_on_write(self, block: int) -> int:
        """The block that one of the owners may write into: the same if it is the only owner, else a new
        block in its stead. The caller copies the contents."""
        if self.ref_count(block) == 0:
            raise ValueError(f"block {block} is free; nobody may write into it")
        if self.ref_count(block) == 1:
            return block
        (copy,) = self.allocate(1)
        self.free([block])
        return copy
