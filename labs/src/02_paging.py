# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 02 · Paging
#
# You see how much memory a contiguous KV cache wastes, and take that away with the oldest trick of
# operating systems: fixed-size pages and a table. Your pool, your table and your attention then run
# in the engine.
#
# **Afterwards you can** name the two kinds of fragmentation and count them, explain
# **PagedAttention** with all that it costs, and say when it makes serving 2–4 times as fast, and
# when it does not.
#
# **Core:** 2.1 – 2.4, *Plug in*, *Measure*, about 90 minutes. **Extra:** 2.5 and what follows it, 45 minutes.

# %%
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("minivllm") is None:  # a hosted notebook: install what lies beside labs/
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--editable", ".."], check=True)
    sys.path.insert(0, os.path.abspath(".."))  # this kernel started before it was there

# %%
import random
import time
from collections import Counter

import torch
from IPython.display import display

from minivllm import LLM, Parts, SamplingParams, course
from minivllm.attention.dense import causal_attention
from minivllm.attention.paged import paged_attention as minivllm_attention
from minivllm.kv.blocks import OutOfBlocks
from minivllm.viz import style
from minivllm.viz.block_table import BlockTableView

lab = course.open(2)

# %% [markdown]
# ## The pain
#
# In lab 01 each request got a cache of `max_model_len` slots, a slot being room for the keys and
# values of one token. Here is memory for **2,048 slots**, an engine that promises up to 1,024
# tokens a request, and 24 requests that need far less. Nobody knows in advance how long an answer
# gets, so nobody can promise less.

# %%
NUM_SLOTS = 2048
rng = random.Random(2)
needs = [(rng.randint(8, 64), rng.randint(8, 32)) for _ in range(24)]  # tokens of prompt, of answer
prompts = [[rng.randrange(1000, 40000) for _ in range(p)] for p, _ in needs]
answers = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for _, n in needs]
settings = dict(device="cpu", max_num_seqs=32, enable_prefix_caching=False)


def run(num_requests=24, **more):
    llm = LLM(**settings, **more)
    llm.generate(prompts[:num_requests], answers[:num_requests], use_tqdm=False)
    return llm


def memory(llm):
    """For each step {request id: (tokens stored, slots reserved)}, counted from the trace."""
    stored, by_step = Counter(), []
    for step in llm.trace.steps:
        for request_id in step.preempted:
            stored[request_id] = 0
        stored.update(step.num_scheduled_tokens)
        slots = {r: len(blocks) * llm.engine.config.block_size for r, blocks in step.block_tables.items()}
        by_step.append({r: (stored[r], slots[r]) for r in slots})
    return by_step


def at_once(llm):
    return max(step.num_running for step in llm.trace.steps)


def contiguous(max_model_len):
    num_caches = NUM_SLOTS // max_model_len
    backend = dict(attention_backend="contiguous", num_gpu_blocks_override=num_caches)
    return run(max_model_len=max_model_len, **backend)


reserving = contiguous(1024)
used = [sum(tokens for tokens, _ in step.values()) for step in memory(reserving)]
print(f"the longest request needs {max(p + n for p, n in needs)} tokens, the mean is", end=" ")
print(f"{sum(p + n for p, n in needs) / len(needs):.0f}")
print(f"requests at once: {at_once(reserving)}, steps: {len(used)}")
print(f"memory that held a token, at best: {max(used) / NUM_SLOTS:.1%}")

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(width=7)
reserved = [sum(slots for _, slots in step.values()) for step in memory(reserving)]
axes.fill_between(range(len(used)), reserved, color=style.EMPTY, step="mid", label="reserved")
axes.fill_between(range(len(used)), used, color=style.PALETTE[0], step="mid", label="holds a token")
axes.set(xlabel="step", ylabel="slots", title="2 requests of 24 at a time", ylim=(0, NUM_SLOTS * 1.02))
axes.legend(loc="center right", frameon=True)
style.show(figure, "Slots against steps: all 2,048 are reserved all the time, under a tenth hold a token.")

# %% [markdown]
# ## The idea
#
# An operating system does not give a program one piece of memory. It gives **pages** and a **page
# table**, and the program sees addresses without gaps. PagedAttention (Kwon et al., 2023) does so
# for the KV cache: memory is cut into **blocks** of, say, 16 slots; a request has a **block table**,
# the list of its blocks in order; a block is taken when a token needs it. Position p is found in
#
# **slot = table[p // block_size] · block_size + p % block_size**
#
# So the last block of a request is the only one with empty slots. The price: attention has to look
# everything up.

# %% tags=["nbval-ignore-output"]
tables = {"A": [6, 1, 4], "B": [2, 9]}
figure, axes = style.figure(width=7.5, height=3.0)
for number, (letter, table) in enumerate(tables.items()):
    for i, block in enumerate(table):
        left = 2 + 6 * number + i
        for x, y in ((left, 1), (block + 1, 4)):
            style.cell(axes, x, y, style.PALETTE[number])
            axes.text(x, y, f"{letter}{i}", ha="center", va="center", color="white", weight="bold")
        style.cell(axes, left, 2, style.EMPTY)
        axes.text(left, 2, block, ha="center", va="center")
        axes.plot([left, block + 1], [2.5, 3.5], color=style.PALETTE[number], linestyle=style.LINES[number])
for block in set(range(10)) - {block for table in tables.values() for block in table}:
    style.cell(axes, block + 1, 4, style.EMPTY)
style.matrix(axes, 10, 4)
axes.set(xticks=range(1, 11), xticklabels=range(10), yticks=[1, 2, 4], xlabel="block id")
axes.set_yticklabels(["the request sees", "its block table", "memory"])
style.show(
    figure, "Request A sees blocks A0 A1 A2, which lie in blocks 6, 1, 4 of memory; B's lie in 2 and 9."
)

# %% [markdown]
# ## 2.1 Two kinds of waste · ●●○ · 20 min · core
#
# - **Internal** fragmentation: reserved for a request, never used by it.
# - **External** fragmentation: free in total, but in no one piece, so a request is refused.
#
# Three allocators differ in two settings: each rounds up to a multiple of a `unit`; some need one
# contiguous piece.
#
# | allocator | unit | contiguous |
# |---|---|---|
# | reserve the maximum | `max_len` | yes |
# | exact fit | 1 | yes |
# | blocks | `block_size` | no |
#
# **Predict:** requests of 1 to 512 tokens, blocks of 16 slots. How many slots does a request waste
# on average?

# %%
### BEGIN SOLUTION
mean_waste = 7.5
### END SOLUTION
lab.predict("2.1", mean_waste)

# %% [markdown]
# **Spec.** Memory slot by slot; `show=True` prints it after each event. Capitals hold a token, small
# letters are reserved for nothing. Yours must not go through all slots: real caches have millions.


# %%
def spec_replay(trace, num_slots, unit, contiguous, show=False):
    memory, internal, refused, external = "·" * num_slots, 0, 0, 0
    for name, length in trace:
        if length == 0:  # the request ends
            memory = memory.replace(name, "·").replace(name.lower(), "·")
            continue
        size = length
        while size % unit:
            size += 1
        free = [slot for slot in range(num_slots) if memory[slot] == "·"]
        if contiguous:
            start = memory.find("·" * size)  # the lowest hole
            slots = range(start, start + size) if start >= 0 else []
        else:
            slots = free[:size] if len(free) >= size else []
        if slots:
            internal += size - length
            for i, slot in enumerate(slots):
                letter = name if i < length else name.lower()
                memory = memory[:slot] + letter + memory[slot + 1 :]
        else:
            refused += 1
            external += len(free) >= size
        if show:
            print(f"{memory}  {name} needs {length}{'' if slots else ': refused'}")
    return internal, refused, external


small = [("A", 6), ("B", 5), ("C", 3), ("D", 9), ("A", 0), ("C", 0), ("E", 10)]
for label, unit, one_piece in (
    ("the maximum, 16", 16, True),
    ("exact fit", 1, True),
    ("blocks of 4", 4, False),
):
    print(label)
    counts = spec_replay(small, 32, unit, one_piece, show=True)
    print("internal {}, refused {}, external {}\n".format(*counts))


# %% tags=["solve:2.1"]
def replay(trace, num_slots, unit, contiguous):
    """(internal, refused, external) after a trace of events.

    trace: list of (name, slots needed) when a request starts, (name, 0) when it ends.
    A size is rounded up to a multiple of unit; a contiguous piece takes the lowest hole it fits in.
    internal: slots reserved and not needed, summed over the requests that found a place;
    refused: requests that found none; external: those of them for whom enough slots were free.
    """
    ### BEGIN SOLUTION
    held = {}  # name → (start, size)
    internal = refused = external = 0
    for name, length in trace:
        if length == 0:
            held.pop(name, None)
            continue
        size = -(-length // unit) * unit
        free = num_slots - sum(taken for _, taken in held.values())
        start = 0
        for other, taken in sorted(held.values()) if contiguous else ():
            if other - start >= size:
                break
            start = other + taken
        fits = start + size <= num_slots if contiguous else size <= free
        if fits:
            held[name] = start, size
            internal += size - length
        else:
            refused += 1
            external += size <= free
    return internal, refused, external
    ### END SOLUTION


# %% tags=["check:2.1"]
lab.check(replay)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Keep a dict from name to (start, size). What is free follows from it; a hole is what lies between
# two neighbours.
#
# <details><summary>Hint 2: the key line</summary>
#
# Go through the held pieces sorted by start, with `start` at the end of the last one. The first gap
# `other - start` of at least `size` is the place; behind the last piece, check the end of memory.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `size = -(-length // unit) * unit`; `free = num_slots - sum of sizes`. Contiguous: it fits if `start +
# size <= num_slots`. Else: if `size <= free`. Refused: `external += size <= free`.
# </details></details></details>

# %% [markdown]
# A day of 3,000 requests in a memory of 4,096 slots: most short, one in eight long. When memory is
# full a request is turned away, so that the three can be compared.

# %%
replay = lab.part("2.1")
rng = random.Random(7)
trace, running = [], []
for i in range(3000):
    trace.append((f"R{i}", rng.randint(200, 512) if rng.random() < 1 / 8 else rng.randint(1, 128)))
    running.append(f"R{i}")
    while len(running) > 36:
        trace.append((running.pop(rng.randrange(len(running))), 0))
total = sum(length for _, length in trace)

print(f"{'allocator':<22} {'refused':>8} {'of these external':>18} {'reserved, not used':>19}")
wasted = {}
for label, unit, one_piece in (
    ("maximum, 512", 512, True),
    ("exact fit", 1, True),
    ("blocks of 16", 16, False),
):
    internal, refused, external = replay(trace, 4096, unit, one_piece)
    wasted[label] = internal / (3000 - refused)
    print(f"{label:<22} {refused:>8} {external:>18} {wasted[label]:>13.1f} a request")
print(f"the mean request needs {total / 3000:.1f} slots")
lab.compare("2.1", round(wasted["blocks of 16"], 1))

# %% [markdown]
# Exact fit is the best that a contiguous cache could do, and it cannot be had: it needs the length of an
# answer before the first token. Even so holes turn requests away. Blocks need to know nothing, and
# waste at most block_size − 1 slots a request.
#
# **Question.** Why is there no external fragmentation with blocks?
#
# <details><summary>An answer</summary>
#
# Every block has the same size, and a request takes any free ones. A hole of one block is as good as
# any other.
# </details>

# %% [markdown]
# ## 2.2 The block pool · ●●○ · 20 min · core
#
# The pool knows which blocks are free, and nothing else: no requests, no tokens, no tensors. It is
# the one place where a mistake gives *two requests the same memory*, and nothing would crash. So it
# is strict: every call that makes no sense is an error and **changes nothing**.
#
# **Predict:** of 128 blocks you take 100, and give every second one of these back. What is the
# largest n for which `allocate(n)` then works?

# %%
### BEGIN SOLUTION
largest = 28 + 50
### END SOLUTION
lab.predict("2.2", largest)

# %% [markdown]
# **Spec.** It looks at all blocks in every call, and trusts its caller. Yours does neither.


# %%
class spec_BlockPool:
    def __init__(self, num_blocks):
        self.num_blocks = num_blocks
        self.owned = [False] * num_blocks

    @property
    def num_free(self):
        return sum(not owned for owned in self.owned)

    def ref_count(self, block):
        return 1 if self.owned[block] else 0

    def allocate(self, n):
        blocks = [block for block in range(self.num_blocks) if not self.owned[block]][:n]
        for block in blocks:
            self.owned[block] = True
        return blocks

    def free(self, blocks):
        for block in blocks:
            self.owned[block] = False


# %% tags=["solve:2.2"]
class BlockPool:
    """num_blocks blocks with the ids 0 … num_blocks − 1, each of them free or taken."""

    def __init__(self, num_blocks):
        """All blocks are free. The number stays readable as self.num_blocks."""
        ### BEGIN SOLUTION
        self.num_blocks = num_blocks
        self.free_blocks = list(range(num_blocks))
        self.taken = set()
        ### END SOLUTION

    @property
    def num_free(self):
        """Number of free blocks."""
        ### BEGIN SOLUTION
        return len(self.free_blocks)
        ### END SOLUTION

    def ref_count(self, block):
        """1 if the block is taken, 0 if it is free. ValueError for an id that is not of this pool."""
        ### BEGIN SOLUTION
        if not 0 <= block < self.num_blocks:
            raise ValueError(f"block {block} is not of this pool of {self.num_blocks}")
        return int(block in self.taken)
        ### END SOLUTION

    def allocate(self, n):
        """Take n free blocks, whichever: a list of n ids. All or nothing: OutOfBlocks takes none.

        ValueError for a negative n."""
        ### BEGIN SOLUTION
        if n < 0:
            raise ValueError(f"cannot allocate {n} blocks")
        if n > self.num_free:
            raise OutOfBlocks(f"{n} blocks wanted, {self.num_free} are free")
        blocks = [self.free_blocks.pop() for _ in range(n)]
        self.taken.update(blocks)
        return blocks
        ### END SOLUTION

    def free(self, blocks):
        """Give back a list of blocks. ValueError, and nothing changed, if one of them is not taken, is
        not of this pool, or is named twice."""
        ### BEGIN SOLUTION
        if len(set(blocks)) < len(blocks) or not self.taken.issuperset(blocks):
            raise ValueError(f"{blocks} are not all taken, or one is named twice")
        self.taken.difference_update(blocks)
        self.free_blocks.extend(blocks)
        ### END SOLUTION


# %% tags=["check:2.2"]
lab.check(BlockPool)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Two things together: a list of free ids, to take from, and a set of taken ids, to check against.
#
# <details><summary>Hint 2: the key line</summary>
#
# Check everything before you change anything. In `allocate`: compare n with `num_free` first. In
# `free`: all ids are in the set, and none is there twice.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `blocks = [self.free_blocks.pop() for _ in range(n)]`, `self.taken.update(blocks)`. Refuse in
# `free` if `len(set(blocks)) < len(blocks) or not self.taken.issuperset(blocks)`.
# </details></details></details>

# %%
BlockPool = lab.part("2.2")
pool = BlockPool(128)
blocks = pool.allocate(100)
pool.free(blocks[::2])
largest_n = pool.num_free
pool.allocate(largest_n)
lab.compare("2.2", largest_n)
for what, call in (
    ("one more", lambda: pool.allocate(1)),
    ("freed twice", lambda: pool.free([5, 5])),
    ("foreign", lambda: pool.free([128])),
):
    try:
        call()
    except (OutOfBlocks, ValueError) as error:
        print(f"{what}: {type(error).__name__}, free blocks {pool.num_free}")

# %% [markdown]
# A contiguous allocator could serve 28 of those 78 in one piece. Here the pieces do not matter.
#
# **Argue:** which free block should be given out next: the one freed last (LIFO, a stack) or the
# one freed first (FIFO, a queue)? The contract takes either.
#
# <details><summary>An answer</summary>
#
# - LIFO: what was just freed is still in the processor's caches, and a small load touches a small
#   part of memory. `list.pop()` is all it takes.
# - FIFO: freed blocks keep their contents for the longest time. If somebody may want those again, that is
#   the point: vLLM's free queue is in this order, and its prefix cache lives in the free blocks (lab 06).
# </details>

# %% [markdown]
# ## 2.3 The block table · ●○○ · 15 min · core
#
# A request's page table. It never takes a block by itself: it says how many it *needs* for n more
# tokens, and is given exactly those. So blocks are taken **on demand, at the last moment**.
#
# **Predict:** block_size 16, a prompt of 40 tokens, then 30 decode steps, each of which stores one
# more token. How many blocks has the request at the end, and in how many of the 30 steps was one taken?

# %%
### BEGIN SOLUTION
blocks_at_end = 5
steps_with_a_block = 2
### END SOLUTION
lab.predict("2.3", [blocks_at_end, steps_with_a_block])

# %% [markdown]
# **Spec.** It writes down every slot that it has. It trusts its caller; yours does not.


# %%
class spec_BlockTable:
    def __init__(self, block_size):
        self.block_size = block_size
        self.blocks = []
        self.num_tokens = 0

    def slots(self):
        return [block * self.block_size + i for block in self.blocks for i in range(self.block_size)]

    def blocks_needed(self, n):
        needed = 0
        while len(self.slots()) + needed * self.block_size < self.num_tokens + n:
            needed += 1
        return needed

    def append_tokens(self, n, new_blocks):
        self.blocks = self.blocks + new_blocks
        self.num_tokens = self.num_tokens + n

    def slot_mapping(self, start, n):
        return self.slots()[start : start + n]

    def fork(self):
        other = spec_BlockTable(self.block_size)
        other.append_tokens(self.num_tokens, self.blocks)
        return other


# %% tags=["solve:2.3"]
class BlockTable:
    """Where the tokens of one request are. The engine reads `blocks`, and may replace entries of it."""

    def __init__(self, block_size):
        self.block_size = block_size
        self.blocks = []  # ids, in the order of the tokens
        self.num_tokens = 0

    def blocks_needed(self, n):
        """How many new blocks n more tokens take; 0 if there is room for them."""
        ### BEGIN SOLUTION
        blocks_in_all = -(-(self.num_tokens + n) // self.block_size)
        return blocks_in_all - len(self.blocks)
        ### END SOLUTION

    def append_tokens(self, n, new_blocks):
        """Make room for n more tokens. ValueError unless new_blocks are exactly as many as needed."""
        ### BEGIN SOLUTION
        if len(new_blocks) != self.blocks_needed(n):
            raise ValueError(f"{n} tokens need {self.blocks_needed(n)} blocks, not {len(new_blocks)}")
        self.blocks.extend(new_blocks)
        self.num_tokens += n
        ### END SOLUTION

    def slot_mapping(self, start, n):
        """Slots of the positions start … start + n − 1: a list. ValueError for one without a token."""
        ### BEGIN SOLUTION
        if start < 0 or start + n > self.num_tokens:
            raise ValueError(f"{start} to {start + n - 1} are not all among {self.num_tokens} tokens")
        size = self.block_size
        return [self.blocks[p // size] * size + p % size for p in range(start, start + n)]
        ### END SOLUTION

    def fork(self):
        """A second table of the same blocks, which then goes its own way."""
        ### BEGIN SOLUTION
        other = BlockTable(self.block_size)
        other.blocks = list(self.blocks)
        other.num_tokens = self.num_tokens
        return other
        ### END SOLUTION


# %% tags=["check:2.3"]
lab.check(BlockTable)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Count blocks for all tokens, old and new, and take off those that are there already.
#
# <details><summary>Hint 2: the key line</summary>
#
# Rounding up without floats: `-(-tokens // block_size)`. A slot is block id times block_size, plus
# the offset in the block.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `[self.blocks[p // size] * size + p % size for p in range(start, start + n)]`, after a look at
# `start < 0` and `start + n > self.num_tokens`. `fork` copies the list: `list(self.blocks)`.
# </details></details></details>

# %%
BlockTable = lab.part("2.3")
pool, table = BlockPool(8), BlockTable(16)
table.append_tokens(40, pool.allocate(table.blocks_needed(40)))
taken_in = []
for step in range(30):
    new_blocks = pool.allocate(table.blocks_needed(1))
    table.append_tokens(1, new_blocks)
    if new_blocks:
        taken_in.append(step)
print(f"{table.num_tokens} tokens, {len(table.blocks)} blocks, one taken in the steps {taken_in}")
print(f"empty slots: {len(table.blocks) * 16 - table.num_tokens}")
lab.compare("2.3", [len(table.blocks), len(taken_in)])

# %% [markdown]
# ## 2.4 Attention over blocks · ●●○ · 25 min · core
#
# The engine's batch is **ragged**: the new tokens of all requests one after the other, `query_lens[i]`
# of them for request i, a chunk of a prompt or a single token. Their keys and values are in the
# cache already. Request i sees `context_lens[i]` tokens, the new ones included and last.
#
# Slots that hold no token hold *anything*: an old request's keys, or NaN.
#
# **Predict:** contexts of 100, 17 and 1 token, block_size 16. How many slots do you read if you
# gather whole blocks?

# %%
### BEGIN SOLUTION
slots_read = 7 * 16 + 2 * 16 + 1 * 16
### END SOLUTION
lab.predict("2.4", slots_read)

# %% [markdown]
# **Spec.** One query after the other: gather the slots it may see, then exercise 1.1.

# %%
attention_one_step = lab.part("1.1")


def spec_paged_attention(q, k_cache, v_cache, block_tables, context_lens, query_lens):
    size, rows = k_cache.shape[1], []
    for table, context_len, n in zip(block_tables, context_lens, query_lens, strict=True):
        for seen in range(context_len - n + 1, context_len + 1):
            k = torch.stack([k_cache[table[p // size], p % size] for p in range(seen)])
            v = torch.stack([v_cache[table[p // size], p % size] for p in range(seen)])
            rows.append(attention_one_step(q[len(rows)], k, v))
    return torch.stack(rows)


# %% tags=["solve:2.4"]
def paged_attention(q, k_cache, v_cache, block_tables, context_lens, query_lens):
    """Causal attention of a ragged batch. A loop over requests is fine, one over tokens is not.

    q: [num_tokens, num_heads, head_dim]; k_cache, v_cache: [num_blocks, block_size, num_kv_heads,
    head_dim]; block_tables: [num_seqs, max_blocks], padded with 0; context_lens, query_lens: [num_seqs]
    → like q. `causal_attention(q, k, v)` does one request, its queries being the last tokens.
    """
    ### BEGIN SOLUTION
    block_size = k_cache.shape[1]
    out = torch.empty_like(q)
    row = 0
    for table, context_len, n in zip(block_tables, context_lens.tolist(), query_lens.tolist(), strict=True):
        blocks = table[: -(-context_len // block_size)]
        k = k_cache[blocks].flatten(0, 1)[:context_len]
        v = v_cache[blocks].flatten(0, 1)[:context_len]
        out[row : row + n] = causal_attention(q[row : row + n], k, v)
        row += n
    return out
    ### END SOLUTION


# %% tags=["check:2.4"]
lab.check(paged_attention)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# For one request: fetch its blocks, lay them side by side, cut off what is behind the context. Then
# it is dense attention.
#
# <details><summary>Hint 2: the key line</summary>
#
# `k_cache[blocks]`, where `blocks` is a tensor of ids, is [len(blocks), block_size, num_kv_heads, head_dim];
# `.flatten(0, 1)` makes one row a slot.
#
# <details><summary>Hint 3: nearly code</summary>
#
# For each request: `blocks = table[:number of blocks of its context]`, `k =
# k_cache[blocks].flatten(0, 1)[:context_len]`, the same for v; `out[row : row + n] =
# causal_attention(q[row : row + n], k, v)`; `row += n`.
# </details></details></details>

# %%
paged_attention = lab.part("2.4")
torch.manual_seed(0)
contexts, queries = torch.tensor([100, 17, 1]), torch.tensor([1, 9, 1])
k_cache, v_cache = torch.full((2, 16, 16, 3, 64), float("nan"))  # nobody has written anything yet
q = torch.randn(11, 9, 64)
pool, tables = BlockPool(16), []
for length in contexts.tolist():
    table = BlockTable(16)
    table.append_tokens(length, pool.allocate(table.blocks_needed(length)))
    slots = table.slot_mapping(0, length)
    for cache in (k_cache, v_cache):
        cache.flatten(0, 1)[slots] = torch.randn(length, 3, 64)
    tables.append(table.blocks + [0] * (7 - len(table.blocks)))
batch = q, k_cache, v_cache, torch.tensor(tables), contexts, queries
print("same as the spec:", torch.allclose(paged_attention(*batch), spec_paged_attention(*batch), atol=1e-4))
lab.compare("2.4", 16 * (16 - pool.num_free))

# %% tags=["nbval-ignore-output"]
functions = {"spec": spec_paged_attention, "yours": paged_attention, "minivllm": minivllm_attention}
for name, function in functions.items():
    start = time.perf_counter()
    for _ in range(10):
        function(*batch)
    print(f"{name:<9} {(time.perf_counter() - start) / 10 * 1000:6.2f} ms")

# %% [markdown]
# Minivllm's does all single tokens in one operation, padded and masked
# ([paged.py](../minivllm/attention/paged.py)). All three copy blocks together before they attend. This is
# the price of torch; a kernel reads them where they are (lab 03).
#
# ## Plug in
#
# Your pool, your table and your attention in the engine. Two features need what your pool cannot do yet,
# sharing: prefix caching stays off, and every request has one completion.


# %%
yours = dict(block_pool=BlockPool, block_table=BlockTable)
tokenizer = reserving.get_tokenizer()
texts = (
    "Once upon a time, in a small village by the sea, there lived",
    "The capital of France is Paris. The capital of Italy is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "1, 2, 3, 4, 5,",
)
text_ids = [tokenizer.encode(text) for text in texts]
greedy = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
small_engine = dict(device="cpu", max_model_len=512, num_gpu_blocks_override=24, max_num_seqs=8)


def tokens_of(llm):
    return [output.outputs[0].token_ids for output in llm.generate(text_ids, greedy, use_tqdm=False)]


parts = Parts(**yours, paged_attention=paged_attention)
llm = LLM(parts=parts, enable_prefix_caching=False, **small_engine)
in_engine = tokens_of(llm)
print("same tokens as minivllm's own parts:", in_engine == tokens_of(LLM(**small_engine)))
print(f"free when idle: {llm.stats()['num_free_blocks']} of {llm.stats()['num_blocks']} blocks")

# %% tags=["nbval-ignore-output"]
for text, tokens in zip(texts, in_engine, strict=True):
    print(repr(text), "→", repr(tokenizer.decode(tokens)[:70]))

# %% [markdown]
# ## Measure: more requests in the same memory
#
# Now the 24 requests of the beginning again: 2,048 slots, but as 128 blocks of 16.
#
# **Predict**, from arithmetic: how many requests run at once if each takes only what it has stored?
# The prompts are 8 – 64 tokens, the answers 8 – 32. And by what factor does the number of *steps* fall
# against reserving 1,024 slots each?

# %%
### BEGIN SOLUTION
running_at_once = 24
fewer_steps = 7
### END SOLUTION
lab.predict("C3", [running_at_once, fewer_steps])

# %%
runs = {
    f"reserve {n:,}": llm for n, llm in ((1024, reserving), (256, contiguous(256)), (128, contiguous(128)))
}
paged = run(max_model_len=1024, num_gpu_blocks_override=NUM_SLOTS // 16, parts=Parts(**yours))
runs["blocks of 16"] = paged

num_answers = sum(n for _, n in needs)
print(f"{'2,048 slots':<14} {'at once':>8} {'steps':>6} {'new tokens a step':>18}")
for label, llm in runs.items():
    steps = len(llm.trace.steps)
    print(f"{label:<14} {at_once(llm):>8} {steps:>6} {num_answers / steps:>18.1f}")
lab.compare("C3", [at_once(paged), round(len(reserving.trace.steps) / len(paged.trace.steps), 1)])

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(width=7.5)
seconds = {}
for number, (label, llm) in enumerate(runs.items()):
    steps = list(llm.trace.steps)
    seconds[label] = steps[-1].time_end - steps[0].time_start
    times = [step.time_end - steps[0].time_start for step in steps]
    running = [step.num_running for step in steps]
    style.line(axes, times, running, number, label, markevery=max(1, len(steps) // 10))
axes.set(
    xlabel="seconds", ylabel="requests running", ylim=(0, None), title="the same 24 requests, the same memory"
)
axes.legend()
style.show(figure, "Requests running against time: with blocks all run at once and end first.")

for label, llm in runs.items():
    ms = 1000 * seconds[label] / len(llm.trace.steps)
    rate = num_answers / seconds[label]
    gain = seconds[label] / seconds["blocks of 16"]
    print(f"{label:<14} {rate:>5.0f} tokens/s, a step takes {ms:>4.0f} ms; blocks are {gain:.1f} × as fast")

# %% [markdown]
# **Explain it, before you unfold.** The number of steps falls far more than the time. Where does
# the rest go? And why is the gain nearly gone against `reserve 128`?
#
# <details><summary>An answer</summary>
#
# - A request takes fewer than 60 slots on average, half an empty block included. 2,048 slots take 34 of
#   those, so all 24 run at once.
# - Throughput = tokens a step ÷ seconds a step. Blocks multiply the first. The second grows, too:
#   weights are read once a step for everybody, but the arithmetic is done for each token. The quotient is
#   left: **this is where 2–4 × comes from**.
# - With 128 reserved 16 run at once, and there is little to win.
# </details>

# %% [markdown]
# So the range belongs to a workload, not to the method. It does **not** hold when
#
# - requests are nearly as long as the maximum (or you know their lengths): nothing to win;
# - the batch was large enough before, so that a step is bound by arithmetic: more requests make it
#   longer by as much;
# - memory was never short: `max_num_seqs` or the number of users decides.
#
# It is largest where one step costs the same for 4 requests and for 40: a GPU that spends its time
# reading weights.
#
# **What is wasted now?** Count it, in every step, for every request.

# %%
for label, llm in (("reserve 1,024", reserving), ("blocks of 16", paged)):
    empty = [slots - tokens for step in memory(llm) for tokens, slots in step.values()]
    taken = sum(slots for step in memory(llm) for _, slots in step.values())
    print(f"{label:<14} empty slots of a request: {max(empty):>5} at most,", end=" ")
    print(f"{sum(empty) / len(empty):>5.1f} on average; of all slots taken {sum(empty) / taken:.1%}")
print(f"preempted for lack of a block: {paged.stats()['num_preemptions']} times")

# %% [markdown]
# ## 2.5 Fork and copy-on-write · ●●● · 30 min · extra
#
# Three completions of one prompt need its keys and values once. They **share** the prompt's blocks:
# each block has a **reference count**, the number of its owners, and is free when the last one lets
# it go. Who wants to *write* into a block that has other owners gets a copy first: **copy-on-write**.
#
# This extends 2.2. Your new pool lies around a `BlockPool`, and uses nothing but its methods.
#
# **Predict:** a prompt of 20 tokens, blocks of 16, 3 completions. The prompt is computed in step 0.
# How many blocks are copied in all, and in which step?

# %%
### BEGIN SOLUTION
num_copies = 2
in_step = 1
### END SOLUTION
lab.predict("2.5", [num_copies, in_step])

# %% [markdown]
# **Spec.** One count for each block, all of them looked at; it trusts its caller.


# %%
class spec_SharedBlockPool:
    def __init__(self, num_blocks):
        self.num_blocks = num_blocks
        self.owners = [0] * num_blocks

    @property
    def num_free(self):
        return self.owners.count(0)

    def ref_count(self, block):
        return self.owners[block]

    def allocate(self, n):
        blocks = [block for block in range(self.num_blocks) if self.owners[block] == 0][:n]
        self.share(blocks)
        return blocks

    def share(self, blocks):
        for block in blocks:
            self.owners[block] += 1

    def free(self, blocks):
        for block in blocks:
            self.owners[block] -= 1

    def copy_on_write(self, block):
        if self.owners[block] == 1:
            return block
        self.owners[block] -= 1
        return self.allocate(1)[0]


# %% tags=["solve:2.5"]
class SharedBlockPool:
    """A BlockPool whose blocks may have several owners."""

    def __init__(self, num_blocks):
        self.num_blocks = num_blocks
        self.pool = BlockPool(num_blocks)  # yours, of 2.2: knows what is free
        self.owners = Counter()  # block → number of owners

    @property
    def num_free(self):
        return self.pool.num_free

    def ref_count(self, block):
        """Number of owners. ValueError for an id that is not of this pool."""
        ### BEGIN SOLUTION
        return self.owners[block] if self.pool.ref_count(block) else 0
        ### END SOLUTION

    def allocate(self, n):
        """As before; each of the blocks has one owner."""
        ### BEGIN SOLUTION
        blocks = self.pool.allocate(n)
        for block in blocks:
            self.owners[block] = 1
        return blocks
        ### END SOLUTION

    def share(self, blocks):
        """One more owner for each, twice for an id named twice. ValueError, and nothing changed, if one
        of them is free or foreign."""
        ### BEGIN SOLUTION
        if not all(self.ref_count(block) for block in blocks):
            raise ValueError(f"{blocks} are not all taken, so they cannot be shared")
        self.owners.update(blocks)
        ### END SOLUTION

    def free(self, blocks):
        """One owner less for each, twice for an id named twice; without owners it is free. ValueError,
        and nothing changed, if one of them has fewer owners than that."""
        ### BEGIN SOLUTION
        drops = Counter(blocks)
        if any(n > self.ref_count(block) for block, n in drops.items()):
            raise ValueError(f"{blocks} names a block more often than it has owners")
        self.owners.subtract(drops)
        self.pool.free([block for block in drops if self.owners[block] == 0])
        ### END SOLUTION

    def copy_on_write(self, block):
        """The id of the block that one owner may write into now: this one if nobody else owns it, else
        a new one in its stead. OutOfBlocks changes nothing; ValueError if nobody owns it."""
        ### BEGIN SOLUTION
        if self.ref_count(block) == 0:
            raise ValueError(f"nobody owns block {block}")
        if self.ref_count(block) == 1:
            return block
        copy = self.allocate(1)[0]
        self.free([block])
        return copy
        ### END SOLUTION


# %% tags=["check:2.5"]
lab.check(SharedBlockPool)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# The inner pool knows free from taken; the Counter knows how often. `free` tells the inner pool only
# of blocks whose last owner has gone.
#
# <details><summary>Hint 2: the key line</summary>
#
# Count first: `drops = Counter(blocks)`. Refuse if any block has fewer owners than drops; then
# subtract, and give back those at 0.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `copy_on_write`: no owner, ValueError; one owner, the same id; else `copy = self.allocate(1)[0]`
# **before** `self.free([block])`, so that running out changes nothing.
# </details></details></details>

# %% [markdown]
# Two requests fork, and one writes its next token. With real tensors: the other one must not notice.

# %%
SharedBlockPool = lab.part("2.5")
pool, parent = SharedBlockPool(8), BlockTable(4)
parent.append_tokens(6, pool.allocate(parent.blocks_needed(6)))
keys = torch.zeros(8, 4)  # [num_blocks, block_size], one number a slot
keys.view(-1)[parent.slot_mapping(0, 6)] = torch.arange(1.0, 7.0)

child = parent.fork()
pool.share(child.blocks)
print("owners of the shared blocks:", [pool.ref_count(block) for block in parent.blocks])

last = child.blocks[-1]
child.blocks[-1] = pool.copy_on_write(last)
keys[child.blocks[-1]] = keys[last]  # the pool only counts; contents are the caller's
child.append_tokens(1, [])
keys.view(-1)[child.slot_mapping(6, 1)] = 70
parent.append_tokens(1, [])
keys.view(-1)[parent.slot_mapping(6, 1)] = 7

for name, table in (("parent", parent), ("child", child)):
    counts = [pool.ref_count(block) for block in table.blocks]
    print(f"{name:<7} owners {counts}, keys {keys.view(-1)[table.slot_mapping(0, 7)].tolist()}")

# %% [markdown]
# Now all your parts in the engine, prefix caching and forks included. `KVManager` asks your pool
# ([manager.py](../minivllm/kv/manager.py)). Copies of a step are made before its forward pass, all
# at once, so it keeps the source referenced until the step has run.

# %%
llm = lab.engine(**small_engine)
print("same tokens as before:              ", tokens_of(llm) == in_engine)
print("same tokens, now found in the cache:", tokens_of(llm) == in_engine)
print(f"free when idle: {llm.stats()['num_free_blocks']} of {llm.stats()['num_blocks']} blocks")

# %%
backend = dict(attention_backend="contiguous", max_model_len=512, num_gpu_blocks_override=4, device="cpu")
print("same tokens, contiguous cache:", tokens_of(lab.engine(**backend)) == in_engine)

# %% [markdown]
# ## See: the block table
#
# Request A is an ordinary one; B has three completions, B, B1 and B2, of one prompt of 20 tokens.
# Two questions: which block is copied, and for whom? Which block stays shared to the end?

# %%
llm = lab.engine(**{**small_engine, "num_gpu_blocks_override": 16, "enable_prefix_caching": False})
ids = tokenizer.encode("The best thing about the sea is that nobody owns it. The second best thing is that")
three = SamplingParams(n=3, temperature=1.0, seed=0, max_tokens=16, ignore_eos=True)
llm.generate([text_ids[0], (ids * 2)[:20]], [greedy, three], use_tqdm=False)

copied = {step.index: step.num_copied for step in llm.trace.steps if step.num_copied}
first = min(copied)
print(f"blocks copied, by step: {copied}")
for index in (first - 1, first):
    tables = llm.trace.steps[index].block_tables
    owners = Counter(block for blocks in tables.values() for block in blocks)
    print(f"step {index}: {len(tables)} tables, owners of a block: {sorted(owners.values())}")
lab.compare("2.5", [sum(copied.values()), first])

# %% [markdown]
# Three owners, two copies: the last one has the block to itself by then, and writes in place. The first
# block is full; nobody writes into it, so it stays shared.
#
# The same as text, as a picture of that step, and with a slider where the front end has widgets. On the
# left all blocks (× is the number of owners), on the right the tables.

# %% tags=["nbval-ignore-output"]
view = BlockTableView(llm.trace, num_blocks=16, block_size=16)
for index in (first - 1, first, first + 14):
    print(view.table(index), end="\n\n")

# %% tags=["nbval-ignore-output"]
view.show(first)

# %% tags=["nbval-ignore-output"]
if importlib.util.find_spec("ipywidgets"):
    display(view.widget())

# %% [markdown]
# ## Break it
#
# **A. The block size.** Half of the requests in 2,048 slots, with blocks of 1, 16 and 256. Before you run
# it: which wastes most? Which has the longest tables? Which is slowest, and why?

# %%
sizes = {}
for size in (1, 16, 256):
    blocks = dict(block_size=size, num_gpu_blocks_override=NUM_SLOTS // size)
    sizes[size] = run(12, max_model_len=1024, **blocks)

print(f"{'block_size':>10} {'at once':>8} {'most empty slots a request':>27} {'longest table':>14}")
for size, llm in sizes.items():
    waste = max(slots - tokens for step in memory(llm) for tokens, slots in step.values())
    longest = max(len(blocks) for step in llm.trace.steps for blocks in step.block_tables.values())
    print(f"{size:>10} {at_once(llm):>8} {waste:>27} {longest:>14}")

# %% tags=["nbval-ignore-output"]
q, contexts, ones = torch.randn(16, 9, 64), torch.full((16,), 1024), torch.ones(16, dtype=torch.long)
for size, llm in sizes.items():
    steps = list(llm.trace.steps)
    elapsed = steps[-1].time_end - steps[0].time_start
    k_cache, v_cache = torch.randn(2, 16 * 1024 // size, size, 3, 64)
    tables = torch.randperm(len(k_cache)).view(16, -1)
    attention_ms = []
    for _ in range(20):
        start = time.perf_counter()
        minivllm_attention(q, k_cache, v_cache, tables, contexts, ones)
        attention_ms.append(1000 * (time.perf_counter() - start))
    print(
        f"block_size {size:>3}: {sum(n for _, n in needs[:12]) / elapsed:>4.0f} tokens/s in the engine;",
        end=" ",
    )
    print(f"attention alone, 16 × 1,024 tokens, one layer: {min(attention_ms):.1f} ms")

# %% [markdown]
# - **1** wastes nothing. Its tables are as long as the texts; every slot is looked up by itself. With
#   texts as short as these attention is a small part of a step.
# - **256** has short tables and long reads; it wastes up to 255 slots a request, so fewer fit.
# - **16** is vLLM's default: 16 tokens of one head, 64 dimensions in 16 bits, are 2 KiB in a row, long
#   enough for a GPU, which reads 32 bytes at a time.
#
# **B. A pool that forgets.** Here `free` gives one block back twice, and nothing checks. What will
# you see: a crash, an error, or neither?


# %%
class ForgetfulPool:
    def __init__(self, num_blocks):
        self.num_blocks, self.free_blocks = num_blocks, list(range(num_blocks))

    @property
    def num_free(self):
        return len(self.free_blocks)

    def ref_count(self, block):
        return 1

    def share(self, blocks):
        pass

    def allocate(self, n):
        if n > self.num_free:
            raise OutOfBlocks
        return [self.free_blocks.pop() for _ in range(n)]

    def free(self, blocks):
        self.free_blocks += blocks + blocks[:1]


# %% tags=["nbval-ignore-output"]
llm = LLM(parts=Parts(block_pool=ForgetfulPool), enable_prefix_caching=False, **small_engine)
for name in ("first", "second", "third"):
    wrong = sum(got != want for got, want in zip(tokens_of(llm), in_engine, strict=True))
    stats = llm.stats()
    print(
        f"{name:<6} time: {wrong} of 4 wrong; {stats['num_free_blocks']} of {stats['num_blocks']} blocks free"
    )

# %% [markdown]
# Neither. Two requests write into one block, and each reads the other's keys: fluent nonsense, or another
# user's text. More blocks free than there are is the only sign. This is why the pool checks, and why
# its contract is strict.

# %% [markdown]
# ## Interview corner
#
# Say your answer aloud before you unfold.
#
# <details><summary><b>1.</b> Explain PagedAttention in detail. How does it manage KV cache memory,
# and what are its limits?</summary>
#
# - *Problem:* lengths are unknown in advance. Reserving the maximum wastes most of memory
#   (internal), exact pieces leave holes (external). Few requests fit, so weights are read for few.
# - *Mechanism:* fixed-size blocks, one pool, a block table for each request; slot = table[p //
#   size] · size + p % size. Blocks are taken on demand, one when the last is full. Waste: under one
#   block a request; external: none.
# - *Attention* gathers keys and values by table; results are exactly those of dense attention.
#
# (continued)
# </details>

# %% [markdown]
# <details><summary><b>1, continued.</b> Sharing, and the limits</summary>
#
# - *Sharing:* reference counts; forks share the prompt; copy-on-write of the last block only.
# - *Indirection:* kernels must follow tables. The paper's own was 20–26 % slower than a contiguous
#   one; ready-made kernels had to be rewritten.
# - *Block size:* small means long tables and short reads; large means waste and less sharing.
# - *Not solved:* the cache is as big as before (GQA and quantization help); attention reads all of it;
#   nothing is reserved, so requests may be **preempted**.
# - Strong: says when there is no gain, and names an alternative (vAttention: the GPU's own virtual
#   memory).
# </details>

# %% [markdown]
# <details><summary><b>2.</b> 40 % of the blocks are free, and a request is not admitted. Why?</summary>
#
# - Not external fragmentation: any blocks will do. The prompt needs more than that; or the engine
#   keeps a reserve for those who run and grow; or they are promised to a prompt half computed; or
#   `max_num_seqs` is reached.
# - Strong: asks what "free" counts: blocks that only the prefix cache holds can be evicted.
# </details>

# %% [markdown]
# <details><summary><b>3.</b> How do you choose the block size?</summary>
#
# - Expected waste is half a block a request; table length and bookkeeping go with 1/size; a kernel wants
#   reads of whole cache lines; sharing needs full blocks.
# - Strong: the waste counts relative to the length of requests; at 10,000 tokens even 256 is cheap.
# </details>

# %% [markdown]
# <details><summary><b>4.</b> What breaks if a block is freed twice?</summary>
#
# - Nothing visibly. It is in the free list twice, goes to two requests, and each overwrites the
#   other: wrong text, a privacy leak, depending on load. Found by reference counts checked at every call.
# - Strong: says the same of a copy whose source is freed before the copy has run, and of a block
#   that is freed while a step that reads it is still on the GPU.
# </details>

# %% [markdown]
# <details><summary><b>5.</b> How is this like virtual memory of an operating system, and how not?</summary>
#
# - Like: pages, table, on demand, reference counts, copy-on-write, swapping.
# - Not: no hardware walks the table, the kernel does it in software; no page fault, room is made *before*
#   the step; contents can be recomputed, so eviction may just forget them.
# </details>

# %%
lab.progress()

# %% [markdown]
# ## What you built, and where it lives
#
# - Your parts: `my_engine/`. Minivllm's: [blocks.py](../minivllm/kv/blocks.py),
# [paged.py](../minivllm/attention/paged.py); who joins them: [manager.py](../minivllm/kv/manager.py).
#
# **vLLM** keeps free blocks in a doubly linked list, so that a cached one can be taken out of the
# middle. Its current engine runs n completions as n requests that meet in the prefix cache, without
# copy-on-write. **SGLang** gives out single slots by default (pages of 1) and finds shared prefixes
# in a radix tree (lab 06).
#
# **Read on:** Kwon et al., *Efficient Memory Management for LLM Serving with PagedAttention*
# (2023); Prabhu et al., *vAttention* (2024); Ye et al., *FlashInfer* (2025).
