"""Lab 06: content found under a wrong name, counted wrongly, or thrown away in the wrong order."""

FAULTS = {
    "hash without parent": (
        "6.1",
        'text = f"{parent} {tokens[end - block_size : end]}"',
        'text = f"{salt!r} {tokens[end - block_size : end]}"',
        "Put the name of the block before it, the parent, into the hash",
    ),
    "salt left out": (
        "6.1",
        'names, parent = [], f"salt {salt!r}"',
        'names, parent = [], "root"',
        "another salt is another name",
    ),
    "Python's hash": (
        "6.1",
        "parent = sha256(text.encode()).hexdigest()",
        "parent = str(hash((parent, *tokens[end - block_size : end])))",
        "names cannot be made to collide",
    ),
    "match of the whole prompt": (
        "6.2",
        "tokens[: len(tokens) - 1]",
        "tokens",
        "The last token must be computed",
    ),
    "insert replaces the kept block": (
        "6.2",
        "            if name not in self.block_of:\n                self.block_of[name] = block\n"
        "                self.name_of[block] = name\n",
        "            self.block_of[name] = block\n            self.name_of[block] = name\n",
        "A name that is there keeps its block",
    ),
    "counting twice": (
        "6.3",
        "                kept[i] = block\n",
        "                kept[i] = block\n                self.counts[block] += 1\n",
        "nobody is counted twice",
    ),
    "unused while somebody uses it": (
        "6.3",
        "                if self.counts[block] == 0:\n                    self.queue[block] = None",
        "                self.queue[block] = None",
        "a block is unused when its last user leaves",
    ),
    "head evicted before tail": (
        "6.4",
        "self.cache.release(blocks[::-1])",
        "self.cache.release(blocks)",
        "A tail is worth nothing without its head",
    ),
    "evicting a referenced block": (
        "6.4",
        "        if n > self.num_evictable:\n"
        '            raise ValueError(f"{n} blocks are to be evicted, {self.num_evictable} are unused")\n'
        "        blocks = self.cache.unused[:n]\n        self.cache.forget(blocks)\n",
        "        blocks = self.cache.unused[:n]\n        blocks += list(range(7, 7 + n - len(blocks)))\n"
        "        for block in blocks:\n            if not self.cache.users(block):\n"
        "                self.cache.forget([block])\n",
        "A block with a user is never evicted",
    ),
    "lookup after eviction": (
        "6.4",
        "        found = self.match(tokens, salt).blocks\n",
        "        short = -(-len(tokens) // self.block_size) - pool.num_free\n"
        "        pool.free(self.evict(min(max(0, short), self.num_evictable)))\n"
        "        found = self.match(tokens, salt).blocks\n",
        "First match and acquire, then evict",
    ),
    "a hit counted as free": (
        "6.4",
        "if needed > pool.num_free + self.num_evictable:",
        "if needed > pool.num_free + self.num_evictable + len(found):",
        "A hit that was evictable is no longer free",
    ),
    "a node with children evicted": (
        "6.5",
        "leaf = min(self.unused_leaves,",
        "leaf = min([node for node in self.nodes.values() if not node.users],",
        "leaves go first",
    ),
}
