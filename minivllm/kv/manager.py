"""The KV manager: which request owns which blocks.

It joins the block pool and the requests' block tables, and is the only one who moves blocks between
them. The scheduler asks it for room (`reserve`), gives room back (`free`) and asks how much is left;
it never sees a block id. What changes in the tables is noted in `changes`, which the trace reads.
"""

from __future__ import annotations

from typing import Any

from ..request import Request
from .blocks import BlockPool, BlockTable


class KVManager:
    """Built once per engine. `block_table` is the factory of the tables: (block_size) -> table."""

    def __init__(self, pool: BlockPool, block_size: int, block_table: Any = BlockTable) -> None:
        self.pool = pool
        self.block_size = block_size
        self.num_blocks = pool.num_blocks
        self.tables: dict[str, BlockTable] = {}
        self.changes: list[tuple[str, list[int] | None]] = []
        self._block_table = block_table

    @property
    def num_free_blocks(self) -> int:
        return self.pool.num_free

    def num_missing_tokens(self, request: Request) -> int:
        """Tokens of the request that are known but have no keys and values yet; never 0."""
        return len(request.token_ids) - request.num_computed_tokens

    def blocks_missing(self, request: Request) -> int:
        """Blocks still to be taken until every known token of the request has its place."""
        table = self.tables.get(request.request_id)
        owned = len(table.blocks) if table is not None else 0
        return max(0, -(-len(request.token_ids) // self.block_size) - owned)

    def room_for(self, request: Request, n: int) -> int:
        """How many of n more tokens could be placed without taking a block from anybody."""
        table = self.tables.get(request.request_id)
        owned = len(table.blocks) if table is not None else 0
        slots = (owned + self.num_free_blocks) * self.block_size
        return max(0, min(n, slots - request.num_computed_tokens))

    def reserve(self, request: Request, end: int) -> BlockTable | None:
        """Make the request's table cover its first `end` tokens, and return the table; None, and
        nothing changed, when the free blocks do not suffice."""
        table = self.tables.get(request.request_id)
        if table is None:
            table = self._block_table(self.block_size)
        extra = end - table.num_tokens
        if extra > 0:
            needed = table.blocks_needed(extra)
            if needed > self.pool.num_free:
                return None
            new_blocks = self.pool.allocate(needed) if needed else []
            table.append_tokens(extra, new_blocks)
            if needed:
                self.changes.append((request.request_id, new_blocks))
        self.tables[request.request_id] = table
        return table

    def free(self, request: Request) -> None:
        """Give back all blocks of the request. Does nothing if it owns none."""
        table = self.tables.pop(request.request_id, None)
        if table is not None:
            self.pool.free(table.blocks)
            self.changes.append((request.request_id, None))

    def check(self) -> None:
        """Reference counts equal the number of tables that hold the block; free + used = total."""
        check = getattr(self.pool, "check", None)
        if check is not None:
            check()
        owners = [0] * self.num_blocks
        for request_id, table in self.tables.items():
            assert len(set(table.blocks)) == len(table.blocks), f"{request_id} holds a block twice"
            capacity = len(table.blocks) * self.block_size
            assert table.num_tokens <= capacity, (
                f"{request_id}: {table.num_tokens} tokens in {capacity} slots"
            )
            for block in table.blocks:
                owners[block] += 1
        for block, count in enumerate(owners):
            assert count == self.pool.ref_count(block), (
                f"block {block} is in {count} tables, but has {self.pool.ref_count(block)} references"
            )
        used = sum(1 for count in owners if count)
        assert used + self.pool.num_free == self.num_blocks, "free and used blocks do not add up"
