"""A block pool and a prefix cache under test, played together as a KV manager plays them (6.4).

The pool is this side's own, so what a part does to it can be counted here; the part gets its four methods.
"""

from __future__ import annotations

from ...kv.blocks import BlockPool
from .expect import same, show
from .prefix_story import Told
from .rules import Broken


class PooledCache(Told):
    """A pool of `num_blocks` and a cache for blocks of 2, played by hand like a KV manager."""

    def __init__(self, part, num_blocks: int) -> None:
        super().__init__(part(2), f"a pool of {num_blocks}, PrefixCache(2)")
        self.pool = BlockPool(num_blocks)
        self.part_pool = LentPool(self.pool)

    def cached(self, tokens: list[int], salt=None) -> list[int]:
        """A request has run and ended: its full blocks stay, in the cache only."""
        blocks = self.pool.allocate(len(tokens) // 2)
        self.do("insert", tokens, blocks, salt)
        self.pool.share(blocks)  # the cache's own reference
        self.do("release", blocks)
        self.pool.free(blocks)
        return blocks

    def begins(self, tokens: list[int], salt=None):
        """`begin` must give what it should: (blocks, number of cached tokens), or None. Checked against
        the pool's counts, too."""
        cached = self.found(tokens, salt)[0]
        self.calls.pop()
        before = self._counts()
        needed = -(-len(tokens) // 2)
        free_after = self._free() - sum(self.cache.users(block) == 0 for block in cached)
        fits = needed - len(cached) <= free_after
        self.calls.append(f"begin(pool, {show(tokens)}{'' if salt is None else f', {salt!r}'})")
        got = self.cache.begin(self.part_pool, list(tokens), salt)
        if not fits:
            same(f"{self.story}, which does not fit", got, None)
            same(f"{self.story}: owners of all blocks, evictable", self._counts(), before)
            return None
        if not isinstance(got, tuple | list) or len(got) != 2:
            raise Broken(self.story, show(got), "(blocks, number of cached tokens)")
        blocks, num_cached = got
        same(f"{self.story}: number of cached tokens", num_cached, 2 * len(cached))
        same(f"{self.story}: the first blocks, the cached ones", blocks[: len(cached)], cached)
        same(f"{self.story}: number of blocks", len(blocks), needed)
        if len(set(blocks)) != len(blocks):
            raise Broken(self.story, show(blocks), "different blocks")
        users = [self.cache.users(block) for block in cached]
        owners = [self.pool.ref_count(block) for block in blocks]
        same(
            f"{self.story}: owners in the pool", owners, [n + 1 for n in users] + [1] * (needed - len(cached))
        )
        same(f"{self.story}: free and evictable afterwards", self._free(), free_after - needed + len(cached))
        return blocks

    def _free(self) -> int:
        return self.pool.num_free + self.cache.num_evictable

    def _counts(self):
        return [self.pool.ref_count(b) for b in range(self.pool.num_blocks)], self.cache.num_evictable


class LentPool:
    """The pool as the part sees it: its four methods."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.num_blocks = pool.num_blocks

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    def ref_count(self, block: int) -> int:
        return self._pool.ref_count(block)

    def allocate(self, n: int) -> list[int]:
        return self._pool.allocate(n)

    def share(self, blocks: list[int]) -> None:
        self._pool.share(list(blocks))

    def free(self, blocks: list[int]) -> None:
        self._pool.free(list(blocks))
