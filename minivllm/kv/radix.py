"""Prefix cache as a tree of blocks: a path from the root spells a prefix.

Where the hash chain asks "is there a block of this name?", the tree walks down from the root, and so
also sees where a prompt leaves the path in the middle of a block: that block's first slots can be
copied, and the hit is exact to the token. Only leaves are evicted, least recently used first, since
whoever uses a block uses its ancestors too. (RadixAttention: Zheng et al., SGLang, 2023; here a node is
one whole block.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from .prefix import Match


class _Node:
    __slots__ = ("block", "children", "key", "parent", "users")

    def __init__(self, key: tuple[int, ...], block: int, parent: _Node | None) -> None:
        self.key = key
        self.block = block
        self.parent = parent
        self.children: dict[tuple[int, ...], _Node] = {}
        self.users = 0


class RadixPrefixCache:
    """`PrefixCache` by tree; one root a salt. O(1) a block, and O(children) where a path ends."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._roots: dict[str | None, _Node] = {}
        self._by_block: dict[int, _Node] = {}
        self._num_unused = 0
        self._unused_leaves: OrderedDict[int, None] = OrderedDict()  # least recently used first

    @property
    def num_evictable(self) -> int:
        return self._num_unused

    def match(self, tokens: list[int], salt: str | None = None) -> Match:
        size, limit = self.block_size, len(tokens) - 1
        node, blocks = self._roots.get(salt), []
        while node is not None:
            start = len(blocks) * size
            child = node.children.get(tuple(tokens[start : start + size])) if start + size <= limit else None
            if child is None:
                return Match(blocks, start, self._partial(node, tokens[start : min(start + size, limit)]))
            blocks.append(child.block)
            node = child
        return Match(blocks, 0)

    def insert(self, tokens: list[int], blocks: list[int], salt: str | None = None) -> list[int]:
        size = self.block_size
        known = len(blocks)
        while known and blocks[known - 1] not in self._by_block:
            known -= 1
        node = self._by_block[blocks[known - 1]] if known else self._root(salt)
        kept = blocks[:known]
        for i in range(known, len(blocks)):
            key = tuple(tokens[i * size : (i + 1) * size])
            child = node.children.get(key)
            if child is None:
                child = _Node(key, blocks[i], node)
                node.children[key] = self._by_block[blocks[i]] = child
                self._unused_leaves.pop(node.block, None)
                child.users = 1
            else:
                self._use(child)
            kept.append(child.block)
            node = child
        return kept

    def acquire(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._use(self._by_block[block])

    def release(self, blocks: Iterable[int]) -> None:
        for block in reversed(list(blocks)):
            node = self._by_block.get(block)
            if node is not None:
                node.users -= 1
                if node.users == 0:
                    self._num_unused += 1
                    if not node.children:
                        self._unused_leaves[block] = None

    def evict(self, n: int) -> list[int]:
        if n > self._num_unused:
            raise ValueError(f"{n} blocks are to be evicted, {self._num_unused} are unused; evict fewer")
        blocks = []
        for _ in range(n):
            block = next(iter(self._unused_leaves))
            del self._unused_leaves[block]
            node = self._by_block.pop(block)
            parent = node.parent
            del parent.children[node.key]
            if parent.parent is not None and parent.users == 0 and not parent.children:
                # As old as the child was: the next to go, so that one unused path is evicted at a time.
                self._unused_leaves[parent.block] = None
                self._unused_leaves.move_to_end(parent.block, last=False)
            self._num_unused -= 1
            blocks.append(block)
        return blocks

    def reset(self) -> list[int]:
        blocks = self.evict(self._num_unused)
        self._roots.clear()  # what is in use hangs on its old root, where no match begins
        return blocks

    def cached_blocks(self) -> Iterable[int]:
        return self._by_block.keys()

    def users(self, block: int) -> int:
        return self._by_block[block].users

    def check(self) -> None:
        unused = 0
        for block, node in self._by_block.items():
            assert node.block == block and node.parent.children[node.key] is node, (
                f"block {block} is misfiled"
            )
            assert node.users >= 0, f"block {block} has {node.users} users"
            assert all(child.users <= node.users for child in node.children.values()), (
                f"a child of block {block} is used by more requests than the block"
            )
            is_leaf = node.users == 0 and not node.children
            assert is_leaf == (block in self._unused_leaves), f"block {block} is in the wrong queue"
            unused += node.users == 0
        assert unused == self._num_unused, "the number of evictable blocks is wrong"

    def _root(self, salt: str | None) -> _Node:
        return self._roots.setdefault(salt, _Node((), -1, None))

    def _use(self, node: _Node) -> None:
        if node.users == 0:
            self._num_unused -= 1
            self._unused_leaves.pop(node.block, None)
        node.users += 1

    def _partial(self, node: _Node, rest: list[int]) -> tuple[int, int] | None:
        """The child that begins with most of `rest`, and how many of its tokens agree."""
        best, longest = None, 0
        for child in node.children.values():
            k = _common_prefix(child.key, rest)
            if k > longest:
                best, longest = child, k
        return None if best is None else (best.block, longest)


def _common_prefix(key: tuple[int, ...], tokens: list[int]) -> int:
    k = 0
    for a, b in zip(key, tokens, strict=False):
        if a != b:
            break
        k += 1
    return k
