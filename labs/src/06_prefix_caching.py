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
# # 06 · Prefix caching
#
# Everybody's prompt begins with the same system prompt, and your engine computes it again for each of
# them. You give blocks names made of their content, find them again, and decide who may throw away
# what. Your cache then runs in the engine.
#
# **Afterwards you can** explain **prefix caching** with hash chains and with a radix tree, predict what
# a hit saves before you measure it, and say what a neighbour learns from your time to first token.
#
# **Core:** 6.1 – 6.4, *Plug in*, *Measure*, about 90 minutes. **Extra:** 6.5, the neighbour, *Break
# it*, 60 minutes.

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
from hashlib import sha256
from types import SimpleNamespace
from unittest.mock import patch

from IPython.display import display

from minivllm import LLM, Parts, SamplingParams, course
from minivllm.kv import prefix
from minivllm.kv.blocks import BlockPool
from minivllm.kv.prefix import Match
from minivllm.viz import style
from minivllm.viz.prefix_tree import PrefixTreeView

lab = course.open(6)

# %% [markdown]
# ## The pain
#
# A small service: a system prompt of **256 tokens**, and six users, one after the other, with a
# question of 24 to 48 tokens each. The engine is the one of the last labs, and remembers nothing of a
# request that has ended.

# %%
rng = random.Random(6)


def random_tokens(n):
    return [rng.randrange(1000, 40000) for _ in range(n)]


SYSTEM = random_tokens(256)
prompts = [SYSTEM + random_tokens(n) for n in (40, 24, 33, 28, 48, 24)]
short = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
settings = dict(device="cpu", max_model_len=2048, num_gpu_blocks_override=256)


def one_by_one(llm, prompts):
    return [llm.generate(prompt, short, use_tqdm=False)[0] for prompt in prompts]


def tokens_of(outputs):
    return [output.outputs[0].token_ids for output in outputs]


def num_computed(llm):
    return sum(sum(step.num_scheduled_tokens.values()) for step in llm.trace.steps)


forgetful = LLM(enable_prefix_caching=False, **settings)
without_cache = one_by_one(forgetful, prompts)
computed_without, again = num_computed(forgetful), 5 * len(SYSTEM)
print(f"tokens of all prompts: {sum(map(len, prompts)):,}, computed: {computed_without:,}")
print(f"of these computed before, behind the same tokens: {again:,} ({again / computed_without:.0%})")

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(width=7.5, height=2.8)
for letter, prompt in zip("FEDCBA", reversed(prompts), strict=True):
    first = letter == "A"
    axes.barh(letter, 256, color=style.PALETTE[0] if first else style.EMPTY, hatch="" if first else "//")
    axes.barh(letter, len(prompt) - 256, left=256, color=style.PALETTE[1])
axes.set(xlabel="tokens computed", title="grey: the same 256 tokens, computed again")
style.show(figure, "Six bars, one a request: 256 tokens of system prompt each, computed again for B to F.")
times = [1000 * output.metrics.time_to_first_token for output in without_cache]
print("time to first token:", ", ".join(f"{ms:.0f}" for ms in times), "ms")

# %% [markdown]
# ## The idea
#
# Keys and values of a token depend on that token and on all tokens **before** it, and on nothing else.
# So two prompts that begin with the same tokens have the same keys and values there, and one copy is
# enough. Blocks can be shared already (lab 02). What is missing is a way to *find* them: **content
# addressing**. A full block gets a name made from its tokens and from the name of the block before it,
# its **parent**. Equal names, equal content. When a request ends, its blocks stay until somebody needs
# the memory. (vLLM calls it *automatic prefix caching*.)

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(width=7.5, height=2.6)
rows = {
    "A": [("You are", 0), ("a helpful", 0), ("What is", 1), ("a cat?", 1)],
    "B": [("You are", 0), ("a helpful", 0), ("Why is", 2)],
}
for y, (letter, blocks) in enumerate(rows.items()):
    for x, (text, colour) in enumerate(blocks):
        axes.barh(-y, 1.5, left=2 * x, height=0.55, color=style.PALETTE[colour])
        ink = style.text_on(style.PALETTE[colour])
        axes.text(2 * x + 0.75, -y, f"{text}…", ha="center", va="center", color=ink)
        names = ["h1", "h2", "h3", "h4"] if letter == "A" else ["h1", "h2", "h5"]
        axes.text(2 * x + 0.75, -y - 0.42, names[x], ha="center", va="center")
        if x:
            tip, tail = (2 * x, -y), (2 * x - 0.5, -y)
            axes.annotate("", tip, tail, arrowprops={"arrowstyle": "->"})
axes.set(yticks=[0, -1], yticklabels=["A", "B"], xticks=[], ylim=(-1.7, 0.5))
axes.set_title("name = hash(parent's name, tokens)")
axes.grid(False)
style.show(
    figure, "Prompts A and B as chains of blocks: the first two have the same names, the others differ."
)

# %% [markdown]
# ## 6.1 Names · ●○○ · 15 min · core
#
# A name for each **full** block: a short text that stands for *all* tokens up to the end of that block.
# A block that is not full is still growing and has none.
#
# A **salt** is a text that keeps tenants apart: the same tokens with another salt have other names.
#
# **Predict:** two prompts of 100 tokens differ in token 40 only (counted from 0). Blocks of 16. How
# many names does each have, and how many of them are the same?

# %%
### BEGIN SOLUTION
names_each = 6
names_shared = 2
### END SOLUTION
lab.predict("6.1", [names_each, names_shared])

# %% [markdown]
# **Spec.** Here the name *is* the prefix. That is right, but as long as the prompt. Yours is short, and
# looks at each token once.


# %%
def spec_block_hashes(tokens, block_size, salt=None):
    names = []
    for number in range(1, len(tokens) // block_size + 1):
        names.append(f"{salt!r} {tokens[: number * block_size]}")
    return names


for name in spec_block_hashes([7, 8, 9, 10, 11], 2, "tenant a"):
    print(name)


# %% tags=["solve:6.1"]
def block_hashes(tokens, block_size, salt=None):
    """A list of names (str), one for each full block of tokens (list of int).

    Two names are equal exactly when the salts are (None is one, too) and all tokens up to the end of the
    block. A name has a fixed length, and nobody can find two prefixes with the same one: sha256
    takes bytes (text.encode()), hexdigest() gives a str.
    """
    ### BEGIN SOLUTION
    names, parent = [], f"salt {salt!r}"
    for end in range(block_size, len(tokens) + 1, block_size):
        text = f"{parent} {tokens[end - block_size : end]}"
        parent = sha256(text.encode()).hexdigest()
        names.append(parent)
    return names
    ### END SOLUTION


# %% tags=["check:6.1"]
lab.check(block_hashes)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Walk through the blocks and keep one variable, the name of the block before. It begins with the salt.
#
# <details><summary>Hint 2: the key line</summary>
#
# The text to hash is the parent's name and the block's tokens, with something between them: `f"{parent}
# {tokens[end - block_size : end]}"`. A list prints with commas, so 1, 23 is not 12, 3.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `for end in range(block_size, len(tokens) + 1, block_size):` make the text, `parent =
# sha256(text.encode()).hexdigest()`, append. Begin with `parent = f"salt {salt!r}"`.
# </details></details></details>

# %%
block_hashes = lab.part("6.1")
first = list(range(100))
second = [*first[:40], 999, *first[41:]]
names = [block_hashes(tokens, 16) for tokens in (first, second)]
lab.compare("6.1", [len(names[0]), sum(a == b for a, b in zip(*names, strict=True))])

# %% [markdown]
# **Why the parent?** Below are names without it, and two prompts that share their *second* block only.
# Then the engine itself: `block_name` is minivllm's hash of one block, and for a moment it forgets its
# parent.
#
# The test: a language model continues what it has seen before. Bob's prompt is his block, the shared
# one, and then the end of his block again; the model must go on with the shared one.


# %%
def names_without_parent(tokens, block_size):
    blocks = [tokens[i : i + block_size] for i in range(0, len(tokens) - block_size + 1, block_size)]
    return [sha256(str(block).encode()).hexdigest() for block in blocks]


own = random.Random(1)
alice, bob, shared = ([own.randrange(1000, 40000) for _ in range(16)] for _ in range(3))
for label, names_of in (("without parent", names_without_parent), ("yours", block_hashes)):
    same = set(names_of(alice + shared, 16)) & set(names_of(bob + shared, 16))
    print(f"{label:<15} names that Alice's and Bob's prompt share: {len(same)}")

bobs_prompt = bob + shared + bob[-8:]
name_of_block = prefix.block_name
with patch.object(prefix, "block_name", lambda parent, tokens: name_of_block(b"", tokens)):
    llm = LLM(**settings)
    one_by_one(llm, [alice + shared + [5], bob + [5]])
    (false_hit,) = one_by_one(llm, [bobs_prompt])
(computed,) = one_by_one(forgetful, [bobs_prompt])
for label, output in (("computed", computed), ("false hit", false_hit)):
    right = sum(a == b for a, b in zip(output.outputs[0].token_ids, shared, strict=False))
    print(f"{label:<10} {output.num_cached_tokens} tokens from the cache, {right} of 4 answer tokens right")

# %% [markdown]
# Of the two blocks one is Bob's own. The shared one was computed behind *Alice's* tokens, and that is
# what its keys remember. No error, no crash, and in ordinary text you would hardly see it: this is why
# names must be right by construction.
#
# **Names in another process.** Caches are shared between servers, and survive restarts. Python's own
# `hash()` is no name: of a text it is another number in every process.

# %%
program = "print(hash('tenant a'))"
seen = set()
for seed in ("1", "2", "3"):
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    child = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    seen.add(child.stdout)
print("three processes, different values of hash('tenant a'):", len(seen))
print("hash(5) == hash(5 + 2**61 - 1), in each of them:", "yes" if hash(5) == hash(5 + 2**61 - 1) else "no")

# %% [markdown]
# **Question.** Two different prefixes could have the same SHA-256. Should the cache compare the tokens,
# too?
#
# <details><summary>An answer</summary>
#
# - 256 bits: even with 10¹² blocks the chance of a pair is below 10⁻⁵³. Nobody knows one. minivllm,
#   like vLLM, does not compare.
# - With 64 bits and a hash that is not cryptographic it is different: collisions can be *made*, and a
#   hit on one answers you from another user's prompt. vLLM used `hash()` at first; a security advisory
#   of 2025 (GHSA-rm76-4mrf-v9r8) ended that, and SHA-256 is its default since 0.10.2.
# - A tree compares tokens by its nature (6.5).
# </details>

# %% [markdown]
# ## 6.2 The index · ●●○ · 20 min · core
#
# Two dictionaries: from name to block, and back. `match` finds the longest cached prefix, `insert` adds
# blocks that have been computed, `remove` forgets one.
#
# - If two requests compute the same content at the same time, the first block **stays**, and `insert`
#   tells the second one to use it.
# - A request needs the logits of its last token, so that token is always computed: **a match is never
#   the whole prompt**.
#
# **Predict:** a prompt of 48 tokens, blocks of 16, has just been served. The same prompt comes again:
# how many of its tokens does `match` find? And for the same 48 tokens followed by one more?

# %%
### BEGIN SOLUTION
same_prompt = 32
one_more = 48
### END SOLUTION
lab.predict("6.2", [same_prompt, one_more])

# %% [markdown]
# **Spec.** A list of everything that was ever inserted, searched from the beginning. It trusts its
# caller.


# %%
class spec_BlockIndex:
    def __init__(self, block_size):
        self.block_size = block_size
        self.entries = []  # (salt, all tokens up to the block's end, block)

    def match(self, tokens, salt=None):
        blocks = []
        while (len(blocks) + 1) * self.block_size < len(tokens):
            prefix = tokens[: (len(blocks) + 1) * self.block_size]
            found = [block for s, p, block in self.entries if (s, p) == (salt, prefix)]
            if not found:
                break
            blocks.append(found[0])
        return Match(blocks, len(blocks) * self.block_size)

    def insert(self, tokens, blocks, salt=None):
        kept = []
        for number, block in enumerate(blocks, 1):
            prefix = tokens[: number * self.block_size]
            found = [old for s, p, old in self.entries if (s, p) == (salt, prefix)]
            if not found:
                self.entries.append((salt, prefix, block))
            kept.append(found[0] if found else block)
        return kept

    def remove(self, block):
        self.entries = [entry for entry in self.entries if entry[2] != block]


# %% tags=["solve:6.2"]
class BlockIndex:
    """Which block holds which tokens."""

    def __init__(self, block_size):
        self.block_size = block_size
        self.block_of = {}  # name → block
        self.name_of = {}  # block → name

    def match(self, tokens, salt=None):
        """Match(blocks, num_tokens): the blocks of the longest cached prefix of tokens, whole blocks only,
        and how many tokens they hold: at most len(tokens) − 1."""
        ### BEGIN SOLUTION
        blocks = []
        for name in block_hashes(tokens[: len(tokens) - 1], self.block_size, salt):
            if name not in self.block_of:
                break
            blocks.append(self.block_of[name])
        return Match(blocks, len(blocks) * self.block_size)
        ### END SOLUTION

    def insert(self, tokens, blocks, salt=None):
        """blocks[i] holds the i-th block_size tokens. Returns for each block the one that stands for this
        content from now on: itself, or the one that was there before. ValueError, and nothing changed, if
        there are more blocks than tokens fill."""
        ### BEGIN SOLUTION
        names = block_hashes(tokens, self.block_size, salt)
        if len(blocks) > len(names):
            raise ValueError(f"{len(blocks)} blocks, but {len(tokens)} tokens fill {len(names)}")
        kept = []
        for block, name in zip(blocks, names, strict=False):
            if name not in self.block_of:
                self.block_of[name] = block
                self.name_of[block] = name
            kept.append(self.block_of[name])
        return kept
        ### END SOLUTION

    def remove(self, block):
        """Forget this block. Nothing happens if it is not here."""
        ### BEGIN SOLUTION
        if block in self.name_of:
            del self.block_of[self.name_of.pop(block)]
        ### END SOLUTION


# %% tags=["check:6.2"]
lab.check(BlockIndex)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# All three are about names. `match` and `insert` get them from `block_hashes`, `remove` looks the name
# up by block.
#
# <details><summary>Hint 2: the key line</summary>
#
# Never the whole prompt: take the names of `tokens[: len(tokens) - 1]`. A block that is full only with
# the last token then has none.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `match`: append `self.block_of[name]` until a name is missing. `insert`: refuse `len(blocks) >
# len(names)`; then, for each pair, store both ways if the name is new, and append
# `self.block_of[name]`.
# </details></details></details>

# %%
BlockIndex = lab.part("6.2")
index, prompt = BlockIndex(16), list(range(48))
print("kept:", index.insert(prompt, [4, 9, 2]))
print("somebody else computed the same:", index.insert(prompt, [11, 12, 13]))
print("the second block is thrown away, then:", end=" ")
index.remove(9)
print(index.match([*prompt, 7]).blocks)
index.insert(prompt, [4, 20, 2])
lab.compare("6.2", [index.match(prompt).num_tokens, index.match([*prompt, 7]).num_tokens])

# %% [markdown]
# **Question.** Why only full blocks? And block 2 was found again, though its neighbour had gone and
# come back as another block. Why is that right?
#
# <details><summary>An answer</summary>
#
# - A block that is not full is written by the request that owns it. Shared, it would need a copy first
#   (lab 02), and its name would change with every token.
# - A name says what a block *contains*. Block 2 still holds the keys and values of tokens 32 to 47
#   behind tokens 0 to 31. Which block holds those does not matter.
# </details>

# %% [markdown]
# ## 6.3 Who uses it? · ●●○ · 20 min · core
#
# A cached block is **in use** by any number of requests, or **unused**: nobody has it in a table, but
# its content may be wanted again. Unused blocks wait in a **queue, least recently used first** (LRU),
# and count as free memory.
#
# Your cache wraps the index. `insert` makes its caller a user; `acquire` and `release` add and take
# one. `forget` is written already; it shows the form: look at all blocks of a call, then change them.
#
# **Predict:** A has 3 full blocks, B has 4; the first 2 are shared. A ends, then B. How many blocks are
# unused after A's end, and after B's?

# %%
### BEGIN SOLUTION
after_a = 1
after_b = 5
### END SOLUTION
lab.predict("6.3", [after_a, after_b])

# %% [markdown]
# **Spec.** All users by their names. Yours counts, and needs no names: it is told who comes and who
# goes.


# %%
class spec_Users:
    def __init__(self):
        self.tables = {}  # name of a request → its blocks
        self.history = []  # blocks, in the order in which somebody let go of them

    def unused(self):
        used = {block for blocks in self.tables.values() for block in blocks}
        last = list(dict.fromkeys(reversed(self.history)))  # each block once, the most recent first
        return [block for block in reversed(last) if block not in used]

    def end(self, name):
        self.history += self.tables.pop(name)


example = spec_Users()
example.tables = {"A": [4, 9, 2], "B": [4, 9, 7, 8]}
example.end("B")
print("B has ended, unused:", example.unused())


# %% tags=["solve:6.3"]
class CountedCache:
    """A BlockIndex that knows how many requests use each block."""

    def __init__(self, block_size):
        self.block_size = block_size
        self.index = BlockIndex(block_size)  # yours, of 6.2: only its three methods are used
        self.counts = {}  # cached block → number of users
        self.queue = {}  # unused block → None; a dict keeps the order in which keys were added

    unused = property(lambda self: list(self.queue))  # least recently used first
    num_evictable = property(lambda self: len(self.queue))

    def users(self, block):
        return self.counts.get(block, 0)

    def match(self, tokens, salt=None):
        return self.index.match(tokens, salt)

    def clear(self):
        """No later match finds what is cached now. Users keep what they use."""
        self.index = BlockIndex(self.block_size)

    def forget(self, blocks):
        """Take these out of everything. ValueError, and nothing changed, if one is not unused."""
        if not all(block in self.queue for block in blocks):
            raise ValueError(f"{blocks} are not all unused")
        for block in blocks:
            self.index.remove(block)
            del self.counts[block], self.queue[block]

    def insert(self, tokens, blocks, salt=None):
        """As in 6.2. The caller uses what is returned: a block of its own that is new to the cache, or
        another one that was there before. What it used already (it is in counts) stays as it is."""
        ### BEGIN SOLUTION
        kept = self.index.insert(tokens, blocks, salt)
        for i, block in enumerate(blocks):
            if block in self.counts:
                kept[i] = block
            elif kept[i] == block:
                self.counts[block] = 1
            else:
                self.acquire([kept[i]])
        return kept
        ### END SOLUTION

    def acquire(self, blocks):
        """One more user for each. ValueError, and nothing changed, if one of them is not cached."""
        ### BEGIN SOLUTION
        if not all(block in self.counts for block in blocks):
            raise ValueError(f"{blocks} are not all cached")
        for block in blocks:
            self.counts[block] += 1
            self.queue.pop(block, None)
        ### END SOLUTION

    def release(self, blocks):
        """One user less for each; without users it joins the end of the queue, in the order of the list.
        Blocks that are not cached are passed over. ValueError, and nothing changed, if one has no user."""
        ### BEGIN SOLUTION
        if any(self.counts.get(block) == 0 for block in blocks):
            raise ValueError(f"{blocks} are not all in use")
        for block in blocks:
            if block in self.counts:
                self.counts[block] -= 1
                if self.counts[block] == 0:
                    self.queue[block] = None
        ### END SOLUTION


# %% tags=["check:6.3"]
lab.check(CountedCache)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# A block is in `queue` exactly when its count is 0. `acquire` takes it out, wherever it stands;
# `release` puts it at the end. Look at all blocks of a call before you change the first.
#
# <details><summary>Hint 2: the key line</summary>
#
# `insert` has three cases for each block: in `counts` before (the caller's already: keep it, count
# nothing), new and kept (count 1), not kept (`self.acquire([kept[i]])`).
#
# <details><summary>Hint 3: nearly code</summary>
#
# `acquire`: `self.counts[block] += 1; self.queue.pop(block, None)`. `release`: refuse if any count is
# 0; for those in `counts` minus 1, and at 0 `self.queue[block] = None`.
# </details></details></details>

# %%
CountedCache = lab.part("6.3")
cache = CountedCache(16)
a, b = list(range(48)), [*range(32), *range(100, 132)]
cache.insert(a, [4, 9, 2])
cache.acquire(cache.match(b).blocks)
cache.insert(b, [4, 9, 7, 8])
print("users of 4, 9, 2, 7, 8:", [cache.users(block) for block in (4, 9, 2, 7, 8)])
unused = []
for table in ([4, 9, 2], [4, 9, 7, 8]):
    cache.release(table)
    unused.append(cache.num_evictable)
print("unused:", cache.unused)
lab.compare("6.3", unused)

# %% [markdown]
# Look at the queue: 4 and 9, the beginning of both prompts, stand before 7 and 8. Who is evicted first?

# %% [markdown]
# ## 6.4 Who goes first? · ●●● · 25 min · core
#
# Two rules:
#
# 1. **Tail before head.** Without its head a tail is never found, so it is worth nothing. A request's
#    blocks must join the queue **last block first**.
# 2. **Lookup before allocation.** A new request looks up its hits and acquires them *first*, then
#    evicts for the rest. Unused blocks are what eviction takes, and your hits may be the oldest of all.
#

# %% [markdown]
# `begin` does for one request what the engine's KV manager does: cached blocks first, then new ones.
# The cache holds one reference in the pool for each block, so evicted blocks go to `pool.free`.
#
# **Predict:** a pool of 6 blocks; 4 are cached and unused. A request needs 5 blocks, and 2 of the
# cached ones, the oldest, are its hit. How many blocks are evicted?

# %%
### BEGIN SOLUTION
num_evicted = 1
### END SOLUTION
lab.predict("6.4", num_evicted)

# %% [markdown]
# **Spec** of `begin`. It evicts one block at a time, and when nobody is left it fails half done. Yours
# counts first.


# %%
def spec_begin(cache, pool, tokens, salt=None):
    found = cache.match(tokens, salt).blocks
    cache.acquire(found)
    pool.share(found)  # this request's reference
    needed = (len(tokens) + cache.block_size - 1) // cache.block_size - len(found)
    while pool.num_free < needed:
        pool.free(cache.evict(1))  # ValueError when nobody is left
    return found + pool.allocate(needed), len(found) * cache.block_size


# %% tags=["solve:6.4"]
class PrefixCache:
    """The prefix cache of the engine."""

    def __init__(self, block_size):
        self.block_size = block_size
        self.cache = CountedCache(block_size)  # yours, of 6.3: only its methods are used
        self.match, self.insert = self.cache.match, self.cache.insert
        self.acquire, self.users = self.cache.acquire, self.cache.users

    num_evictable = property(lambda self: self.cache.num_evictable)

    def reset(self):
        """Forget everything; returns the blocks that nobody used. Who still runs inserts its own again."""
        blocks = self.evict(self.num_evictable)
        self.cache.clear()
        return blocks

    def release(self, blocks):
        """One user less for each block of a table, given from head to tail; the tail is evicted first."""
        ### BEGIN SOLUTION
        self.cache.release(blocks[::-1])
        ### END SOLUTION

    def evict(self, n):
        """Forget the n least recently used blocks that nobody uses, and return them. ValueError, and
        nothing changed, if there are fewer."""
        ### BEGIN SOLUTION
        if n > self.num_evictable:
            raise ValueError(f"{n} blocks are to be evicted, {self.num_evictable} are unused")
        blocks = self.cache.unused[:n]
        self.cache.forget(blocks)
        return blocks
        ### END SOLUTION

    def begin(self, pool, tokens, salt=None):
        """(blocks for all tokens, number of tokens found): the cached blocks, acquired here and shared in
        the pool, then new ones. Evicts what the pool is short of, and no more. None, and nothing changed, if
        free and unused blocks do not suffice. pool: num_free, allocate(n), share(blocks), free(blocks)."""
        ### BEGIN SOLUTION
        found = self.match(tokens, salt).blocks
        self.acquire(found)
        pool.share(found)
        needed = -(-len(tokens) // self.block_size) - len(found)
        if needed > pool.num_free + self.num_evictable:
            self.release(found)
            pool.free(found)
            return None
        pool.free(self.evict(max(0, needed - pool.num_free)))
        return found + pool.allocate(needed), len(found) * self.block_size
        ### END SOLUTION


# %% tags=["check:6.4"]
lab.check(PrefixCache)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# `release` and `evict` are one and four lines on the cache of 6.3. `begin`: match, acquire **and**
# share, count what is needed and what there is, then either undo both or evict and allocate.
#
# <details><summary>Hint 2: the key line</summary>
#
# After `acquire`, `self.num_evictable` no longer counts your own hits. Only then compare: `needed >
# pool.num_free + self.num_evictable`.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `self.cache.release(blocks[::-1])`. `evict`: `blocks = self.cache.unused[:n]`,
# `self.cache.forget(blocks)`. `begin`: undo with `self.release(found); pool.free(found)`; else
# `pool.free(self.evict(max(0, needed - pool.num_free)))`.
# </details></details></details>

# %% [markdown]
# The prediction, played: two prompts were served by a pool of 6, and the older one comes back with
# three more blocks of text. Beside it the same with the order turned round: first evict, then look up.

# %%
PrefixCache = lab.part("6.4")


def served(cache, pool, tokens):
    """A request begins, is computed and ends; how many of its tokens were found."""
    blocks, num_cached = cache.begin(pool, tokens)
    full = blocks[: len(tokens) // cache.block_size]
    kept = cache.insert(tokens, full)
    pool.share([block for block in full[num_cached // cache.block_size :] if block in kept])
    cache.release(blocks)
    pool.free(blocks)
    return num_cached


def played(evict_first):
    """(tokens found, blocks of the newer prompt that are gone)"""
    cache, pool = PrefixCache(16), BlockPool(6)
    old, new = random_tokens(32), random_tokens(32)
    for tokens in (old, new):
        served(cache, pool, tokens)
    if evict_first:  # the request needs 5 blocks, 2 are free
        pool.free(cache.evict(3))
    _, found = cache.begin(pool, old + random_tokens(44))
    return found, 2 - len(cache.match([*new, 1]).blocks)


found, gone = played(evict_first=False)
print("lookup first:", found, "tokens found")
print("evict first: ", played(evict_first=True)[0], "tokens found")
lab.compare("6.4", gone)

# %% [markdown]
# **Question.** Can a head ever stand before its tail in your queue?
#
# <details><summary>An answer</summary>
#
# No. Whoever uses a tail uses its head, too, and lets go of both in one `release`. So the head's last
# use is never earlier than the tail's, and within one call the tail goes first.
# </details>
#
# ## Plug in
#
# The engine calls your cache from [manager.py](../minivllm/kv/manager.py): `match` and `acquire` when a
# request gets its table, `evict` when the pool is short, `insert` after the step that computed a block,
# `release` at the end. Your `begin` is `_start_table` and `reserve` there. The six requests of the
# beginning:

# %%
llm = LLM(parts=Parts(prefix_cache=PrefixCache), **settings)
outputs = one_by_one(llm, prompts)
print("same tokens as without a cache:", tokens_of(outputs) == tokens_of(without_cache))
print("tokens found in the cache:", [output.num_cached_tokens for output in outputs])
print(f"tokens computed: {num_computed(llm):,} instead of {computed_without:,}")
stats = llm.stats()
print(f"hits {stats['prefix_cache_hits']:,} of {stats['prefix_cache_queries']:,} prompt tokens")
print(f"free when idle: {stats['num_free_blocks']} of {stats['num_blocks']} blocks")

# %% [markdown]
# **All at once.** The six prompts in one call, on an empty cache. Before you run it: how many tokens
# are found?

# %%
for budget in (2048, 320):
    llm = LLM(parts=Parts(prefix_cache=PrefixCache), max_num_batched_tokens=budget, **settings)
    outputs = llm.generate(prompts, short, use_tqdm=False)
    same = tokens_of(outputs) == tokens_of(without_cache)
    found = [output.num_cached_tokens for output in outputs]
    print(f"budget {budget:>5}: found {found}, computed {num_computed(llm):,}; same tokens: {same}")

# %% [markdown]
# A block can be found once it has been *computed*. With a budget of 2,048 all six start in one step,
# and nothing is there yet. `insert` then merges the six copies of the system prompt into one: memory is
# saved, time is not. With a budget of 320 the first prompt nearly fills step 0; the second starts on
# what is left of it, too early; the others find everything.
#
# Now the whole engine of your parts. (Parts of labs that you have not done are minivllm's.)

# %% tags=["nbval-ignore-output"]
llm = lab.engine(**settings)
print("same tokens as without a cache:", tokens_of(one_by_one(llm, prompts)) == tokens_of(without_cache))

# %% [markdown]
# ## Measure: what does a hit save?
#
# 256 shared tokens, and 768, 256 or 85 own ones: **1:3, 1:1, 3:1**. The first request is cold, the
# second, with the same shared tokens and other own ones, is warm.
#
# **Predict**, first the simple way: if the time to first token (TTFT) goes with the number of tokens
# computed, it falls by shared / (shared + own). For the three cases, in percent?

# %%
### BEGIN SOLUTION
simple = [25, 50, 75]
### END SOLUTION
lab.predict("C6", simple)

# %% [markdown]
# That counts linear layers only: they cost the same for every token. Attention does not: own tokens
# come *late*, and see all the shared ones. Count both with `flops_and_bytes` of lab 00. A warm request
# computes `own` new tokens in a context of `shared + own`.

# %%
flops_and_bytes = lab.part("0.1")
SHARED = 256
cases = {"1:3": 768, "1:1": 256, "3:1": 85}


def saved(config, shared, own):
    """Share of the FLOPs that a warm request is spared."""
    cold, _ = flops_and_bytes(config, shared + own, shared + own, 4)
    warm, _ = flops_and_bytes(config, own, shared + own, 4)
    return 1 - warm / cold


smollm2 = forgetful.engine.model_config
print(f"{'shared:own':<11} {'tokens':>7} {'FLOPs, with attention':>22}")
for label, own in cases.items():
    print(f"{label:<11} {SHARED / (SHARED + own):>7.1%} {saved(smollm2, SHARED, own):>22.1%}")

# %% [markdown]
# Now measure: three pairs of requests a case, each pair with new tokens, the median of each. The counts
# are compared, the times are yours.

# %% tags=["nbval-ignore-output"]
one = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
llm = LLM(parts=Parts(prefix_cache=PrefixCache), **settings)


def cold_and_warm(own):
    """[(tokens found, TTFT in ms)] of two requests with the same 256 first tokens."""
    shared, pair = random_tokens(SHARED), []
    for _ in range(2):
        (output,) = llm.generate(shared + random_tokens(own), one, use_tqdm=False)
        pair.append((output.num_cached_tokens, 1000 * output.metrics.time_to_first_token))
    return pair


def median(values):
    return sorted(values)[len(values) // 2]


cold_and_warm(16)  # the first requests of an engine are slower
found, ttft = {}, {}
for label, own in cases.items():
    pairs = [cold_and_warm(own) for _ in range(3)]
    found[label] = [[tokens for tokens, _ in pair] for pair in pairs]
    ttft[label] = [median([pair[i][1] for pair in pairs]) for i in (0, 1)]
    cold, warm = ttft[label]
    print(f"{label}: cold {cold:>5.0f} ms, warm {warm:>5.0f} ms, {1 - warm / cold:.0%} less")

# %%
print({label: pairs[0] for label, pairs in found.items()})
print("the same in all three pairs:", all(pairs == [[0, SHARED]] * 3 for pairs in found.values()))
lab.compare("C6", [round(100 * saved(smollm2, SHARED, own), 1) for own in cases.values()])

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(width=7.5)
series = {
    "tokens": [SHARED / (SHARED + own) for own in cases.values()],
    "FLOPs": [saved(smollm2, SHARED, own) for own in cases.values()],
    "measured": [1 - warm / cold for cold, warm in ttft.values()],
}
for number, (label, values) in enumerate(series.items()):
    places = [i + 0.27 * (number - 1) for i in range(3)]
    axes.bar(places, [100 * v for v in values], width=0.25, color=style.PALETTE[number], label=label)
    for x, value in zip(places, values, strict=True):
        axes.text(x, 100 * value + 1, f"{value:.0%}", ha="center", fontsize=9)
axes.set(xticks=range(3), xticklabels=cases, xlabel="shared : own", ylabel="TTFT saved, %", ylim=(0, 100))
axes.legend(title="by")
style.show(figure, "Percent of TTFT saved for 1:3, 1:1 and 3:1, by tokens, by FLOPs and as measured.")

sizes = {}  # (tokens computed, context): ms
for label, own in cases.items():
    sizes[SHARED + own, SHARED + own], sizes[own, SHARED + own] = ttft[label]
for (n, context), ms in sorted(sizes.items()):
    flops, _ = flops_and_bytes(smollm2, n, context, 4)
    print(f"{n:>5} tokens computed: {ms:>5.0f} ms, {flops / ms / 1e6:>4.0f} GFLOP/s")

# %% [markdown]
# **Explain the difference, before you unfold.** Where is the measured saving below the counted one?
# Look at the GFLOP/s.
#
# <details><summary>An answer</summary>
#
# - A **fixed cost** of every step: weights are read once, bookkeeping is done once. A hit saves none of
#   it, and the fewer tokens are left, the more it weighs: worst at 3:1.
# - **Matrix products are less efficient with few rows**: 85 rows run at fewer FLOP/s than 341.
# - **Attention costs more than its FLOPs say.** Behind a cached beginning it goes through a mask, and
#   computes the forbidden pairs as well: compare 768 tokens with 1,024 above. A kernel such as 3.6
#   leaves them out.
# </details>

# %% [markdown]
# **The popular number.** "A system prompt of 2,048 tokens: about 50 % off TTFT." By arithmetic, for
# SmolLM2 and for the 80-layer model of lab 00:

# %%
large = SimpleNamespace(
    num_layers=80, hidden_size=8192, intermediate_size=28672, vocab_size=128256,
    num_heads=64, num_kv_heads=8, head_dim=128,
)  # fmt: skip
print(f"{'shared + own':<16} {'tokens':>7} {'SmolLM2':>8} {'80 layers':>10}")
for shared, own in ((256, 256), (2048, 2048), (2048, 200), (2048, 8192)):
    row = [saved(config, shared, own) for config in (smollm2, large)]
    print(f"{f'{shared:,} + {own:,}':<16} {shared / (shared + own):>7.1%} {row[0]:>8.1%} {row[1]:>10.1%}")

# %% [markdown]
# So 50 % needs two things: an **own part of about 2,048 tokens**, and a model where **linear layers
# dominate**. On SmolLM2 the same prompts save 40 %: it is narrow (576), and attention counts early.
# With 200 own tokens it is nine tenths; with 8,192 a tenth or two. A percentage without the own part
# says nothing.
#
# The same claim as a command: `python -m minivllm bench claims C6`.

# %% [markdown]
# ## See: chains, hits, and two tenants
#
# Two tenants use one engine, with the same system prompt of 48 tokens. Each request names its **salt**;
# two requests a tenant. Two questions: which blocks are there twice? Who hits whose?

# %%
llm = LLM(parts=Parts(prefix_cache=PrefixCache), **{**settings, "num_gpu_blocks_override": 32})
system = random_tokens(48)
for tenant in ("red", "blue", "red", "blue"):
    prompt = {"prompt_token_ids": system + random_tokens(36), "cache_salt": tenant}
    (output,) = llm.generate(prompt, short, use_tqdm=False)
    print(f"tenant {tenant:<5} found {output.num_cached_tokens} tokens")
last = llm.trace.num_steps - 1
print("cached blocks:", len(llm.trace.steps[last].cached_blocks))

# %% tags=["nbval-ignore-output"]
view = PrefixTreeView(llm.trace)
view.show(last)
print(view.table(last))

# %% tags=["nbval-ignore-output"]
if importlib.util.find_spec("ipywidgets"):
    display(view.widget())

# %% [markdown]
# Two trees: three blocks of system prompt each, then a branch for every request. The number behind the
# dot is how often a request began with this block. Without salts there would be one tree, and three
# blocks fewer.
#
# ## A neighbour with a stopwatch · extra
#
# Why would anybody pay for three blocks? Alice sends a document of 512 tokens. Mallory has an account
# on the same engine, and wants to know **whether** a certain document was sent before. All that Mallory
# sees is time.


# %% tags=["nbval-ignore-output"]
def probe(salted):
    """(tokens found, TTFT in ms) of Mallory's two probes: Alice's document, and one that nobody sent."""
    llm = LLM(parts=Parts(prefix_cache=PrefixCache), **settings)
    document, other = random_tokens(512), random_tokens(512)
    answers = []
    for user, tokens in (("alice", document), ("mallory", document), ("mallory", other)):
        prompt = {"prompt_token_ids": tokens + [5], **({"cache_salt": user} if salted else {})}
        (output,) = llm.generate(prompt, one, use_tqdm=False)
        answers.append((output.num_cached_tokens, 1000 * output.metrics.time_to_first_token))
    return answers[1:]


probes = {label: probe(salted) for label, salted in (("one cache for all", False), ("a salt a user", True))}
for label, answers in probes.items():
    (_, alices), (_, nobodys) = answers
    print(f"{label:<18} Alice's document {alices:>4.0f} ms, one that nobody sent {nobodys:>4.0f} ms")

# %%
for label, answers in probes.items():
    print(f"{label:<18} tokens found: {[tokens for tokens, _ in answers]}")

# %% [markdown]
# One request, and Mallory knows. This is a **timing side channel**: the cache is shared, so its state
# leaks. Probes found it at several public APIs (Gu et al., 2025). A secret *inside* a known text can be
# guessed as well, block by block: 6.5 counts the guesses.
#
# - **Salts** (`cache_salt`) make a cache for each tenant. The price is every hit between tenants.
# - One could share what is public and salt the rest: the chain begins unsalted, and the salt enters
#   behind the system prompt. minivllm does not.
# - Noise in the time helps little: one repeats the probe.

# %% [markdown]
# ## 6.5 A radix tree · ●●● · 40 min · extra
#
# The same content as a **tree**: a node is a block, its key are its tokens, a path from the root is a
# prefix (RadixAttention, SGLang). Nothing is hashed; tokens are compared. A prompt that leaves a path
# *inside* a block can still use that block's first slots: `match` returns `partial = (block, k)`, and
# the engine copies those. Only **leaves** are evicted: tail before head by construction.
#
# **Predict:** a secret of 4 digits stands at the end of a block whose other 12 tokens everybody knows.
# How many guesses does Mallory need **at most** with whole blocks, and how many with partial hits?

# %%
### BEGIN SOLUTION
whole_blocks = 10_000
partial_hits = 40
### END SOLUTION
lab.predict("6.5", [whole_blocks, partial_hits])

# %% [markdown]
# **Spec** of `match`: every cached path, compared token by token. Yours walks down one path.


# %%
def spec_match(paths, tokens, block_size):
    """paths: list of (tokens of the whole prefix, its blocks)."""
    best, hit = 0, ([], None)
    for path, blocks in paths:
        agree = 0
        while agree < min(len(path), len(tokens) - 1) and path[agree] == tokens[agree]:
            agree += 1
        if agree > best:
            whole, k = divmod(agree, block_size)
            best, hit = agree, (blocks[:whole], (blocks[whole], k) if k else None)
    return hit


known = [([1, 2, 3, 4, 5, 6, 7, 8], [30, 31]), ([1, 2, 3, 4, 9, 9, 9, 9], [30, 32])]
for tokens in ([1, 2, 3, 4, 5, 6, 0, 0], [1, 2, 3, 4, 9, 9], [1, 2, 0]):
    print(tokens, "→ blocks {}, partial {}".format(*spec_match(known, tokens, 4)))


# %%
class RadixNode:
    """One block. key: its tokens as a tuple; children: {key: node}."""

    def __init__(self, key, block, parent):
        self.key, self.block, self.parent = key, block, parent
        self.children, self.users, self.last_used = {}, 0, 0


def common_prefix(key, tokens):
    """How many tokens agree from the beginning."""
    k = 0
    while k < min(len(key), len(tokens)) and key[k] == tokens[k]:
        k += 1
    return k


# %% tags=["solve:6.5"]
class RadixCache:
    """A prefix cache of the engine that is a tree."""

    def __init__(self, block_size):
        self.block_size = block_size
        self.roots = {}  # salt → RadixNode without a block
        self.nodes = {}  # cached block → its node
        self.clock = 0

    num_evictable = property(lambda self: sum(not node.users for node in self.nodes.values()))

    @property
    def unused_leaves(self):
        return [node for node in self.nodes.values() if not node.users and not node.children]

    def root(self, salt):
        return self.roots.setdefault(salt, RadixNode((), None, None))

    def users(self, block):
        return self.nodes[block].users

    def acquire(self, blocks):
        for block in blocks:
            self.nodes[block].users += 1

    def release(self, blocks):
        self.clock += 1
        for block in blocks:
            if block in self.nodes:
                self.nodes[block].users -= 1
                self.nodes[block].last_used = self.clock

    def reset(self):
        blocks = self.evict(self.num_evictable)
        self.roots = {}
        return blocks

    def match(self, tokens, salt=None):
        """Match(blocks, num_tokens, partial) within the first len(tokens) − 1 tokens. partial: (block, k) of
        the child that agrees longest with what follows the whole blocks, None if none does."""
        ### BEGIN SOLUTION
        node, blocks, size = self.root(salt), [], self.block_size
        tokens = tuple(tokens[: len(tokens) - 1])
        while (key := tokens[len(blocks) * size : (len(blocks) + 1) * size]) in node.children:
            node = node.children[key]
            blocks.append(node.block)
        agree = {child.block: common_prefix(child.key, key) for child in node.children.values()}
        best = max(agree, key=agree.get, default=None)
        partial = (best, agree[best]) if best is not None and agree[best] else None
        return Match(blocks, len(blocks) * size, partial)
        ### END SOLUTION

    def insert(self, tokens, blocks, salt=None):
        """As before: a new node has one user, a node that was there one more. A block that is in self.nodes
        before is the caller's already: count nothing, walk on from its node."""
        ### BEGIN SOLUTION
        node, kept, size = self.root(salt), [], self.block_size
        for i, block in enumerate(blocks):
            if block not in self.nodes:
                key = tuple(tokens[i * size : (i + 1) * size])
                if key not in node.children:
                    self.nodes[block] = node.children[key] = RadixNode(key, block, node)
                block = node.children[key].block
                self.acquire([block])
            node = self.nodes[block]
            kept.append(block)
        return kept
        ### END SOLUTION

    def evict(self, n):
        """Take out n nodes, always an unused leaf, the least recently used (last_used) first. Returns their
        blocks. ValueError, and nothing changed, if fewer than n nodes are without users."""
        ### BEGIN SOLUTION
        if n > self.num_evictable:
            raise ValueError(f"{n} blocks are to be evicted, {self.num_evictable} are unused")
        gone = []
        for _ in range(n):
            leaf = min(self.unused_leaves, key=lambda node: node.last_used)
            del leaf.parent.children[leaf.key], self.nodes[leaf.block]
            gone.append(leaf.block)
        return gone
        ### END SOLUTION


# %% tags=["check:6.5"]
lab.check(RadixCache)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# `match` goes from child to child by the next `block_size` tokens as a tuple, and stops where there is
# no such key. `insert` does the same and adds what is missing. `evict` looks for leaves.
#
# <details><summary>Hint 2: the key line</summary>
#
# Cut the last token off first. What is shorter than a block is no key, so the walk ends by itself; then
# compare it with every child's key by `common_prefix`.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `insert`: if `block in self.nodes`, go to its node; else make a node `if key not in node.children`,
# and `self.acquire` its block. `evict`: n times `min(self.unused_leaves, key=…last_used)`; `del` it
# from `parent.children` and `self.nodes`.
# </details></details></details>

# %% [markdown]
# In the engine, and beside the chain. The prompts share 40 tokens: two and a half blocks.

# %%
RadixCache = lab.part("6.5")
beginning = random_tokens(40)
branches = [beginning + random_tokens(12) for _ in range(3)]
plain = tokens_of(one_by_one(forgetful, branches))
for label, part in (("hash chain", PrefixCache), ("radix tree", RadixCache)):
    llm = LLM(parts=Parts(prefix_cache=part), **settings)
    outputs = one_by_one(llm, branches)
    found = [output.num_cached_tokens for output in outputs]
    copies = sum(step.num_copied for step in llm.trace.steps)
    same = tokens_of(outputs) == plain
    print(f"{label}: found {found}, blocks copied {copies}, same tokens: {same}")

# %% [markdown]
# Eight tokens more a request, for a copy of a block. And Mallory? The reply's `num_cached_tokens` (or
# the time) says how far a guess is right. Whole blocks say only yes or no; partial hits say how many
# *digits* are right.

# %%
template, secret = random_tokens(12), [4, 8, 2, 1]
DIGITS = [32 + digit for digit in range(10)]  # how SmolLM2's tokenizer writes 0 … 9


def tokens_found(cache, pin):
    match = cache.match(template + [DIGITS[d] for d in pin] + [5])
    return match.num_tokens + (match.partial[1] if match.partial else 0)


def guesses_whole(cache):
    for number in range(10_000):
        pin = [int(digit) for digit in f"{number:04}"]
        if tokens_found(cache, pin) == 16:
            return number + 1, pin


def guesses_by_digit(cache):
    pin, guesses = [], 0
    while len(pin) < 4:
        for digit in range(10):
            guesses += 1
            if tokens_found(cache, [*pin, digit, *[9] * (3 - len(pin))]) >= 12 + len(pin) + 1:
                pin.append(digit)
                break
    return guesses, pin


for label, part, attack in (
    ("hash chain", PrefixCache, guesses_whole),
    ("radix tree", RadixCache, guesses_by_digit),
):
    cache = part(16)
    cache.insert(template + [DIGITS[d] for d in secret], [0])
    guesses, pin = attack(cache)
    print(f"{label}: {guesses:,} guesses, the secret is {''.join(map(str, pin))}")
lab.compare("6.5", [10**4, 4 * 10])

# %% [markdown]
# Exponential in the unknown tokens of a block, or linear. The finer a cache matches, the more it tells.
# (Wu et al., 2025, take prompts out of a served engine this way.)

# %% [markdown]
# ## Break it
#
# **A. Almost a block.** Two prompts share 15, 16, 31 or 32 tokens, then differ. How many are found with
# blocks of 16?
#
# **B. A timestamp.** A kind developer puts the time of day into the system prompt: in front, or at its
# end.


# %%
def found_after(part, first, second):
    cache = part(16)
    cache.insert(first, list(range(len(first) // 16)))
    match = cache.match(second)
    return match.num_tokens + (match.partial[1] if match.partial else 0)


print("shared        15  16  31  32")
for label, part in (("hash chain", PrefixCache), ("radix tree", RadixCache)):
    row = []
    for shared in (15, 16, 31, 32):
        head = random_tokens(shared)
        row.append(found_after(part, head + random_tokens(48), head + random_tokens(48)))
    print(f"{label}  ", *(f"{n:>3}" for n in row))
for label, first, second in (
    ("time in front:", [101, *SYSTEM], [102, *SYSTEM]),
    ("time at the end:", [*SYSTEM, 101], [*SYSTEM, 102]),
):
    row = [found_after(part, first + [7] * 20, second + [7] * 20) for part in (PrefixCache, RadixCache)]
    print(f"{label:<17} hash chain {row[0]:>3}, radix tree {row[1]:>3} of {len(SYSTEM) + 21}")

# %% [markdown]
# One token in front costs everything, for both. **Put what changes last**: system prompt, then
# documents, then history, then the time. The same holds for user names, random ids, and tools listed in
# random order.
#
# **C. Head first.** 12 conversations of 320 tokens, 20 blocks each, come back in random order. The pool
# holds all of them, or fewer. The second cache lets go of the head first. Guess what that costs.


# %%
class HeadFirst(PrefixCache):
    def release(self, blocks):
        super().release(blocks[::-1])


def hit_rate(part, num_blocks, rounds=600):
    cache, pool, rng = part(16), BlockPool(num_blocks), random.Random(1)
    histories = [[1000 * number + i for i in range(320)] for number in range(12)]
    found = 0
    for visit in range(rounds):
        found += served(cache, pool, [*rng.choice(histories), 10**6 + visit])
    return found / (320 * rounds)


print("blocks in the pool   tail first   head first")
for num_blocks in (260, 220, 160, 100):
    tail, head = (hit_rate(part, num_blocks) for part in (PrefixCache, HeadFirst))
    print(f"{num_blocks:>18} {tail:>12.0%} {head:>12.0%}")

# %% [markdown]
# With enough memory the order does not matter. When memory is short, an evicted head makes all that
# hangs on it worthless *and keeps it in memory*: dead blocks, that nobody can find, until they come to
# the front of the queue.

# %% [markdown]
# ## Interview corner
#
# Say your answer aloud before you unfold.

# %% [markdown]
# <details><summary><b>1.</b> Explain prefix caching. Why is the parent in the hash? Why only full
# blocks?</summary>
#
# - Keys and values depend on a token and all before it; so a block is named by the whole prefix,
#   cheaply: hash(parent's name, tokens). Without the parent: same tokens, other context, wrong answers,
#   no crash.
# - Full blocks do not change any more; a shared half-full one would need copy-on-write and a name a
#   token.
# - Counts for sharing, an LRU queue of unused blocks, which count as free memory. At least one token is
#   computed.
# - Strong: names what breaks the hit rate (changing text in front, random routing between servers) and
#   what salts are for.
# </details>

# %% [markdown]
# <details><summary><b>2.</b> Hash chain or radix tree?</summary>
#
# - *Hash:* O(1) a block, no structure to keep, names can be sent to other servers, so a router can ask
#   "who has this?". Whole blocks only; needs a cryptographic hash.
# - *Tree:* compares tokens, so no collisions; sees partial blocks; knows leaves, so eviction and
#   cache-aware scheduling (serve the deepest match first) are natural. More pointers; finer hits leak
#   more.
# - Strong: same hit rate on block-aligned prompts; the difference is bounded by block_size − 1 tokens a
#   request.
# </details>

# %% [markdown]
# <details><summary><b>3.</b> What can one tenant learn about another, and what do you do?</summary>
#
# - A hit is faster, so TTFT says whether a prefix was sent before; a secret inside a known text is
#   guessed block by block, with partial hits token by token. `cached_tokens` in the reply says it
#   without a clock.
# - Salt by tenant, or by user; share only public prefixes. Costs hits and memory.
# - Strong: the probe caches itself, so a second try measures the attacker's own blocks; hash collisions
#   are the same leak by another door; a load balancer shared by tenants is a third.
# </details>

# %% [markdown]
# <details><summary><b>4.</b> A request is preempted and comes back. Is that a hit?</summary>
#
# - Its blocks were released, not destroyed. If they are still cached, `match` finds them and the
#   recompute is nearly free. That is why preemption by recompute is cheaper with a prefix cache.
# - In the statistics it is not a hit: nobody else's work was saved, and a thrashing engine would look
#   like a well-cached one. minivllm counts a request once; vLLM counts such hits apart.
# - Strong: a cache full of *useful* blocks is evicted by preempted requests' new ones; watch both
#   numbers.
# </details>

# %% [markdown]
# <details><summary><b>5.</b> What breaks if a new request evicts first and looks up afterwards?</summary>
#
# - At best its own hits are gone: it pays for what it had. At worst it looked up *before*, did not
#   acquire, evicts its own hit, gets that block as a new one, and has it twice in its table: it
#   overwrites its own prefix.
# - The same fault: counting an evictable hit as free *and* as hit. The admission succeeds, the
#   allocation fails.
# - Strong: the order is match, acquire, count, evict, allocate; and undo when the count does not
#   suffice.
# </details>

# %%
lab.progress()

# %% [markdown]
# ## What you built, and where it lives
#
# - Your parts: `my_engine/`. Minivllm's: [prefix.py](../minivllm/kv/prefix.py), the chain in one class;
#   [radix.py](../minivllm/kv/radix.py), with a queue of leaves;
#   [manager.py](../minivllm/kv/manager.py), who calls them;
#   [prefix_tree.py](../minivllm/viz/prefix_tree.py), the picture.
#
# **vLLM** keeps names in a map and unused blocks in the free queue itself: a block is evicted when it
# is given out. Adapters and images go into the hash like salts. **SGLang** has one tree whose nodes are
# of any length and split where prompts part; it can serve the waiting request with the longest hit
# first.
#
# **Read on:** Zheng et al., *SGLang* (2023); Gu et al., *Auditing Prompt Caching in Language Model
# APIs* (2025); Wu et al., *I Know What You Asked* (2025).
