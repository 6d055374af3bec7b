"""Right answers of lab 06, each in another style than the solution's."""

from __future__ import annotations

NAMES = """
import base64, json, hashlib
def block_hashes(tokens, block_size, salt=None):
    whole = len(tokens) // block_size
    state, names = hashlib.sha256(json.dumps(["root", salt]).encode()).digest(), []
    for i in range(whole):
        block = json.dumps(list(tokens[i * block_size:(i + 1) * block_size])).encode()
        state = hashlib.blake2b(block, key=state, digest_size=32).digest()
        names.append(base64.b64encode(state).decode())
    return names
"""

INDEX = """
from minivllm.course.reference.prefix import block_hashes
from minivllm.kv.prefix import Match
class BlockIndex:
    def __init__(self, block_size):
        self.size = block_size
        self.pairs = {}
    def match(self, tokens, salt=None):
        names = block_hashes(tokens, self.size, salt)
        if names and len(tokens) == len(names) * self.size:
            names.pop()
        found = []
        while len(found) < len(names) and names[len(found)] in self.pairs:
            found.append(self.pairs[names[len(found)]])
        return Match(blocks=found, num_tokens=self.size * len(found))
    def insert(self, tokens, blocks, salt=None):
        if len(blocks) * self.size > len(tokens):
            raise ValueError("too many blocks")
        names = block_hashes(tokens, self.size, salt)
        return [self.pairs.setdefault(name, block) for name, block in zip(names, blocks)]
    def remove(self, block):
        for name in [name for name, b in self.pairs.items() if b == block]:
            del self.pairs[name]
"""

COUNTED = """
from collections import Counter, OrderedDict
from minivllm.course.reference.prefix import BlockIndex
class CountedCache(BlockIndex):
    def __init__(self, block_size):
        super().__init__(block_size)
        self.known, self.used, self.line = set(), Counter(), OrderedDict()
    @property
    def unused(self):
        return [*self.line]
    @property
    def num_evictable(self):
        return len(self.known) - len(+self.used)
    def users(self, block):
        return self.used[block]
    def insert(self, tokens, blocks, salt=None):
        result = []
        for mine, now in zip(blocks, super().insert(tokens, blocks, salt)):
            if mine in self.known:
                now = mine
            else:
                self.known.add(now)
                self.used[now] += 1
                self.line.pop(now, None)
            result.append(now)
        return result
    def acquire(self, blocks):
        if not self.known.issuperset(blocks):
            raise ValueError("not cached")
        self.used.update(blocks)
        for block in blocks:
            self.line.pop(block, None)
    def release(self, blocks):
        here = [block for block in blocks if block in self.known]
        if any(self.used[block] < 1 for block in here):
            raise ValueError("not in use")
        self.used.subtract(here)
        for block in here:
            if not self.used[block]:
                self.line[block] = None
    def clear(self):
        BlockIndex.__init__(self, self.block_size)
    def forget(self, blocks):
        if set(blocks) - set(self.line):
            raise ValueError("not unused")
        for block in blocks:
            self.remove(block)
            self.known.remove(block)
            self.line.pop(block)
"""

CACHE = """
from minivllm.course.reference.prefix import CountedCache
class PrefixCache(CountedCache):
    def release(self, blocks):
        super().release(list(reversed(blocks)))
    def evict(self, n):
        queue = self.unused
        if len(queue) < n:
            raise ValueError("too many")
        gone = [queue[i] for i in range(n)]
        self.forget(gone)
        return gone
    def reset(self):
        gone = self.evict(len(self.unused))
        self.clear()
        return gone
    def begin(self, pool, tokens, salt=None):
        hit = self.match(tokens, salt)
        own = list(hit.blocks)
        self.acquire(own)
        missing = (len(tokens) + self.block_size - 1) // self.block_size - len(own)
        short = missing - pool.num_free
        if short > len(self.unused):
            self.release(own)
            return None
        if short > 0:
            pool.free(self.evict(short))
        pool.share(own)
        return own + pool.allocate(missing), hit.num_tokens
"""

TREE = """
from minivllm.kv.prefix import Match
class Node:
    def __init__(self, up, key, block):
        self.up, self.key, self.block, self.down, self.users, self.age = up, key, block, [], 0, 0
class RadixCache:
    def __init__(self, block_size):
        self.size, self.tops, self.at, self.now = block_size, {}, {}, 0
    @property
    def num_evictable(self):
        return sum(1 for node in self.at.values() if node.users == 0)
    def users(self, block):
        return self.at[block].users
    def acquire(self, blocks):
        for block in blocks:
            self.at[block].users += 1
    def release(self, blocks):
        self.now += 1
        for node in (self.at[block] for block in blocks if block in self.at):
            node.users, node.age = node.users - 1, self.now
    def reset(self):
        gone = self.evict(self.num_evictable)
        self.tops = {}
        return gone
    def match(self, tokens, salt=None):
        node, hit, left = self.tops.get(salt), [], list(tokens[:-1])
        while node:
            best, depth = None, 0
            for child in node.down:
                k = 0
                while k < self.size and k < len(left) and child.key[k] == left[k]:
                    k += 1
                if k > depth:
                    best, depth = child, k
            if depth < self.size:
                return Match(hit, len(hit) * self.size, (best.block, depth) if best else None)
            hit.append(best.block)
            node, left = best, left[self.size:]
        return Match(hit, 0)
    def insert(self, tokens, blocks, salt=None):
        node = self.tops.setdefault(salt, Node(None, None, None))
        result = []
        for i, block in enumerate(blocks):
            key = list(tokens[i * self.size:(i + 1) * self.size])
            if block in self.at:
                node = self.at[block]
            else:
                there = [child for child in node.down if child.key == key]
                if not there:
                    there = [Node(node, key, block)]
                    node.down += there
                    self.at[block] = there[0]
                node = there[0]
                node.users += 1
            result.append(node.block)
        return result
    def evict(self, n):
        if n > self.num_evictable:
            raise ValueError("too many")
        gone = []
        while len(gone) < n:
            leaves = [x for x in self.at.values() if not x.down and x.users == 0]
            leaves.sort(key=lambda x: x.age)
            leaf = leaves[0]
            leaf.up.down.remove(leaf)
            del self.at[leaf.block]
            gone.append(leaf.block)
        return gone
"""

RIGHT = {"6.1": NAMES, "6.2": INDEX, "6.3": COUNTED, "6.4": CACHE, "6.5": TREE}
