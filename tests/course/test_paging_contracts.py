"""Contracts of lab 02: right answers in another style pass, wrong ones fail at the rule that explains it."""

import pytest

from minivllm.course.catalogue import find, of_lab

from .test_contracts import failing, part_from, rules_of

REPLAY = """
def replay(trace, num_slots, unit, contiguous):
    pieces = []
    internal = refused = external = 0
    for name, length in trace:
        if not length:
            pieces = [p for p in pieces if p[2] != name]
            continue
        size = (length + unit - 1) // unit * unit
        room = num_slots - sum(end - start for start, end, _ in pieces)
        edges = [0] + [end for _, end, _ in pieces]
        walls = [start for start, _, _ in pieces] + [num_slots]
        holes = [(a, b) for a, b in zip(edges, walls) if b - a >= size]
        if (holes if contiguous else room >= size):
            start = holes[0][0] if contiguous else num_slots
            pieces.append((start, start + size, name))
            pieces.sort()
            internal += size - length
        else:
            refused += 1
            if room >= size:
                external += 1
    return internal, refused, external
"""

POOL = """
from minivllm.kv.blocks import OutOfBlocks
class BlockPool:
    def __init__(self, num_blocks):
        self.num_blocks = num_blocks
        self.queue = dict.fromkeys(range(num_blocks))
    @property
    def num_free(self):
        return len(self.queue)
    def ref_count(self, block):
        if block not in range(self.num_blocks):
            raise ValueError(block)
        return 0 if block in self.queue else 1
    def allocate(self, n):
        if n < 0:
            raise ValueError(n)
        if n > len(self.queue):
            raise OutOfBlocks
        blocks = list(self.queue)[:n]
        for block in blocks:
            del self.queue[block]
        return blocks
    def free(self, blocks):
        if len(blocks) != len(set(blocks)):
            raise ValueError("twice")
        for block in blocks:
            if self.ref_count(block) == 0:
                raise ValueError("free already")
        self.queue.update(dict.fromkeys(blocks))
"""

TABLE = """
import math
class BlockTable:
    def __init__(self, block_size):
        self.block_size = block_size
        self.blocks = []
        self.num_tokens = 0
    def blocks_needed(self, n):
        room = len(self.blocks) * self.block_size - self.num_tokens
        return max(0, math.ceil((n - room) / self.block_size))
    def append_tokens(self, n, new_blocks):
        if self.blocks_needed(n) != len(new_blocks):
            raise ValueError("wrong number of blocks")
        self.blocks = self.blocks + list(new_blocks)
        self.num_tokens += n
    def slot_mapping(self, start, n):
        if start < 0 or start + n > self.num_tokens:
            raise ValueError("no token there")
        slots = []
        for position in range(start, start + n):
            block, offset = divmod(position, self.block_size)
            slots.append(self.blocks[block] * self.block_size + offset)
        return slots
    def fork(self):
        child = BlockTable(self.block_size)
        child.blocks = self.blocks[:]
        child.num_tokens = self.num_tokens
        return child
"""

ATTENTION = """
import torch
from minivllm.attention.dense import causal_attention
def paged_attention(q, k_cache, v_cache, block_tables, context_lens, query_lens):
    size = k_cache.shape[1]
    outs = []
    for i, rows in enumerate(q.split(query_lens.tolist())):
        p = torch.arange(int(context_lens[i]))
        slots = block_tables[i, p // size] * size + p % size
        k, v = k_cache.flatten(0, 1)[slots], v_cache.flatten(0, 1)[slots]
        outs.append(causal_attention(rows, k, v))
    return torch.cat(outs)
"""

SHARED = """
from minivllm.course.reference.paging import BlockPool
class SharedBlockPool:
    def __init__(self, num_blocks):
        self.num_blocks = num_blocks
        self.pool = BlockPool(num_blocks)
        self.more = {}  # owners besides the first
    @property
    def num_free(self):
        return self.pool.num_free
    def ref_count(self, block):
        return self.pool.ref_count(block) + self.more.get(block, 0)
    def allocate(self, n):
        return self.pool.allocate(n)
    def share(self, blocks):
        if any(self.ref_count(block) == 0 for block in blocks):
            raise ValueError("free")
        for block in blocks:
            self.more[block] = self.more.get(block, 0) + 1
    def free(self, blocks):
        for block in set(blocks):
            if blocks.count(block) > self.ref_count(block):
                raise ValueError("too often")
        for block in blocks:
            if self.more.get(block, 0) > 0:
                self.more[block] -= 1
            else:
                self.pool.free([block])
    def copy_on_write(self, block):
        owners = self.ref_count(block)
        if owners == 0:
            raise ValueError("nobody's")
        if owners > 1:
            new = self.allocate(1)[0]
            self.free([block])
            return new
        return block
"""

RIGHT = {"2.1": REPLAY, "2.2": POOL, "2.3": TABLE, "2.4": ATTENTION, "2.5": SHARED}


def _wrong(exercise_id, fault, rule, *changes):
    source = RIGHT[exercise_id]
    for old, new in changes:
        assert old in source, (fault, old)
        source = source.replace(old, new)
    return exercise_id, fault, rule, source


WRONG = [
    _wrong(
        "2.1",
        "a whole unit too much",
        "reserved and never used is internal",
        ("(length + unit - 1) // unit", "(length // unit + 1)"),
    ),
    _wrong(
        "2.1",
        "internal of the refused, too",
        "a full memory refuses",
        ("            refused += 1", "            refused += 1\n            internal += size - length"),
    ),
    _wrong(
        "2.1",
        "last slot never used",
        "memory can be filled to the last slot",
        ("+ [num_slots]", "+ [num_slots - 1]"),
    ),
    _wrong("2.1", "nothing ever ends", "what ends gives its slots back", ("if p[2] != name", "")),
    _wrong(
        "2.1",
        "every refusal is external",
        "a full memory refuses",
        ("if room >= size:", "if True:"),
    ),
    _wrong(
        "2.1",
        "external only if more than enough is free",
        "free in pieces is external",
        ("if room >= size:", "if room > size:"),
    ),
    _wrong(
        "2.1",
        "blocks in one piece",
        "blocks know no external fragmentation",
        ("(holes if contiguous else room >= size)", "holes"),
        ("holes[0][0] if contiguous else num_slots", "holes[0][0]"),
    ),
    _wrong(
        "2.1",
        "holes never merge",
        "neighbouring holes are one",
        (
            "pieces = [p for p in pieces if p[2] != name]",
            "pieces = [(a, a if n == name else b, n) for a, b, n in pieces]",
        ),
    ),
    _wrong(
        "2.1",
        "best fit",
        "the lowest hole is taken",
        ("holes[0][0]", "min(holes, key=lambda h: h[1] - h[0])[0]"),
    ),
    _wrong("2.1", "last hole", "the lowest hole is taken", ("holes[0][0]", "holes[-1][0]")),
    _wrong("2.2", "num_free a method", "a new pool is all free", ("    @property\n", "")),
    _wrong(
        "2.2",
        "ids from one",
        "allocate gives different blocks of the pool",
        ("dict.fromkeys(range(num_blocks))", "dict.fromkeys(range(1, num_blocks + 1))"),
    ),
    _wrong(
        "2.2",
        "a set is returned",
        "allocate gives different blocks of the pool",
        ("        return blocks\n", "        return set(blocks)\n"),
    ),
    _wrong("2.2", "nothing is taken", "num free goes down and up", ("del self.queue[block]", "pass")),
    _wrong(
        "2.2",
        "freed blocks are lost",
        "num free goes down and up",
        ("self.queue.update(dict.fromkeys(blocks))", "pass"),
    ),
    _wrong(
        "2.2",
        "takes what there is",
        "too many are refused whole",
        ("            raise OutOfBlocks", "            n = len(self.queue)"),
    ),
    _wrong(
        "2.2",
        "notices in the middle",
        "too many are refused whole",
        ("        if n > len(self.queue):\n            raise OutOfBlocks\n", ""),
        (
            "        return blocks\n",
            "        if len(blocks) < n:\n            raise OutOfBlocks\n        return blocks\n",
        ),
    ),
    _wrong(
        "2.2",
        "one too careful",
        "allocate gives different blocks of the pool",
        ("n > len(self.queue)", "n >= len(self.queue)"),
    ),
    _wrong(
        "2.2",
        "negative n",
        "a negative number is refused",
        ("        if n < 0:\n            raise ValueError(n)\n", ""),
    ),
    _wrong(
        "2.2",
        "counts the free ones",
        "ref count tells taken from free",
        ("return 0 if block in", "return 1 if block not in self.queue else 1 if block in"),
    ),
    _wrong(
        "2.2",
        "double free",
        "a double free is an error",
        ("if self.ref_count(block) == 0:", "if self.ref_count(block) > 1:"),
    ),
    _wrong(
        "2.2",
        "double free in one call",
        "a double free in one call is an error",
        ("if len(blocks) != len(set(blocks)):", "if False:"),
    ),
    _wrong(
        "2.2",
        "minus one is the last block",
        "foreign ids are errors",
        ("if block not in range(self.num_blocks)", "if block >= self.num_blocks"),
    ),
    _wrong(
        "2.2",
        "frees up to the wrong one",
        "a refused free changes nothing",
        (
            '                raise ValueError("free already")\n',
            '                raise ValueError("free already")\n            self.queue[block] = None\n',
        ),
    ),
    _wrong(
        "2.2",
        "one list for all pools",
        "two pools share nothing",
        ("    def __init__", "    queue = {}\n    def __init__"),
        (
            "self.queue = dict.fromkeys(range(num_blocks))",
            "self.queue.update(dict.fromkeys(range(num_blocks)))",
        ),
    ),
    _wrong(
        "2.2",
        "keeps the caller's list",
        "lists belong to the caller",
        ("self.queue = dict.fromkeys(range(num_blocks))", "self.lists = [list(range(num_blocks))]"),
        ("len(self.queue)\n", "sum(map(len, self.lists))\n"),
        ("block in self.queue", "any(block in part for part in self.lists)"),
        ("n > len(self.queue)", "n > self.num_free"),
        (
            "blocks = list(self.queue)[:n]\n        for block in blocks:\n            del self.queue[block]",
            "joined = sum(self.lists, [])\n        blocks, self.lists = joined[:n], [joined[n:]]",
        ),
        ("self.queue.update(dict.fromkeys(blocks))", "self.lists.append(blocks)"),
    ),
    _wrong("2.3", "rounded down", "a new table needs whole blocks", ("math.ceil(", "math.floor(")),
    _wrong(
        "2.3",
        "a block too early",
        "a new table needs whole blocks",
        ("math.ceil((n - room)", "math.ceil((n - room + 1)"),
    ),
    _wrong(
        "2.3",
        "room in the last block forgotten",
        "a table grows by tokens and blocks",
        ("(n - room)", "n"),
    ),
    _wrong(
        "2.3", "tokens not counted", "a table grows by tokens and blocks", ("self.num_tokens += n", "pass")
    ),
    _wrong(
        "2.3",
        "blocks replaced",
        "a table grows by tokens and blocks",
        ("self.blocks = self.blocks + list(new_blocks)", "self.blocks = list(new_blocks)"),
    ),
    _wrong(
        "2.3",
        "slots without the table",
        "slots follow the table",
        ("self.blocks[block] *", "block *"),
    ),
    _wrong(
        "2.3",
        "one position too few",
        "slots follow the table",
        ("range(start, start + n)", "range(start, start + n - 1)"),
    ),
    _wrong(
        "2.3",
        "blocks of 4",
        "any block size works",
        ("divmod(position, self.block_size)", "divmod(position, 4)"),
    ),
    _wrong(
        "2.3",
        "too many blocks are welcome",
        "a wrong number of blocks is refused",
        ("self.blocks_needed(n) != len(new_blocks)", "self.blocks_needed(n) > len(new_blocks)"),
    ),
    _wrong(
        "2.3",
        "checked too late",
        "a wrong number of blocks is refused",
        (
            "        if self.blocks_needed(n) !=",
            "        needed = self.blocks_needed(n)\n        self.num_tokens += n\n        if needed !=",
        ),
        ("list(new_blocks)\n        self.num_tokens += n\n", "list(new_blocks)\n"),
    ),
    _wrong(
        "2.3",
        "empty slots have positions",
        "positions without a token are refused",
        ("start + n > self.num_tokens", "start + n > len(self.blocks) * self.block_size"),
    ),
    _wrong("2.3", "negative start", "positions without a token are refused", ("start < 0 or ", "")),
    _wrong(
        "2.3",
        "keeps the caller's list",
        "the callers list stays the callers",
        (
            "self.blocks = self.blocks + list(new_blocks)",
            "self.blocks = self.blocks + new_blocks if self.blocks else new_blocks",
        ),
    ),
    _wrong(
        "2.3",
        "fork shares the list",
        "a fork starts equal and goes its own way",
        ("self.blocks[:]", "self.blocks"),
        ("self.blocks = self.blocks + list(new_blocks)", "self.blocks.extend(new_blocks)"),
    ),
    _wrong(
        "2.3",
        "fork is empty",
        "a fork starts equal and goes its own way",
        ("        child.num_tokens = self.num_tokens\n", ""),
    ),
    _wrong(
        "2.3",
        "fork is itself",
        "a fork starts equal and goes its own way",
        ("child = BlockTable(self.block_size)", "child = self"),
    ),
    _wrong(
        "2.4",
        "table ignored",
        "one token over full blocks",
        ("block_tables[i, p // size] * size + p % size", "p"),
    ),
    _wrong(
        "2.4",
        "blocks sorted",
        "the last block may be part full",
        ("block_tables[i, p // size]", "block_tables[i].sort().values[p // size]"),
    ),
    _wrong(
        "2.4",
        "whole blocks, not cut",
        "the last block may be part full",
        ("torch.arange(int(context_lens[i]))", "torch.arange(-(-int(context_lens[i]) // size) * size)"),
    ),
    _wrong("2.4", "blocks of 4", "any block size works", ("size = k_cache.shape[1]", "size = 4")),
    _wrong(
        "2.4",
        "not causal",
        "a whole prompt is causal",
        ("causal_attention(rows, k, v)", "torch.cat([causal_attention(row[None], k, v) for row in rows])"),
    ),
    _wrong(
        "2.4",
        "a chunk forgets what came before",
        "a chunk sees what came before",
        (
            "causal_attention(rows, k, v)",
            "causal_attention(rows, *(x if len(rows) == 1 else x[-len(rows):] for x in (k, v)))",
        ),
    ),
    _wrong(
        "2.4",
        "everybody has the first table",
        "requests do not see each other",
        ("block_tables[i,", "block_tables[0,"),
    ),
    _wrong(
        "2.4",
        "heads interleaved",
        "grouped heads share a kv head",
        (
            "causal_attention(rows, k, v)",
            "causal_attention(rows.unflatten(1, (-1, k.shape[1])).transpose(1, 2).flatten(1, 2), k, v)"
            ".unflatten(1, (k.shape[1], -1)).transpose(1, 2).flatten(1, 2)",
        ),
    ),
    _wrong(
        "2.4",
        "masked, not cut",
        "not even nan gets through",
        ("torch.arange(int(context_lens[i]))", "torch.arange(block_tables.shape[1] * size)"),
        (
            "causal_attention(rows, k, v)",
            "masked(rows, k, v, int(context_lens[i]))",
        ),
        (
            "def paged_attention",
            "def masked(q, k, v, n):\n"
            "    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))\n"
            "    s = torch.einsum('qhd,thd->hqt', q, k) / q.shape[2] ** 0.5\n"
            "    seen = torch.arange(len(k)) <= torch.arange(n - len(q), n)[:, None]\n"
            "    return torch.einsum('hqt,thd->qhd', s.masked_fill(~seen, float('-inf')).softmax(-1), v)\n"
            "def paged_attention",
        ),
    ),
    _wrong(
        "2.4",
        "wipes the cache",
        "the cache is left alone",
        (
            "    outs = []\n",
            "    outs = []\n"
            "    for table, n in zip(block_tables, context_lens):\n"
            "        if n % size:\n"
            "            k_cache[table[n // size], n % size:] = 0\n",
        ),
    ),
    _wrong("2.4", "float32 always", "the dtype is kept", ("torch.cat(outs)", "torch.cat(outs).float()")),
    _wrong(
        "2.5",
        "share takes a block",
        "share adds an owner",
        (
            "        for block in blocks:\n            self.more[",
            "        self.pool.allocate(1)\n        for block in blocks:\n            self.more[",
        ),
    ),
    _wrong(
        "2.5",
        "share sets two owners",
        "share adds an owner",
        ("self.more[block] = self.more.get(block, 0) + 1", "self.more[block] = 1"),
    ),
    _wrong(
        "2.5",
        "the first to free frees",
        "a block is free when its last owner leaves",
        ("if self.more.get(block, 0) > 0:", "if False:"),
    ),
    _wrong(
        "2.5",
        "named twice counts once",
        "a block named twice counts twice",
        (
            'raise ValueError("free")\n        for block in blocks:',
            'raise ValueError("free")\n        for block in set(blocks):',
        ),
    ),
    _wrong(
        "2.5",
        "free blocks can be shared",
        "free and foreign blocks cannot be shared",
        ("if any(self.ref_count(block) == 0 for block in blocks):", "if False:"),
    ),
    _wrong(
        "2.5",
        "shares up to the wrong one",
        "free and foreign blocks cannot be shared",
        (
            "        if any(self.ref_count(block) == 0 for block in blocks):\n"
            '            raise ValueError("free")\n',
            "",
        ),
        (
            "            self.more[block] = self",
            "            if self.ref_count(block) == 0:\n"
            "                raise ValueError\n"
            "            self.more[block] = self",
        ),
    ),
    _wrong(
        "2.5",
        "drops up to the wrong one",
        "more drops than owners are refused whole",
        (
            "            if blocks.count(block) > self.ref_count(block):\n"
            '                raise ValueError("too often")\n',
            "            self.ref_count(block)\n",
        ),
    ),
    _wrong(
        "2.5",
        "always copies",
        "the only owner writes in place",
        ("owners > 1", "owners > 0"),
    ),
    _wrong("2.5", "never copies", "a shared block is left to the others", ("owners > 1", "owners > 9")),
    _wrong(
        "2.5",
        "the copier stays an owner",
        "a shared block is left to the others",
        ("            self.free([block])\n            return new", "            return new"),
    ),
    _wrong(
        "2.5",
        "lets go before it has another",
        "without a free block nothing changes",
        (
            "            new = self.allocate(1)[0]\n            self.free([block])",
            "            self.free([block])\n            new = self.allocate(1)[0]",
        ),
    ),
    _wrong(
        "2.5",
        "writes into nobody's block",
        "a free block is not written",
        ('        if owners == 0:\n            raise ValueError("nobody\'s")\n', ""),
    ),
    _wrong(
        "2.5",
        "one count for all pools",
        "two pools share nothing",
        ("    def __init__", "    more = {}\n    def __init__"),
        ("        self.more = {}  # owners besides the first\n", "        self.more.clear()\n"),
    ),
]


@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_in_another_style_passes_for_any_seed(exercise_id):
    exercise = find(exercise_id)
    for seed in range(4):
        assert failing(exercise, part_from(RIGHT[exercise_id], exercise.name), seed) == []


@pytest.mark.parametrize("exercise_id, fault, rule, source", WRONG, ids=[f"{w[0]} {w[1]}" for w in WRONG])
def test_a_wrong_answer_fails_at_the_rule_that_explains_it(exercise_id, fault, rule, source):
    exercise = find(exercise_id)
    first = failing(exercise, part_from(source, exercise.name))[0]
    assert first.rule == rule
    assert first.got and first.expected and first.hint


@pytest.mark.parametrize("exercise", of_lab(2), ids=lambda e: e.title)
def test_every_exercise_has_wrong_answers_for_at_least_half_of_its_rules(exercise):
    named = {rule for exercise_id, _, rule, _ in WRONG if exercise_id == exercise.id}
    assert 2 * len(named) >= len(rules_of(exercise))


def test_going_through_every_slot_takes_too_long_for_a_large_memory():
    slow = REPLAY.replace(
        "    pieces = []\n", "    pieces = []\n    if num_slots > 10**6:\n        raise MemoryError\n"
    )
    (first,) = failing(find("2.1"), part_from(slow, "replay"))
    assert first.rule == "memory may be large"
