"""The KV manager: which request owns which blocks.

It joins the block pool, the requests' block tables and the prefix cache, and is the only one who moves
blocks between them. The scheduler asks it for room and gives room back; it never sees a block id. A
block counts as free when nobody owns it, or when only the prefix cache does: then it is evicted as
soon as it is needed. Copies that must happen before the next forward pass are collected until the
scheduler takes them into its plan, and every change of a table is noted for the trace.
"""

from __future__ import annotations

from typing import Any

from ..request import Request
from .blocks import BlockPool, BlockTable
from .prefix import Match, PrefixCache
from .swap import SwapSpace


class KVManager:
    """Built once per engine. `block_table` is the factory of tables; `prefix_cache` may be None;
    `num_host_blocks` is the size of the swap space, in blocks of the same size."""

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        block_table: Any = BlockTable,
        prefix_cache: PrefixCache | None = None,
        num_host_blocks: int = 0,
    ) -> None:
        self.pool = pool
        self.block_size = block_size
        self.num_blocks = pool.num_blocks
        self.prefix_cache = prefix_cache
        self.swap = SwapSpace(num_host_blocks)
        self.tables: dict[str, BlockTable] = {}
        self.changes: list[tuple[str, str | None, Any]] = []
        self.num_prefix_queries = 0
        self.num_prefix_hits = 0
        self._block_table = block_table
        self._matched: dict[str, int] = {}  # tokens that a request's table began with
        self._num_inserted: dict[str, int] = {}  # blocks of a table that the prefix cache holds
        self._copies: list[tuple[int, int]] = []
        self._held: list[list[int]] = []  # what copies read from, referenced until the step has run

    @property
    def num_free_blocks(self) -> int:
        return self.pool.num_free + self.num_evictable_blocks

    @property
    def num_evictable_blocks(self) -> int:
        """Free blocks that the prefix cache still holds."""
        return 0 if self.prefix_cache is None else self.prefix_cache.num_evictable

    def num_missing_tokens(self, request: Request) -> int:
        """Tokens of the request that are known but have no keys and values yet; never 0."""
        if request.num_computed_tokens:
            return len(request.token_ids) - request.num_computed_tokens
        if request.request_id in self.tables:
            return len(request.token_ids) - self._matched.get(request.request_id, 0)
        match = self._match(request)
        return len(request.token_ids) - match.num_tokens - (match.partial[1] if match.partial else 0)

    def blocks_missing(self, request: Request) -> int:
        """Blocks still to be taken until every known token of the request has its place."""
        total = -(-len(request.token_ids) // self.block_size)
        table = self.tables.get(request.request_id)
        if table is not None:
            return max(0, total - len(table.blocks))
        if request.request_id in self.swap.tables:
            return total
        # A cached block that others use is not taken again; one that nobody uses leaves the free ones.
        return total - sum(1 for block in self._match(request).blocks if self.pool.ref_count(block) > 1)

    def open(self, request: Request) -> int:
        """Number of the request's tokens that have keys and values. A request without a table gets one,
        with all that the prefix cache knows of it."""
        if request.request_id not in self.tables:
            self._start_table(request)
        return request.num_computed_tokens or self._matched.get(request.request_id, 0)

    def room_for(self, request: Request, n: int) -> int:
        """How many of n more tokens could be placed without taking a block from anybody."""
        table = self.tables[request.request_id]
        own = len(table.blocks) - self._must_copy(table)
        return max(0, min(n, (own + self.num_free_blocks) * self.block_size - self.open(request)))

    def reserve(self, request: Request, end: int) -> BlockTable | None:
        """Make the opened request's table cover its first `end` tokens, and return the table; None, and
        nothing changed, when the free blocks do not suffice. A last block that is shared is copied
        first (copy-on-write)."""
        table = self.tables[request.request_id]
        extra = end - table.num_tokens
        if extra > 0:
            needed = table.blocks_needed(extra)
            if not needed and self.pool.ref_count(table.blocks[-1]) == 1:
                table.append_tokens(extra, [])
                return table
            must_copy = self._must_copy(table)
            if needed + must_copy > self.num_free_blocks:
                return None
            if must_copy:
                self._copy_last_block(request, table)
            new_blocks = self._take(needed)
            table.append_tokens(extra, new_blocks)
            if new_blocks:
                self.changes.append(("append", request.request_id, new_blocks))
        return table

    def free(self, request: Request) -> None:
        """Give back all that the request owns, on the device and on the host."""
        self.swap.drop(request.request_id)
        table = self.tables.pop(request.request_id, None)
        if table is not None:
            self._give_back(table.blocks)
            self._matched.pop(request.request_id, None)
            self._num_inserted.pop(request.request_id, None)
            self.changes.append(("drop", request.request_id, None))

    def fork(self, parent: Request, child: Request) -> None:
        """Give `child` the blocks of `parent`, shared; whoever writes into the last one copies it."""
        table = self.tables[parent.request_id].fork()
        num_cached = self._num_inserted.get(parent.request_id, 0)
        self.pool.share(table.blocks)
        if self.prefix_cache is not None:
            self.prefix_cache.acquire(table.blocks[:num_cached])
        self.tables[child.request_id] = table
        self._num_inserted[child.request_id] = num_cached
        self.changes.append(("append", child.request_id, list(table.blocks)))

    def swap_out(self, request: Request) -> bool:
        """Move the computed tokens' blocks to the host. False, and nothing changed, if they do not fit."""
        if not request.num_computed_tokens:
            return False
        num_blocks = -(-request.num_computed_tokens // self.block_size)
        if not self.swap.put(request.request_id, self.tables[request.request_id].blocks[:num_blocks]):
            return False
        self._give_back(self.tables.pop(request.request_id).blocks)
        self._matched.pop(request.request_id, None)
        self._num_inserted.pop(request.request_id, None)
        self.changes.append(("drop", request.request_id, None))
        return True

    def swap_in(self, request: Request) -> None:
        """Bring a swapped request's blocks back. There must be `blocks_missing` free blocks."""
        table = self._block_table(self.block_size)
        blocks = self._take(table.blocks_needed(request.num_computed_tokens))
        table.append_tokens(request.num_computed_tokens, blocks)
        self.swap.take(request.request_id, blocks)
        self.tables[request.request_id] = table
        self.changes.append(("append", request.request_id, list(blocks)))

    def give_moves_to(self, plan: Any) -> None:
        """Hand over the copies that must happen before this step's forward pass."""
        plan.swap_out, self.swap.moves_out = self.swap.moves_out, []
        plan.copies, self._copies = self._copies, []
        plan.swap_in, self.swap.moves_in = self.swap.moves_in, []

    def settle(self, plan: Any) -> None:
        """The step has run: sources of copies are let go, and full blocks go into the prefix cache."""
        for blocks in self._held:
            self._give_back(blocks)
        self._held = []
        self.swap.settle()
        if self.prefix_cache is not None:
            for chunk in plan.chunks:
                num_full = (chunk.start + chunk.num_tokens) // self.block_size
                if num_full > self._num_inserted.get(chunk.request.request_id, 0):
                    self._cache_full_blocks(chunk.request, num_full)

    def reset_prefix_cache(self) -> None:
        """Forget all cached prefixes; blocks that requests use stay theirs."""
        if self.prefix_cache is not None:
            blocks = self.prefix_cache.reset()
            self.pool.free(blocks)
            self.changes.append(("evict", None, blocks))

    def check(self) -> None:
        """Raise `AssertionError` unless references, tables, cache and free blocks all agree."""
        from .checks import check_manager

        check_manager(self)

    def _match(self, request: Request) -> Match:
        if self.prefix_cache is None:
            return Match([], 0)
        return self.prefix_cache.match(request.token_ids, request.cache_salt)

    def _start_table(self, request: Request) -> None:
        table = self._block_table(self.block_size)
        match = self._match(request)
        if match.blocks:
            self.pool.share(match.blocks)
            self.prefix_cache.acquire(match.blocks)
        table.append_tokens(match.num_tokens, list(match.blocks))
        self.tables[request.request_id] = table
        self._num_inserted[request.request_id] = len(match.blocks)
        self.changes.append(("hit", request.request_id, list(match.blocks)))
        if match.partial is not None:
            self._copy_partial(request, table, match)
        self._matched[request.request_id] = table.num_tokens
        if self.prefix_cache is not None and request.num_preemptions == 0 and request.index == 0:
            request.num_cached_tokens = table.num_tokens
            self.num_prefix_queries += request.num_prompt_tokens
            self.num_prefix_hits += table.num_tokens

    def _copy_partial(self, request: Request, table: BlockTable, match: Match) -> None:
        """Copy the cached block whose first slots the request can use into a block of its own."""
        source, num_tokens = match.partial
        path = [*match.blocks, source]  # whoever uses a block uses what comes before it
        self.pool.share(path)
        self.prefix_cache.acquire(path)
        if not self.num_free_blocks:
            self._give_back(path)
            return
        self._held.append(path)
        new_blocks = self._take(1)
        table.append_tokens(num_tokens, new_blocks)
        self._copies.append((source, new_blocks[0]))
        self.changes.append(("append", request.request_id, new_blocks))

    def _must_copy(self, table: BlockTable) -> bool:
        """True if the next token goes into a block that somebody else uses too. Copies that read it
        in this step do not count: they are done before anything is written."""
        if table.num_tokens % self.block_size == 0:
            return False
        block = table.blocks[-1]
        users = self.pool.ref_count(block)
        return users > 1 and users - sum(held.count(block) for held in self._held) > 1

    def _copy_last_block(self, request: Request, table: BlockTable) -> None:
        source, (target,) = table.blocks[-1], self._take(1)
        table.blocks[-1] = target
        self._copies.append((source, target))
        self._held.append([source])
        self.changes.append(("replace", request.request_id, (len(table.blocks) - 1, target)))

    def _take(self, n: int) -> list[int]:
        short = n - self.pool.num_free
        if short > 0 and self.prefix_cache is not None:
            evicted = self.prefix_cache.evict(short)
            self.pool.free(evicted)
            self.changes.append(("evict", None, evicted))
        return self.pool.allocate(n)

    def _give_back(self, blocks: list[int]) -> None:
        if self.prefix_cache is not None:
            self.prefix_cache.release(blocks)
        self.pool.free(blocks)

    def _cache_full_blocks(self, request: Request, num_full: int) -> None:
        table = self.tables.get(request.request_id)
        if table is None:  # aborted while the step ran
            return
        mine = table.blocks[:num_full]
        kept = self.prefix_cache.insert(request.token_ids, mine, request.cache_salt)
        first = self._num_inserted.get(request.request_id, 0)
        new_blocks = [block for block, own in zip(kept[first:], mine[first:], strict=True) if block == own]
        self.pool.share(new_blocks)
        for i in range(first, num_full):
            if kept[i] != mine[i]:  # somebody computed the same block before: one copy is enough
                self.pool.share([kept[i]])
                self.pool.free([mine[i]])
                table.blocks[i] = kept[i]
                self.changes.append(("replace", request.request_id, (i, kept[i])))
        if new_blocks:
            self.changes.append(("cache", request.request_id, new_blocks))
        self._num_inserted[request.request_id] = num_full
