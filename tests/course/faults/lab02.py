"""Lab 02: memory given out twice, lost, or looked up in the wrong place."""

FAULTS = {
    "rounds down": (
        "2.1",
        "size = -(-length // unit) * unit",
        "size = length // unit * unit",
        "reserved and never used is internal",
    ),
    "not to the last slot": (
        "2.1",
        "fits = start + size <= num_slots if",
        "fits = start + size < num_slots if",
        "memory can be filled to the last slot",
    ),
    "every refusal is external": (
        "2.1",
        "external += size <= free",
        "external += 1",
        "a full memory refuses",
    ),
    "gives out the same blocks": (
        "2.2",
        "[self.free_blocks.pop() for _ in range(n)]",
        "self.free_blocks[:n]",
        "first broken: num free goes down and up",
    ),
    "double free": (
        "2.2",
        "len(set(blocks)) < len(blocks) or not",
        "not",
        "An id named twice in one call is a double free",
    ),
    "leak": (
        "2.2",
        "self.free_blocks.extend(blocks)",
        "self.free_blocks.extend(blocks[1:])",
        "first broken: num free goes down and up",
    ),
    "one pool for all": (
        "2.2",
        "self.taken = set()",
        "self.taken = BlockPool.__dict__.get('t') or set()\n        BlockPool.t = self.taken",
        "12 of 16 rules; first broken: ref count tells taken from free",
    ),
    "a block too many": (
        "2.3",
        "-(-(self.num_tokens + n) // self.block_size)",
        "(self.num_tokens + n) // self.block_size + 1",
        "a new table needs whole blocks",
    ),
    "slots of the wrong block": (
        "2.3",
        "self.blocks[p // size] * size + p % size",
        "self.blocks[p % len(self.blocks)] * size + p % size",
        "slots follow the table",
    ),
    "a fork shares its list": (
        "2.3",
        "other.blocks = list(self.blocks)",
        "other.blocks = self.blocks",
        "a fork starts equal and goes its own way",
    ),
    "reads unused slots": (
        "2.4",
        "v = v_cache[blocks].flatten(0, 1)[:context_len]",
        "v = v_cache[blocks].flatten(0, 1)[:context_len + 1][-context_len:]",
        "first broken: the last block may be part full",
    ),
    "one row for all": ("2.4", "        row += n\n", "", "requests do not see each other"),
    "writes zeros over old keys": (
        "2.4",
        "    block_size = k_cache.shape[1]\n",
        "    block_size = k_cache.shape[1]\n    v_cache[v_cache.isnan() | (v_cache == 7.0)] = 0\n",
        "the cache is left alone",
    ),
    "the copy comes too late": (
        "2.5",
        "        copy = self.allocate(1)[0]\n        self.free([block])\n",
        "        self.free([block])\n        copy = self.allocate(1)[0]\n",
        "when the pool is empty, OutOfBlocks must leave all as it was",
    ),
    "gives back what others own": (
        "2.5",
        "[block for block in drops if self.owners[block] == 0]",
        "list(drops)",
        "a block is free when its last owner leaves",
    ),
}
