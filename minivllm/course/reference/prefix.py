"""Parts of lab 06 that the engine has in one piece: names, an index of blocks, counts, and `begin`.

minivllm's own cache (kv/prefix.py) does all of this in one class, so that it looks at a block once. The
lab takes it apart: what is where (`BlockIndex`), who uses it (`CountedCache`), who goes first
(`PrefixCache`). Between two of them only methods are called, so a reader's part fits the reference of
the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...kv.prefix import HashPrefixCache, Match, block_name


def block_hashes(tokens: Sequence[int], block_size: int, salt: str | None = None) -> list[str]:
    """A name for each full block: equal names mean equal tokens up to the block's end, and equal salts."""
    names = []
    name = b"" if salt is None else b"salt:" + salt.encode()
    for end in range(block_size, len(tokens) + 1, block_size):
        name = block_name(name, list(tokens[end - block_size : end]))
        names.append(name.hex())
    return names


class BlockIndex:
    """Which block holds which tokens, by name."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._block_of: dict[str, int] = {}
        self._name_of: dict[int, str] = {}

    def match(self, tokens: list[int], salt: str | None = None) -> Match:
        """Blocks of the longest cached prefix, never all of `tokens`."""
        blocks: list[int] = []
        for name in block_hashes(tokens[: len(tokens) - 1], self.block_size, salt):
            if name not in self._block_of:
                break
            blocks.append(self._block_of[name])
        return Match(blocks, len(blocks) * self.block_size)

    def insert(self, tokens: list[int], blocks: list[int], salt: str | None = None) -> list[int]:
        """For each of `blocks` the one that stands for its content from now on: itself, or the one that
        was there before. `ValueError`, and nothing changed, for more blocks than `tokens` fill."""
        names = block_hashes(tokens, self.block_size, salt)
        if len(blocks) > len(names):
            raise ValueError(f"{len(blocks)} blocks, but {len(tokens)} tokens fill {len(names)}")
        kept = []
        for name, block in zip(names, blocks, strict=False):
            if name not in self._block_of:
                self._block_of[name] = block
                self._name_of[block] = name
            kept.append(self._block_of[name])
        return kept

    def remove(self, block: int) -> None:
        """Forget the block, if it is here."""
        name = self._name_of.pop(block, None)
        if name is not None:
            del self._block_of[name]


class CountedCache:
    """An index that knows how many requests use each block, and since when nobody does."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.index = BlockIndex(block_size)
        self._users: dict[int, int] = {}
        self._queue: dict[int, None] = {}  # blocks without users, least recently used first

    @property
    def unused(self) -> list[int]:
        return list(self._queue)

    @property
    def num_evictable(self) -> int:
        return len(self._queue)

    def users(self, block: int) -> int:
        return self._users.get(block, 0)

    def clear(self) -> None:
        """No later match finds what is cached now; counts stay."""
        self.index = BlockIndex(self.block_size)

    def match(self, tokens: list[int], salt: str | None = None) -> Match:
        return self.index.match(tokens, salt)

    def insert(self, tokens: list[int], blocks: list[int], salt: str | None = None) -> list[int]:
        """As in the index. The caller uses what is returned; what it used before counts once."""
        kept = self.index.insert(tokens, blocks, salt)
        for i, block in enumerate(blocks):
            if block in self._users:
                kept[i] = block
            elif kept[i] == block:
                self._users[block] = 1
            else:
                self.acquire([kept[i]])
        return kept

    def acquire(self, blocks: list[int]) -> None:
        """One more user for each. `ValueError`, and nothing changed, if one is not cached."""
        if not all(block in self._users for block in blocks):
            raise ValueError(f"{blocks} are not all cached; acquire what match returned")
        for block in blocks:
            self._users[block] += 1
            self._queue.pop(block, None)

    def release(self, blocks: list[int]) -> None:
        """One user less for each, in this order; what is not cached is passed over. `ValueError`, and
        nothing changed, if nobody uses one of them."""
        mine = [block for block in blocks if block in self._users]
        if not all(self._users[block] for block in mine):
            raise ValueError(f"{mine} are not all in use; release what was acquired, once")
        for block in mine:
            self._users[block] -= 1
            if self._users[block] == 0:
                self._queue[block] = None

    def forget(self, blocks: list[int]) -> None:
        """Take unused blocks out. `ValueError`, and nothing changed, if one is in use or not cached."""
        if not all(block in self._queue for block in blocks):
            raise ValueError(f"{blocks} are not all unused; forget only what nobody uses")
        for block in blocks:
            self.index.remove(block)
            del self._users[block], self._queue[block]


class PrefixCache(HashPrefixCache):
    """minivllm's own cache, and the beginning of a request, which in the engine is the KV manager's."""

    def begin(self, pool: Any, tokens: list[int], salt: str | None = None) -> tuple[list[int], int] | None:
        """(blocks for all of `tokens`, number of cached tokens), the cached blocks used and shared; None,
        and nothing changed, if there are not enough."""
        blocks, num_cached, _ = self.match(tokens, salt)
        self.acquire(blocks)  # before anything is evicted
        pool.share(blocks)
        needed = -(-len(tokens) // self.block_size) - len(blocks)
        if needed > pool.num_free + self.num_evictable:
            self.release(blocks)
            pool.free(blocks)
            return None
        pool.free(self.evict(max(0, needed - pool.num_free)))
        return blocks + pool.allocate(needed), num_cached
