"""Swap space: blocks in host memory, where a preempted request's keys and values can wait.

Only the bookkeeping is here. The moves are pairs of block ids, collected until the scheduler takes them
into its plan; a host block that is read in this step is given back only when the step has run.
"""

from __future__ import annotations

from .blocks import BlockPool


class SwapSpace:
    """`num_blocks` host blocks; 0 for none."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.tables: dict[str, list[int]] = {}
        self.moves_out: list[tuple[int, int]] = []
        self.moves_in: list[tuple[int, int]] = []
        self._pool = BlockPool(num_blocks) if num_blocks else None
        self._held: list[int] = []

    @property
    def num_free_blocks(self) -> int:
        return self._pool.num_free if self._pool else 0

    def put(self, request_id: str, blocks: list[int]) -> bool:
        """Plan to copy these device blocks to the host. False, and nothing changed, if it is full."""
        if len(blocks) > self.num_free_blocks:
            return False
        self.tables[request_id] = self._pool.allocate(len(blocks))
        self.moves_out += zip(blocks, self.tables[request_id], strict=True)
        return True

    def take(self, request_id: str, blocks: list[int]) -> None:
        """Plan to copy the request's host blocks to these device blocks."""
        host_blocks = self.tables.pop(request_id)
        self.moves_in += zip(host_blocks, blocks, strict=True)
        self._held += host_blocks

    def drop(self, request_id: str) -> None:
        """Forget what the request has here, if anything."""
        if request_id in self.tables:
            self._held += self.tables.pop(request_id)  # its copy may be part of the step that is planned

    def settle(self) -> None:
        """The step has run: host blocks that it read are free now."""
        if self._held:
            self._pool.free(self._held)
            self._held = []

    def check(self) -> None:
        if self._pool is not None:
            self._pool.check()
            owned = [block for table in self.tables.values() for block in table] + self._held
            assert len(set(owned)) == len(owned), "a host block is owned twice"
            assert len(owned) + self._pool.num_free == self.num_blocks, "host blocks are lost"
