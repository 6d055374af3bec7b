"""The block pool and the block table: virtual memory for keys and values.

KV memory is cut into blocks of `block_size` token slots. `BlockPool` knows which blocks are free
and how often each of the others is referenced; it knows nothing of requests, tokens or hashes.
`BlockTable` is a request's page table: position p lives in slot p % block_size of block
`blocks[p // block_size]`. A block is taken only when a token needs it, so a request wastes less
than one block. (PagedAttention: Kwon et al., 2023.)
"""

from __future__ import annotations

from collections.abc import Iterable


class OutOfBlocks(Exception):
    """The pool has fewer free blocks than were asked for. Nothing was taken."""


class BlockPool:
    """`num_blocks` blocks with reference counts. Free blocks are reused last-in, first-out, so a
    small working set stays in the processor's caches."""

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}; a pool needs at least 1 block")
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._ref_counts = [0] * num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    def ref_count(self, block: int) -> int:
        """How many owners the block has; 0 if it is free. `ValueError` for an id not of this pool."""
        self._check_id(block)
        return self._ref_counts[block]

    def allocate(self, n: int) -> list[int]:
        """Take n free blocks, each with one reference. All or nothing: `OutOfBlocks` takes none."""
        if n < 0:
            raise ValueError(f"cannot allocate {n} blocks; ask for 0 or more")
        if n > len(self._free):
            raise OutOfBlocks(f"{n} blocks wanted, {len(self._free)} of {self.num_blocks} are free")
        blocks = [self._free.pop() for _ in range(n)]
        for block in blocks:
            self._ref_counts[block] = 1
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """Add one reference to each block. `ValueError` for a free block; then nothing changes."""
        blocks = list(blocks)
        for block in blocks:
            self._check_used(block, "shared")
        for block in blocks:
            self._ref_counts[block] += 1

    def free(self, blocks: Iterable[int]) -> None:
        """Drop one reference of each block; at 0 the block returns to the pool. `ValueError` for a
        block that has no reference left to drop; then nothing changes."""
        blocks = list(blocks)
        drops: dict[int, int] = {}
        for block in blocks:
            self._check_used(block, "freed")
            drops[block] = drops.get(block, 0) + 1
            if drops[block] > self._ref_counts[block]:
                raise ValueError(
                    f"block {block} is freed {drops[block]} times, but has "
                    f"{self._ref_counts[block]} references; free each reference once"
                )
        for block in blocks:
            self._ref_counts[block] -= 1
            if self._ref_counts[block] == 0:
                self._free.append(block)

    def check(self) -> None:
        """Every block is free with no reference, or referenced and not free; none is twice free."""
        free = set(self._free)
        assert len(free) == len(self._free), "a block is in the free list twice"
        for block, count in enumerate(self._ref_counts):
            assert count >= 0, f"block {block} has {count} references"
            assert (count == 0) == (block in free), f"block {block}: {count} references, free {block in free}"

    def _check_id(self, block: int) -> None:
        if not 0 <= block < self.num_blocks:
            raise ValueError(f"block {block} is not of this pool, whose ids are 0 to {self.num_blocks - 1}")

    def _check_used(self, block: int, verb: str) -> None:
        self._check_id(block)
        if self._ref_counts[block] == 0:
            raise ValueError(f"block {block} is free, so it cannot be {verb}; allocate it first")


class BlockTable:
    """Where the first `num_tokens` tokens of one request live. `block_size` is tokens per block."""

    __slots__ = ("block_size", "blocks", "num_tokens")

    def __init__(self, block_size: int) -> None:
        if block_size < 1:
            raise ValueError(f"block_size is {block_size}; a block holds at least 1 token")
        self.block_size = block_size
        self.blocks: list[int] = []
        self.num_tokens = 0

    def blocks_needed(self, n: int) -> int:
        """How many new blocks n more tokens would take."""
        return max(0, -(-(self.num_tokens + n) // self.block_size) - len(self.blocks))

    def append_tokens(self, n: int, new_blocks: list[int]) -> None:
        """Grow by n tokens, into the free slots of the last block and then `new_blocks`, which must
        be exactly `blocks_needed(n)` blocks; `ValueError` otherwise."""
        needed = self.blocks_needed(n)
        if len(new_blocks) != needed:
            raise ValueError(f"{n} more tokens need {needed} new blocks, {len(new_blocks)} were given")
        self.blocks.extend(new_blocks)
        self.num_tokens += n

    def slot_mapping(self, start: int, n: int) -> list[int]:
        """Slots of positions start … start + n − 1: block id · block_size + offset in the block."""
        if start < 0 or n < 0 or start + n > self.num_tokens:
            raise ValueError(
                f"positions {start} to {start + n - 1} are not all in the table of {self.num_tokens} tokens"
            )
        size, blocks = self.block_size, self.blocks
        if n == 1:
            return [blocks[start // size] * size + start % size]
        return [blocks[p // size] * size + p % size for p in range(start, start + n)]

    def fork(self) -> BlockTable:
        """A second table over the same blocks. Whoever forks must `share` the blocks in the pool."""
        child = type(self)(self.block_size)
        child.blocks = list(self.blocks)
        child.num_tokens = self.num_tokens
        return child
