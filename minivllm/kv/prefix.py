"""Prefix cache as a hash chain: content-addressed KV blocks.

The keys and values of a block depend on its own tokens and on every token before them, so a block is
named by SHA-256 of (name of the block before it, its tokens), and the chain starts from the salt that
keeps tenants (or adapters) apart. Equal names mean equal content, whoever computed it. A cached
block that no request uses waits in a queue, least recently used first; a request's blocks join it
tail first, because a tail is worth nothing without its head. (Automatic prefix caching of vLLM.)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple, Protocol


class Match(NamedTuple):
    """`blocks` hold the first `num_tokens` tokens, whole blocks only. `partial` = (block, k): the first
    k slots of that block hold the next k tokens, and may be copied; hash chains find none."""

    blocks: list[int]
    num_tokens: int
    partial: tuple[int, int] | None = None


class PrefixCache(Protocol):
    """Which blocks hold which tokens. It holds one reference in the pool for each block it caches (the
    KV manager takes and drops it), counts the requests that use each, and decides who is evicted."""

    num_evictable: int

    def match(self, tokens: list[int], salt: str | None = None) -> Match:
        """Longest cached prefix of `tokens`, never all of them: a request must compute at least its
        last token to have logits."""

    def insert(self, tokens: list[int], blocks: list[int], salt: str | None = None) -> list[int]:
        """Cache computed blocks: `blocks` hold the first len(blocks) · block_size of `tokens`, and are
        in use by the caller. Returns for each the block that now stands for its content: itself, or
        one that was cached before; the caller then uses that one, as if it had acquired it."""

    def acquire(self, blocks: Iterable[int]) -> None:
        """One more request uses these cached blocks: they cannot be evicted."""

    def release(self, blocks: Iterable[int]) -> None:
        """One request less uses these blocks, given in the order of its table. Blocks that are not
        cached are passed over."""

    def evict(self, n: int) -> list[int]:
        """Forget n blocks that nobody uses and return them. `ValueError` if there are fewer."""

    def reset(self) -> list[int]:
        """No later `match` finds what is cached now. Returns the blocks that nobody used; the others can
        be evicted when they are released."""

    def cached_blocks(self) -> Iterable[int]: ...

    def check(self) -> None: ...


@dataclass(slots=True)
class _Entry:
    name: bytes
    block: int
    users: int


class HashPrefixCache:
    """`PrefixCache` by hash chain. Everything is O(1) a block."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._by_name: dict[bytes, _Entry] = {}
        self._by_block: dict[int, _Entry] = {}
        self._unused: dict[int, None] = {}  # insertion-ordered, least recently used first

    @property
    def num_evictable(self) -> int:
        return len(self._unused)

    def match(self, tokens: list[int], salt: str | None = None) -> Match:
        blocks: list[int] = []
        name, size = _root(salt), self.block_size
        for start in range(0, (len(tokens) - 1) // size * size, size):
            name = block_name(name, tokens[start : start + size])
            entry = self._by_name.get(name)
            if entry is None:
                break
            blocks.append(entry.block)
        return Match(blocks, len(blocks) * size)

    def insert(self, tokens: list[int], blocks: list[int], salt: str | None = None) -> list[int]:
        size = self.block_size
        known = len(blocks)  # what the caller has inserted or matched before is its own cached prefix
        while known and blocks[known - 1] not in self._by_block:
            known -= 1
        name = self._by_block[blocks[known - 1]].name if known else _root(salt)
        kept = blocks[:known]
        for i in range(known, len(blocks)):
            name = block_name(name, tokens[i * size : (i + 1) * size])
            entry = self._by_name.get(name)
            if entry is None:
                entry = _Entry(name, blocks[i], 1)
                self._by_name[name] = self._by_block[blocks[i]] = entry
            else:
                self._use(entry)
            kept.append(entry.block)
        return kept

    def acquire(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._use(self._by_block[block])

    def release(self, blocks: Iterable[int]) -> None:
        for block in reversed(list(blocks)):
            entry = self._by_block.get(block)
            if entry is not None:
                entry.users -= 1
                if entry.users == 0:
                    self._unused[block] = None

    def evict(self, n: int) -> list[int]:
        if n > len(self._unused):
            raise ValueError(f"{n} blocks are to be evicted, {len(self._unused)} are unused; evict fewer")
        blocks = []
        for _ in range(n):
            block = next(iter(self._unused))
            del self._unused[block]
            entry = self._by_block.pop(block)
            if self._by_name.get(entry.name) is entry:
                del self._by_name[entry.name]
            blocks.append(block)
        return blocks

    def reset(self) -> list[int]:
        blocks = self.evict(len(self._unused))
        self._by_name.clear()
        return blocks

    def cached_blocks(self) -> Iterable[int]:
        return self._by_block.keys()

    def users(self, block: int) -> int:
        return self._by_block[block].users

    def check(self) -> None:
        for name, entry in self._by_name.items():
            assert entry.name == name and self._by_block[entry.block] is entry, f"{entry} is misfiled"
        for block, entry in self._by_block.items():
            assert entry.block == block, f"block {block} is misfiled"
            assert entry.users >= 0, f"block {block} has {entry.users} users"
            assert (entry.users == 0) == (block in self._unused), f"block {block} is in the wrong queue"

    def _use(self, entry: _Entry) -> None:
        if entry.users == 0:
            del self._unused[entry.block]
        entry.users += 1


def block_name(parent: bytes, tokens: list[int]) -> bytes:
    """SHA-256 over the parent's name and the block's tokens. A hash that collides would answer one
    tenant from another's prompt, so it must not be one that somebody can make collide."""
    return sha256(parent + array("q", tokens).tobytes()).digest()


def _root(salt: str | None) -> bytes:
    return sha256(b"" if salt is None else b"salt:" + salt.encode()).digest()
