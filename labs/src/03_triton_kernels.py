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
# # 03 · Triton kernels
#
# Lab 02 paid for paging with copies: torch cannot read through a block table, so it gathers first.
# Here you write the kernels that read keys and values where they lie, and see what a compiler makes
# of them for GPUs that you need not have.
#
# **Afterwards you can** write a masked kernel, derive the online softmax, explain why decode
# attention is bound by memory and what splitting the context is for, and say which address goes
# wrong first.
#
# **Core:** 3.1, 3.3, 3.4, *Plug in*, about 90 minutes. **Extra:** 3.2, 3.5, 3.6, 90 minutes.

# %%
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("minivllm") is None:  # a hosted notebook: install what lies beside labs/
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--editable", ".."], check=True)
    sys.path.insert(0, os.path.abspath(".."))  # this kernel started before it was there

# %% [markdown]
# With an NVIDIA GPU your kernels are compiled and run there. Without one they run in **Triton's
# interpreter**: the same source, one program after the other, on CPU tensors, slow and exact. It
# must be chosen before triton is imported.
#
# Where triton has no wheel (macOS, Windows) this lab still runs through: parts are functions in
# torch, checks say so, and nothing counts against you. Use WSL2 or a hosted notebook to do the
# exercises.

# %%
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# %%
import random
import time
from collections import Counter

from minivllm import LLM, SamplingParams, course
from minivllm.attention.paged import paged_attention
from minivllm.course.compile_report import compile_report, table
from minivllm.course.triton_here import HERE, tl, triton  # import triton; import triton.language as tl
from minivllm.executor.hardware import H100, Hardware
from minivllm.viz import style
from minivllm.viz.roofline import Point, Roofline

device = "cuda" if torch.cuda.is_available() else "cpu"
lab = course.open(3)

# %% tags=["nbval-ignore-output"]
if not HERE:
    print("triton is not installed here: kernels are defined and never launched.")
else:
    print(f"triton {triton.__version__}:", "compiled for your GPU" if device == "cuda" else "interpreted")

# %% [markdown]
# ## The pain
#
# Three requests decode in the engine, with paged attention in torch. Look at one step near the end.
# What must attention read, and what does it move?
#
# It **gathers**: for all three it copies as many blocks as the longest has, since a tensor has one
# length. Then it attends to the copy. So each slot is read, written, and read again.

# %%
rng = random.Random(3)
prompts = [[rng.randrange(1000, 40000) for _ in range(n)] for n in (60, 25, 6)]
answer = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)
small = dict(dtype="float32", max_model_len=256, num_gpu_blocks_override=16, enable_prefix_caching=False)
llm = LLM(device="cpu", attention_backend="paged", **small)
llm.generate(prompts, answer, use_tqdm=False)
cfg = llm.engine.model_config

steps = list(llm.trace.steps)[:-1]  # the last one frees everything
stored = Counter()
for step in steps:
    stored.update(step.num_scheduled_tokens)
tables = dict(zip("ABC", steps[-1].block_tables.values(), strict=True))
contexts = dict(zip("ABC", (stored[request] for request in steps[-1].block_tables), strict=True))
for name, blocks in tables.items():
    print(f"{name}: {contexts[name]:>3} tokens in blocks {blocks}")

needed = sum(contexts.values())
gathered = 3 * max(len(blocks) for blocks in tables.values()) * 16
print(f"slots that attention needs: {needed}; gathered: {gathered}")
print(f"slot reads and writes: {3 * gathered}, which is {3 * gathered / needed:.1f} times what is needed")

# %% [markdown]
# And the time? Sixteen requests of 1,024 tokens each, one layer: how much of attention is copying?


# %% tags=["nbval-ignore-output"]
def milliseconds(action, times=10):
    action()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return 1000 * min(taken)


q, lengths, ones = torch.randn(16, 9, 64), torch.full((16,), 1024), torch.ones(16, dtype=torch.long)
many_k, many_v = torch.randn(2, 1024, 16, 3, 64)
ids = torch.randperm(1024).view(16, 64)
copying = milliseconds(lambda: (many_k.index_select(0, ids.view(-1)), many_v.index_select(0, ids.view(-1))))
all_of_it = milliseconds(lambda: paged_attention(q, many_k, many_v, ids, lengths, ones))
print(f"gathering {copying:.1f} ms of {all_of_it:.1f} ms: {copying / all_of_it:.0%}")

# %% [markdown]
# ## The idea
#
# A **kernel** is a function that a GPU runs thousands of times at once. In **Triton** (Tillet et
# al., 2019) each run is a **program**; it asks for its number, and from that works out which *tile*
# of the data is its own. It loads the tile from any addresses that it likes. So it can look into
# the block table by itself, and nothing has to be laid side by side first.
#
# The picture is the step above. A program serves one request and one KV head. Each square is a
# block that it loads, with the number of tokens in it.


# %% tags=["nbval-ignore-output"]
def draw_loads(rows, num_blocks, alt):
    """rows: [(label, colour number, {block: text})]"""
    figure, axes = style.figure(width=7.5, height=0.7 + 0.28 * len(rows))
    for y, (_label, number, blocks) in enumerate(rows, 1):
        for block in range(num_blocks):
            style.cell(axes, block + 1, y, style.PALETTE[number] if block in blocks else style.EMPTY)
            colour = style.text_on(style.PALETTE[number])
            axes.text(block + 1, y, blocks.get(block, ""), ha="center", va="center", color=colour, size=8)
    style.matrix(axes, num_blocks, len(rows))
    axes.set(aspect="auto", xlabel="block id", xticklabels=range(num_blocks))
    axes.set_yticklabels([label for label, _, _ in rows])
    style.show(figure, alt)


rows = []
for number, name in enumerate(tables):
    filled = {block: min(16, contexts[name] - 16 * i) for i, block in enumerate(tables[name])}
    rows += [(f"{name}, KV head {head}", number, filled) for head in range(cfg.num_kv_heads)]
draw_loads(rows, 16, "Nine programs: the three of a request load the same blocks, each for its own KV head.")

# %% [markdown]
# ## 3.0 A worked kernel · 10 min
#
# It multiplies n numbers by a factor. Read it line by line; everything else in this lab is made of
# these.
#
# - `tl.program_id(0)` is the program's number.
# - `x` is an **address**. `x + at` are addresses, one for each entry of `at`.
# - `tl.arange(0, SIZE)`: SIZE must be a power of two that the compiler knows, hence `tl.constexpr`.
# - The last tile is not full. The **mask** says which entries exist: others are not loaded (`other`
#   stands in for them) and not stored.
# - The launch `kernel[grid](…)` says how many programs there are.


# %%
@triton.jit
def scale_kernel(x, out, n, factor, SIZE: tl.constexpr):
    program = tl.program_id(0)
    at = program * SIZE + tl.arange(0, SIZE)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0.0)
    tl.store(out + at, factor * value, mask=inside)


x = torch.arange(10.0, device=device)
out = torch.zeros(12, device=device)
if HERE:
    scale_kernel[(3,)](x, out, 10, 2.0, SIZE=4)
    print(out.int().tolist())

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(width=7.5, height=1.3)
for at in range(12):
    style.cell(axes, at + 1, 1, style.PALETTE[at // 4] if at < 10 else style.EMPTY)
    axes.text(
        at + 1,
        1,
        at // 4 if at < 10 else "–",
        ha="center",
        va="center",
        color="white" if at < 10 else "black",
    )
style.matrix(axes, 12, 1)
axes.set(xticklabels=range(12), yticks=[], xlabel="entry", title="which program loads it; – is masked")
style.show(
    figure, "Programs 0, 1 and 2 load four entries each; the last two entries of program 2 are masked."
)

# %% [markdown]
# **Why the interpreter exists.** It runs the programs one by one, with numpy. `print` works inside
# a kernel, and errors name the line. What it cannot show: speed, two programs that write to one
# place at the same time, and what does not compile. Each program takes milliseconds, so shapes here
# are small.
#
# What trips people up in their first hour:
#
# - A kernel sees its arguments and `tl`, not the notebook's variables. Constants come in as
#   `tl.constexpr`.
# - `tl.where(condition, a, b)` computes both sides. `if` needs a single number.
# - `x[:, None]` and `x[None, :]` make columns and rows, as in torch.

# %% [markdown]
# ## 3.1 Store keys and values · ●○○ · 20 min · core
#
# Each step computes keys and values of its new tokens, and puts them where the block table says.
# `slot_mapping[i]` is the slot of token i; your table of lab 02 made it.
#
# One program a token. It copies a row of `num_kv_heads · head_dim` numbers of k, and one of v. A
# row is contiguous, but k and v are **views** into one product that holds q, k and v: rows are
# `k.stride(0)` apart.

# %% [markdown]
# **Predict** for SmolLM2 (3 KV heads, head_dim 64, 2 bytes a number) and a step of 8 tokens: how
# many programs, and how many bytes of keys and values does one layer's launch read and write in
# all?

# %%
### BEGIN SOLUTION
programs_and_bytes = [8, 8 * 2 * 192 * 2 * 2]
### END SOLUTION
lab.predict("3.1", programs_and_bytes)

# %% [markdown]
# **Spec.** Token by token.


# %%
def spec_store_kv(k, v, k_cache, v_cache, slot_mapping):
    block_size = k_cache.shape[1]
    for token, slot in enumerate(slot_mapping.tolist()):
        k_cache[slot // block_size, slot % block_size] = k[token]
        v_cache[slot // block_size, slot % block_size] = v[token]


# %% [markdown]
# You write the kernel and its launch. `ROW_PAD` is the next power of two, since `tl.arange` wants
# one.


# %% tags=["solve:3.1"]
@triton.jit
def store_kv_kernel(
    k,  # row i begins at k + i * k_stride
    v,
    k_cache,  # slot s begins at k_cache + s * ROW
    v_cache,
    slot_mapping,
    k_stride,
    v_stride,
    ROW: tl.constexpr,  # numbers in a row
    ROW_PAD: tl.constexpr,
):
    """One program copies one token's keys and values into its slot."""
    ### BEGIN SOLUTION
    token = tl.program_id(0)
    slot = tl.load(slot_mapping + token).to(tl.int64)
    column = tl.arange(0, ROW_PAD)
    inside = column < ROW
    key = tl.load(k + token * k_stride + column, mask=inside)
    value = tl.load(v + token * v_stride + column, mask=inside)
    tl.store(k_cache + slot * ROW + column, key, mask=inside)
    tl.store(v_cache + slot * ROW + column, value, mask=inside)
    ### END SOLUTION


def store_kv(k, v, k_cache, v_cache, slot_mapping):
    """Write each token's keys and values into its slot. Launches the kernel; returns nothing.

    k, v: [num_tokens, num_kv_heads, head_dim]; k_cache, v_cache: [num_blocks, block_size, num_kv_heads,
    head_dim], contiguous; slot_mapping: [num_tokens]
    """
    ### BEGIN SOLUTION
    num_tokens, num_kv_heads, head_dim = k.shape
    row = num_kv_heads * head_dim
    sizes = dict(ROW=row, ROW_PAD=triton.next_power_of_2(row))
    store_kv_kernel[(num_tokens,)](k, v, k_cache, v_cache, slot_mapping, k.stride(0), v.stride(0), **sizes)
    ### END SOLUTION


# %% tags=["check:3.1"]
lab.check(store_kv)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Four addresses for each column: where k's and v's row is, and where it goes. Load two rows, store
# two rows.
#
# <details><summary>Hint 2: the key line</summary>
#
# `slot = tl.load(slot_mapping + tl.program_id(0)).to(tl.int64)`: one number. Columns are
# `tl.arange(0, ROW_PAD)`, and those below ROW exist.
#
# <details><summary>Hint 3: nearly code</summary>
#
# Load from `k + token * k_stride + column`, store to `k_cache + slot * ROW + column`, both with
# `mask=inside`; the same for v with its own stride. The launch has a grid of `(num_tokens,)` and
# passes `k.stride(0)` and `v.stride(0)`.
# </details></details></details>

# %%
store_kv = lab.part("3.1")
torch.manual_seed(0)
qkv = torch.randn(8, 9 + 3 + 3, 64, device=device)  # one product for q, k and v, as in the engine
k, v = qkv[:, 9:12], qkv[:, 12:]
slots = torch.randperm(4 * 16, device=device)[:8]
mine, right = (torch.zeros(2, 4, 16, 3, 64, device=device) for _ in range(2))
store_kv(k, v, mine[0], mine[1], slots)
spec_store_kv(k, v, right[0], right[1], slots)
print("same as the spec:", torch.equal(mine, right))
print(f"rows of k are {k.stride(0)} numbers apart, and {k[0].numel()} long")
lab.compare("3.1", [len(k), 2 * 2 * 2 * k.numel()])

# %% [markdown]
# **What does a compiler make of it?** Triton compiles for a GPU by name, no GPU needed. Here is
# your kernel, or the reference while yours does not pass, for three generations: T4 (sm_75), A100
# (sm_80), H100 (sm_90).
#
# **Registers** are a thread's own memory: 65,536 on a multiprocessor (**SM**), so the more a thread
# takes, the fewer threads are there to hide waiting. What does not fit **spills** to slow memory.
# **PTX** is the program in NVIDIA's portable assembly.


# %%
def report_of(part):
    """[] where nothing can be compiled."""
    return compile_report(part) if HERE else []


report = report_of(store_kv)
print("bytes spilled:", sum(row.spills for row in report))

# %% tags=["nbval-ignore-output"]
if report:
    print(table(report), end="\n\n")
    lines = report[-1].ptx.splitlines()
    print(*[line for line in lines if "global." in line], sep="\n")

# %% [markdown]
# Find your loads and stores. `@%p1` is your mask: the instruction is skipped where it does not
# hold. A program has 128 threads here, and `b32` are two numbers of 16 bits: each thread copies two
# neighbours.
#
# The 32 threads of a **warp** load together, and memory answers in pieces of 32 bytes. Neighbours
# that want neighbouring addresses share pieces: this is **coalescing**, and why a whole row is the
# unit that you copy.

# %% [markdown]
# ## 3.2 RMS norm with the residual · ●○○ · 20 min · extra
#
# Before each norm, the engine adds what the last layer made to the **residual stream**. Two
# operations in torch; each reads its rows from memory and writes rows back. In one kernel the sum
# never leaves the registers: this is **fusion**.
#
# `rms_norm(x, weight, eps)[0]` is `x / sqrt(mean(x²) + eps) · weight`, a row at a time (Zhang and
# Sennrich, 2019).
#
# **Predict:** rows that are read and written for each token, weights not counted, first as two
# operations, then fused. (The sum is needed later, so it is always written.)

# %%
### BEGIN SOLUTION
rows_moved = [5, 4]
### END SOLUTION
lab.predict("3.2", rows_moved)

# %% [markdown]
# **Spec.** In float64, row by row.


# %%
def spec_rms_norm(x, weight, eps, residual=None):
    added = x if residual is None else x + residual
    out = torch.empty_like(added)
    for i, row in enumerate(added.double()):
        out[i] = (row / (row.square().mean() + eps).sqrt() * weight.double()).to(x.dtype)
    return out, added


# %% tags=["solve:3.2"]
@triton.jit
def rms_norm_kernel(
    x,  # row i begins at x + i * x_stride
    residual,  # rows SIZE apart, and so are those of out and added
    weight,
    out,
    added,
    x_stride,
    eps,
    SIZE: tl.constexpr,  # numbers in a row
    SIZE_PAD: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,  # an `if` on it is decided when the kernel is compiled
):
    """One program norms one row, in float32. With a residual, it stores the sum in `added`, too."""
    ### BEGIN SOLUTION
    row = tl.program_id(0)
    column = tl.arange(0, SIZE_PAD)
    inside = column < SIZE
    value = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        value += tl.load(residual + row * SIZE + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(added + row * SIZE + column, value.to(added.dtype.element_ty), mask=inside)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / SIZE + eps)
    result = value * scale * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * SIZE + column, result.to(out.dtype.element_ty), mask=inside)
    ### END SOLUTION


def rms_norm(x, weight, eps, residual=None):
    """(norm of x + residual, x + residual). x, residual: [num_rows, size]; weight: [size]"""
    num_rows, size = x.shape
    out = torch.empty(num_rows, size, dtype=x.dtype, device=x.device)
    added = x if residual is None else torch.empty_like(out)
    sizes = dict(SIZE=size, SIZE_PAD=triton.next_power_of_2(size), HAS_RESIDUAL=residual is not None)
    rms_norm_kernel[(num_rows,)](x, residual, weight, out, added, x.stride(0), eps, **sizes)
    return out, added


# %% tags=["check:3.2"]
lab.check(rms_norm)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Load the row once, keep it in a variable, do everything with that. Padding columns must add
# nothing to the sum.
#
# <details><summary>Hint 2: the key line</summary>
#
# `tl.sum(value * value, axis=0) / SIZE`, where `value` was loaded with `other=0.0` and
# `.to(tl.float32)`.
#
# <details><summary>Hint 3: nearly code</summary>
#
# With HAS_RESIDUAL, add the residual's row and store the sum, as
# `value.to(added.dtype.element_ty)`. Then `scale = 1.0 / tl.sqrt(mean + eps)`, and store `value *
# scale * weight row` in out's type.
# </details></details></details>

# %%
rms_norm = lab.part("3.2")
x, residual = torch.randn(4, 576, device=device), torch.randn(4, 576, device=device)
weight = torch.rand(576, device=device) + 0.5
got, want = rms_norm(x, weight, 1e-5, residual), spec_rms_norm(x, weight, 1e-5, residual)
print("same as the spec:", all(torch.allclose(a, b, atol=1e-4) for a, b in zip(got, want, strict=True)))
apart = {"read by +": 2, "written by +": 1, "read by norm": 1, "written by norm": 1}
lab.compare("3.2", [sum(apart.values()), sum(apart.values()) - apart["read by norm"]])

# %% [markdown]
# ## 3.3 The online softmax · ●●○ · 20 min · core
#
# Attention of one query is a weighted mean of values: Σ exp(sᵢ) vᵢ / Σ exp(sᵢ). A kernel cannot
# hold all scores of a long context, so it goes tile by tile. But exp overflows; to prevent that,
# one subtracts the largest score, which is known only at the end.

# %% [markdown]
# The way out (Milakov and Gimelshein, 2018): keep three things for the keys seen *so far*:
#
# - **m**, the largest score;
# - **l**, the sum of exp(sᵢ − m);
# - **acc**, the sum of exp(sᵢ − m) · vᵢ.
#
# The answer is acc / l. When a larger m comes, what was summed up is too large by one known factor.

# %% [markdown]
# Here is the triple for any set of keys, by definition. Cut the keys in two, and you have two
# triples. Your function makes one of them, **without the scores**: they are gone by then.
#
# **Predict:** one part has m = 2, l = 3, the other m = 5, l = 1. What is l of both together?

# %%
### BEGIN SOLUTION
combined_l = 1.15
### END SOLUTION
lab.predict("3.3", combined_l)


# %%
def partial(scores, values):
    """(m, l, acc) of scores [num_queries, n] and values [n, head_dim]."""
    if scores.shape[1] == 0:  # no keys
        nothing = torch.zeros(len(scores))
        return nothing - float("inf"), nothing, torch.zeros(len(scores), values.shape[1])
    m = scores.max(dim=1).values
    weights = torch.exp(scores - m[:, None])
    return m, weights.sum(1), weights @ values


# %% [markdown]
# **Spec.** With the scores at hand it is easy.


# %%
def spec_combine_partials(scores_a, values_a, scores_b, values_b):
    return partial(torch.cat([scores_a, scores_b], dim=1), torch.cat([values_a, values_b]))


# %% tags=["solve:3.3"]
def combine_partials(a, b):
    """(m, l, acc) of all keys, from those of two parts of them. In torch.

    a, b: (m, l, acc), m and l: [num_queries], acc: [num_queries, head_dim]; a part without keys is
    (−inf, 0, 0). No exp of anything above 0.
    """
    ### BEGIN SOLUTION
    (m_a, l_a, acc_a), (m_b, l_b, acc_b) = a, b
    m = torch.maximum(m_a, m_b)
    base = m.masked_fill(m == float("-inf"), 0)  # −inf − −inf is NaN
    factor_a, factor_b = torch.exp(m_a - base), torch.exp(m_b - base)
    acc = acc_a * factor_a[:, None] + acc_b * factor_b[:, None]
    return m, l_a * factor_a + l_b * factor_b, acc
    ### END SOLUTION


# %% tags=["check:3.3"]
lab.check(combine_partials)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# The new m is the larger one. Each part was summed up relative to its own m; say by what factor its
# l and acc change if m had been the new one all along.
#
# <details><summary>Hint 2: the key line</summary>
#
# exp(s − new) = exp(s − old) · exp(old − new). So multiply l and acc of each part by `exp(m_old −
# m_new)`, and add.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `m = torch.maximum(m_a, m_b)`; factors `exp(m_a - base)`, `exp(m_b - base)`, where base is m, but
# 0 where m is −inf: −inf − (−inf) is NaN. `acc` needs `factor[:, None]`.
# </details></details></details>

# %%
combine_partials = lab.part("3.3")
scores, values = torch.randn(4, 48) * 3, torch.randn(48, 8)
whole = partial(scores, values)
ends = []
for tile in (1, 5, 16, 47):
    so_far = partial(scores[:, :0], values[:0])
    for begin in range(0, 48, tile):
        so_far = combine_partials(
            so_far, partial(scores[:, begin : begin + tile], values[begin : begin + tile])
        )
    ends.append(all(torch.allclose(a, b, atol=1e-3) for a, b in zip(so_far, whole, strict=True)))
print("tiles of 1, 5, 16 and 47 give the whole:", all(ends))
dense = scores.softmax(-1) @ values
print("acc / l is attention:", torch.allclose(so_far[2] / so_far[1][:, None], dense, atol=1e-3))
a, b = (tuple(torch.tensor([x]) for x in pair) + (torch.zeros(1, 8),) for pair in ((2.0, 3.0), (5.0, 1.0)))
lab.compare("3.3", round(combine_partials(a, b)[1].item(), 2))

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(width=7.5, height=2.8)
one = scores[0]
running = torch.cummax(one, dim=0).values
axes.bar(range(48), one, color=style.PALETTE[5], label="score of a key")
axes.step(range(48), running, where="post", color=style.PALETTE[1], label="m so far")
for begin in range(0, 48, 16):
    axes.axvline(begin - 0.5, color=style.SHARED, linestyle=":", linewidth=1)
axes.set(xlabel="key", ylabel="score", title="one query, three tiles of 16 keys")
axes.legend(loc="lower right", frameon=True)
style.show(figure, "Scores of 48 keys and their running maximum, a staircase; each rise shrinks l and acc.")

# %% [markdown]
# **Question.** m jumps a few times at the beginning and seldom later. What does each jump cost a
# kernel, and what does it cost when m stays?
#
# <details><summary>An answer</summary>
#
# The same: exp(old − new) is computed and multiplied with in every tile, it is just 1 when m stays.
# Two multiplications for each row of acc a tile, little beside the products. (FlashAttention-4
# skips small jumps.)
# </details>

# %% [markdown]
# ## 3.4 Paged decode · ●●● · 40 min · core
#
# One query a request, its whole context to look at. Program (seq, kv_head) serves **all query heads
# of a KV head**: they want the same keys, which are then loaded once instead of GROUP times.
#
#     for each tile of 16 positions:
#         where are they?   block = table[p // BLOCK_SIZE], slot, address
#         load              keys, values                     [TILE, DIM_PAD]
#         scores            queries · keysᵀ · scale          [GROUP_PAD, TILE]
#         fold them into    m, total, acc                    (3.3; `total` is l)
#
# `tl.dot` multiplies matrices of 16 rows at least, as tensor cores do: a group of 3 is padded.

# %% [markdown]
# **Predict** the arithmetic intensity, FLOPs for each byte of cache, in 2-byte numbers, for groups
# of 1, 3 and 8 query heads. (2 FLOPs a multiply-add, for scores and for values.)

# %%
### BEGIN SOLUTION
intensities = [1, 3, 8]
### END SOLUTION
lab.predict("3.4", intensities)

# %% [markdown]
# **Spec.** Slot by slot, then exercise 1.1.

# %%
attention_one_step = lab.part("1.1")


def spec_paged_decode(q, k_cache, v_cache, block_tables, context_lens, max_context_len):
    size, rows = k_cache.shape[1], []
    for query, blocks, context_len in zip(q, block_tables, context_lens.tolist(), strict=True):
        k = torch.stack([k_cache[blocks[p // size], p % size] for p in range(context_len)])
        v = torch.stack([v_cache[blocks[p // size], p % size] for p in range(context_len)])
        rows.append(attention_one_step(query, k, v))
    return torch.stack(rows)


# %% [markdown]
# Beginning, end and launch are given. **You write the loop**, with `tl.load`, `tl.dot(a, b,
# input_precision="ieee")` (float32 as float32, not rounded to TF32), `tl.trans`, `tl.where`,
# `tl.exp`, `tl.maximum(a, b)`, and `tl.max(x, axis=1)`, `tl.sum(x, axis=1)` over a row.
#
# MAX_LEN is a constant, the next power of two: so the kernel is compiled once for each power, not
# once for each length. Tiles that begin behind the context have nothing to load.


# %% tags=["solve:3.4"]
@triton.jit
def paged_decode_kernel(
    q,  # request seq at q + seq * q_stride, its heads HEAD_DIM apart
    k_cache,  # slot s, KV head h: k_cache + (s * NUM_KV_HEADS + h) * HEAD_DIM
    v_cache,
    block_tables,  # of request seq at block_tables + seq * table_stride
    context_lens,
    out,
    scale,
    q_stride,
    table_stride,
    BLOCK_SIZE: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads of a KV head
    HEAD_DIM: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    DIM_PAD: tl.constexpr,
    TILE: tl.constexpr,
    MAX_LEN: tl.constexpr,  # no context is longer
):
    """One program: the query heads of one KV head of one request, over its whole context."""
    seq, kv_head = tl.program_id(0), tl.program_id(1)
    context_len = tl.load(context_lens + seq)
    row, column = tl.arange(0, GROUP_PAD), tl.arange(0, DIM_PAD)
    at_head = (kv_head * GROUP + row)[:, None] * HEAD_DIM + column[None, :]
    is_query = (row < GROUP)[:, None] & (column < HEAD_DIM)[None, :]
    queries = tl.load(q + seq * q_stride + at_head, mask=is_query, other=0.0).to(tl.float32)
    m = tl.full([GROUP_PAD], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_PAD], tl.float32)
    acc = tl.zeros([GROUP_PAD, DIM_PAD], tl.float32)
    ### BEGIN SOLUTION
    for begin in range(0, MAX_LEN, TILE):
        if begin < context_len:
            position = begin + tl.arange(0, TILE)
            is_token = position < context_len
            entry = block_tables + seq * table_stride + position // BLOCK_SIZE
            block = tl.load(entry, mask=is_token, other=0).to(tl.int64)
            slot = block * BLOCK_SIZE + position % BLOCK_SIZE
            at = (slot[:, None] * NUM_KV_HEADS + kv_head) * HEAD_DIM + column[None, :]
            is_kv = is_token[:, None] & (column < HEAD_DIM)[None, :]
            keys = tl.load(k_cache + at, mask=is_kv, other=0.0).to(tl.float32)
            values = tl.load(v_cache + at, mask=is_kv, other=0.0).to(tl.float32)
            scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
            scores = tl.where(is_token[None, :], scores, float("-inf"))
            new_m = tl.maximum(m, tl.max(scores, axis=1))
            weights = tl.exp(scores - new_m[:, None])
            shrink = tl.exp(m - new_m)
            total = total * shrink + tl.sum(weights, axis=1)
            acc = acc * shrink[:, None] + tl.dot(weights, values, input_precision="ieee")
            m = new_m
    ### END SOLUTION
    result = (acc / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + seq * NUM_KV_HEADS * GROUP * HEAD_DIM + at_head, result, mask=is_query)


def paged_decode(q, k_cache, v_cache, block_tables, context_lens, max_context_len):
    """Attention of one query for each request over its paged context.

    q: [num_seqs, num_heads, head_dim]; k_cache, v_cache: [num_blocks, block_size, num_kv_heads, head_dim];
    block_tables: [num_seqs, max_blocks]; context_lens: [num_seqs], none above max_context_len → like q
    """
    num_seqs, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    group = num_heads // num_kv_heads
    sizes = dict(BLOCK_SIZE=block_size, NUM_KV_HEADS=num_kv_heads, GROUP=group, HEAD_DIM=head_dim)
    sizes["GROUP_PAD"] = max(16, triton.next_power_of_2(group))
    sizes["DIM_PAD"] = max(16, triton.next_power_of_2(head_dim))
    sizes |= dict(TILE=16, MAX_LEN=triton.next_power_of_2(max_context_len))
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    numbers = head_dim**-0.5, q.stride(0), block_tables.stride(0)
    paged_decode_kernel[(num_seqs, num_kv_heads)](
        q, k_cache, v_cache, block_tables, context_lens, out, *numbers, **sizes
    )
    return out


# %% tags=["check:3.4"]
lab.check(paged_decode)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Write it for a context of at most one tile first: no shrinking. Then let m grow.
#
# <details><summary>Hint 2: the key lines</summary>
#
# Blocks of `position = begin + tl.arange(0, TILE)`: `tl.load(block_tables + seq * table_stride +
# position // BLOCK_SIZE, mask=is_token, other=0)`. Addresses are a matrix: slots down (`[:,
# None]`), columns across.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `at = (slot[:, None] * NUM_KV_HEADS + kv_head) * HEAD_DIM + column[None, :]`. Scores:
# `tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale`, −inf where not `is_token`.
# `new_m`, `weights = exp(scores − new_m)`, `shrink = exp(m − new_m)`; total and acc: times shrink,
# plus what is new.
# </details></details></details>

# %%
paged_decode = lab.part("3.4")
k_cache, v_cache = torch.full(
    (2, 16, 16, 3, 64), float("nan"), device=device
)  # nobody has written anything yet
width = max(len(blocks) for blocks in tables.values())
block_tables = torch.tensor(
    [blocks + [0] * (width - len(blocks)) for blocks in tables.values()], device=device
)
context_lens = torch.tensor(list(contexts.values()), device=device)
for blocks, length in zip(block_tables, context_lens.tolist(), strict=True):
    position = torch.arange(length, device=device)
    slots = blocks[position // 16] * 16 + position % 16
    k, v = torch.randn(2, length, 3, 64, device=device)
    store_kv(k, v, k_cache, v_cache, slots)
q = torch.randn(3, 9, 64, device=device)
batch = q, k_cache, v_cache, block_tables, context_lens, int(context_lens.max())
print("same as the spec:", torch.allclose(paged_decode(*batch), spec_paged_decode(*batch), atol=1e-3))

flops = [group * 2 * 2 * 64 for group in (1, 3, 8)]  # for each cached token and KV head
num_bytes = 2 * 64 * 2
lab.compare("3.4", [n / num_bytes for n in flops])

# %% [markdown]
# The batch is the one of *The pain*, and NaN lay in every slot that holds no token. Your kernel
# loaded what the picture shows, and nothing else. **Head_dim cancels out, and so does the
# context.** Intensity is the group size, and a GPU wants hundreds.

# %% tags=["nbval-ignore-output"]
groups = [Point(f"decode, group {g}", H100, intensity=g) for g in (1, 3, 8)]
print(Roofline([H100], groups).table())
Roofline([H100], groups).show()

# %% [markdown]
# The points are counted, not measured, so they are hollow and lie on the roof. **GQA** moves them
# to the right and cuts the bytes; batching does neither for attention, since each request has keys
# of its own. That is why this kernel is judged by bytes a second.
#
# Now the compiler's report on your kernel.

# %%
report = report_of(paged_decode)
print("bytes spilled:", sum(row.spills for row in report))

# %% tags=["nbval-ignore-output"]
if report:
    print(table(report))
    for row in report:
        programs = 65536 // (row.registers * 128)
        print(f"{row.arch}: {row.registers} registers × 128 threads, so up to {programs} programs on an SM")

# %% [markdown]
# ## Plug in
#
# The engine with your kernels. `attention_backend="triton"` writes with `store_kv`, decodes with
# `paged_decode`, norms with `rms_norm`, and reads prompts with `paged_prefill` (3.6). In the
# interpreter each decode step starts 30 layers × 3 KV heads × requests programs of attention, some
# milliseconds each, and many small ones, so two short prompts and five tokens must do.

# %%
backend = dict(device=device, attention_backend="triton") if HERE else dict(device="cpu")
tokenizer = llm.get_tokenizer()
texts = "The capital of France is Paris. The capital of Italy is", "1, 2, 3, 4, 5,"
text_ids = [tokenizer.encode(text) for text in texts]
five = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


def tokens_of(llm, prompts=text_ids):
    return [output.outputs[0].token_ids for output in llm.generate(prompts, five, use_tqdm=False)]


in_torch = tokens_of(llm)
on_kernels = lab.engine(**backend, **small)
start = time.perf_counter()
print("same tokens as paged attention in torch:", tokens_of(on_kernels) == in_torch)
elapsed = time.perf_counter() - start

# %% tags=["nbval-ignore-output"]
print(*[repr(text + tokenizer.decode(ids)) for text, ids in zip(texts, in_torch, strict=True)], sep="\n")
decode_steps = list(on_kernels.trace.steps)[1:]
per_step = sum(step.time_end - step.time_start for step in decode_steps) / len(decode_steps)
print(f"{elapsed:.1f} s in all; a decode step of {30 * 3 * 2} attention programs: {1000 * per_step:.0f} ms")

# %% [markdown]
# ## 3.5 Split the context · ●●● · 30 min · extra
#
# One user, one request of 32,768 tokens, an H100 with 132 SMs. Program (seq, kv_head): how many
# programs are there? The others idle, and the few read 32k tokens one tile after the other.
#
# **Flash-decoding** (Dao et al., 2023) gives each program a **split**, a piece of the context. Each
# leaves a partial (m, l, acc); a second kernel puts them together, by 3.3.
#
# **Predict** for SmolLM2 (3 KV heads): programs without splitting; with splits of 512 tokens; and
# the smallest number of splits that gives each of the 132 SMs a program.

# %%
### BEGIN SOLUTION
num_programs = [3, 192, 44]
### END SOLUTION
lab.predict("3.5", num_programs)

# %% [markdown]
# **Spec.** The split must not show.


# %%
def spec_paged_decode_split(q, k_cache, v_cache, block_tables, context_lens, max_context_len, split):
    return spec_paged_decode(q, k_cache, v_cache, block_tables, context_lens, max_context_len)


# %% [markdown]
# Two kernels. The first is 3.4 with other bounds and another end: copy your loop. The second has
# one program for each query head of each request, and loads all its splits at once.


# %% tags=["solve:3.5"]
@triton.jit
def split_kernel(
    q,
    k_cache,
    v_cache,
    block_tables,
    context_lens,
    m_out,  # m, l: [num_seqs, num_heads, num_splits], acc: [… , HEAD_DIM], all contiguous
    l_out,
    acc_out,
    scale,
    q_stride,
    table_stride,
    num_splits,
    BLOCK_SIZE: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    DIM_PAD: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,  # tokens of context for this program, a multiple of TILE
):
    """One program: tokens split · SPLIT … (split + 1) · SPLIT − 1, as far as there are any.

    It stores (m, l, acc) of each query head, (−inf, 0, 0) for a split without tokens."""
    seq, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    context_len = tl.load(context_lens + seq)
    row, column = tl.arange(0, GROUP_PAD), tl.arange(0, DIM_PAD)
    head = kv_head * GROUP + row
    is_query = (row < GROUP)[:, None] & (column < HEAD_DIM)[None, :]
    at_query = q + seq * q_stride + head[:, None] * HEAD_DIM + column[None, :]
    queries = tl.load(at_query, mask=is_query, other=0.0).to(tl.float32)
    m = tl.full([GROUP_PAD], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_PAD], tl.float32)
    acc = tl.zeros([GROUP_PAD, DIM_PAD], tl.float32)
    ### BEGIN SOLUTION
    for offset in range(0, SPLIT, TILE):
        begin = split * SPLIT + offset
        if begin < context_len:
            position = begin + tl.arange(0, TILE)
            is_token = position < context_len
            entry = block_tables + seq * table_stride + position // BLOCK_SIZE
            block = tl.load(entry, mask=is_token, other=0).to(tl.int64)
            slot = block * BLOCK_SIZE + position % BLOCK_SIZE
            at = (slot[:, None] * NUM_KV_HEADS + kv_head) * HEAD_DIM + column[None, :]
            is_kv = is_token[:, None] & (column < HEAD_DIM)[None, :]
            keys = tl.load(k_cache + at, mask=is_kv, other=0.0).to(tl.float32)
            values = tl.load(v_cache + at, mask=is_kv, other=0.0).to(tl.float32)
            scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
            scores = tl.where(is_token[None, :], scores, float("-inf"))
            new_m = tl.maximum(m, tl.max(scores, axis=1))
            weights = tl.exp(scores - new_m[:, None])
            shrink = tl.exp(m - new_m)
            total = total * shrink + tl.sum(weights, axis=1)
            acc = acc * shrink[:, None] + tl.dot(weights, values, input_precision="ieee")
            m = new_m
    part = (seq * NUM_KV_HEADS * GROUP + head) * num_splits + split
    tl.store(m_out + part, m, mask=row < GROUP)
    tl.store(l_out + part, total, mask=row < GROUP)
    tl.store(acc_out + part[:, None] * HEAD_DIM + column[None, :], acc, mask=is_query)
    ### END SOLUTION


@triton.jit
def reduce_kernel(
    m_in,
    l_in,
    acc_in,
    out,
    num_splits,
    HEAD_DIM: tl.constexpr,
    DIM_PAD: tl.constexpr,
    SPLITS_PAD: tl.constexpr,  # num_splits, to the next power of two
):
    """One program: all splits of one query head of one request, program_id(0) = seq · num_heads + head."""
    ### BEGIN SOLUTION
    row = tl.program_id(0)
    split, column = tl.arange(0, SPLITS_PAD), tl.arange(0, DIM_PAD)
    is_split, is_column = split < num_splits, column < HEAD_DIM
    part = row * num_splits + split
    m = tl.load(m_in + part, mask=is_split, other=float("-inf"))
    total = tl.load(l_in + part, mask=is_split, other=0.0)
    at = part[:, None] * HEAD_DIM + column[None, :]
    acc = tl.load(acc_in + at, mask=is_split[:, None] & is_column[None, :], other=0.0)
    factor = tl.exp(m - tl.max(m, axis=0))
    result = tl.sum(acc * factor[:, None], axis=0) / tl.sum(total * factor, axis=0)
    tl.store(out + row * HEAD_DIM + column, result.to(out.dtype.element_ty), mask=is_column)
    ### END SOLUTION


def paged_decode_split(q, k_cache, v_cache, block_tables, context_lens, max_context_len, split=512):
    """Like paged_decode. split: tokens that one program reads, a power of two, 16 or more."""
    num_seqs, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    group, num_splits = num_heads // num_kv_heads, triton.cdiv(max_context_len, split)
    dim_pad = max(16, triton.next_power_of_2(head_dim))
    sizes = dict(BLOCK_SIZE=block_size, NUM_KV_HEADS=num_kv_heads, GROUP=group, HEAD_DIM=head_dim)
    sizes["GROUP_PAD"] = max(16, triton.next_power_of_2(group))
    sizes |= dict(DIM_PAD=dim_pad, TILE=16, SPLIT=split)
    # NaN, so that a partial result that no program has stored shows.
    m, total = torch.full((2, num_seqs, num_heads, num_splits), float("nan"), device=q.device)
    acc = torch.full((num_seqs, num_heads, num_splits, head_dim), float("nan"), device=q.device)
    numbers = head_dim**-0.5, q.stride(0), block_tables.stride(0), num_splits
    split_kernel[(num_seqs, num_kv_heads, num_splits)](
        q, k_cache, v_cache, block_tables, context_lens, m, total, acc, *numbers, **sizes
    )
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    sizes = dict(HEAD_DIM=head_dim, DIM_PAD=dim_pad, SPLITS_PAD=triton.next_power_of_2(num_splits))
    reduce_kernel[(num_seqs * num_heads,)](m, total, acc, out, num_splits, **sizes)
    return out


# %% tags=["check:3.5"]
lab.check(paged_decode_split)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# First kernel: the loop runs over one split, `range(0, SPLIT, TILE)`, and begins at `split *
# SPLIT`. Instead of acc / total it stores m, total and acc, each in its place.
#
# <details><summary>Hint 2: the key lines</summary>
#
# The place of a partial result: `part = (seq * NUM_KV_HEADS * GROUP + head) * num_splits + split`,
# one for each query head; acc at `part[:, None] * HEAD_DIM + column[None, :]`.
#
# <details><summary>Hint 3: nearly code</summary>
#
# Second kernel: load m (`other=float("-inf")`) and l of all splits, acc as a matrix [SPLITS_PAD,
# DIM_PAD]; `factor = exp(m − max(m))`; out = `tl.sum(acc * factor[:, None], axis=0) / tl.sum(l *
# factor, axis=0)`.
# </details></details></details>

# %%
paged_decode_split = lab.part("3.5")
right = spec_paged_decode_split(*batch, split=32)
for split in (16, 32, 128):
    same = torch.allclose(paged_decode_split(*batch, split), right, atol=1e-3)
    print(f"split {split:>3}: same as the spec: {same}")


def programs(context_len, split, kv_heads=3):
    return kv_heads * -(-context_len // split)


enough = next(n for n in range(1, 1000) if 3 * n >= 132)
lab.compare("3.5", [programs(32768, 32768), programs(32768, 512), enough])

# %% [markdown]
# Is smaller better? Each split writes (m, l, acc) in float32 and reads it again. Against that stand
# the bytes of its keys and values.

# %%
print(
    f"{'split':>6} {'programs':>9} {'SMs without one':>16} {'partial results, of the bytes of the cache':>44}"
)
for split in (32768, 4096, 1024, 512, 128, 32):
    count = programs(32768, split)
    results = 2 * (count // 3) * 9 * (64 + 2) * 4  # written and read, for 9 query heads
    cache = 32768 * 3 * 64 * 2 * 2
    print(f"{split:>6} {count:>9} {max(0, 132 - count):>16} {results / cache:>44.2%}")

# %% [markdown]
# 512 fills the GPU for one percent. With 64 such requests there are programs enough without any
# split: splitting is for **few and long** requests. A last wave matters, too: 192 programs on 132
# SMs, one at a time, would take two rounds, the second half empty; since several programs share an
# SM (see the report), it does not come to that.

# %% tags=["nbval-ignore-output"]
if HERE:
    print(table(report_of(paged_decode_split)))

# %% tags=["nbval-ignore-output"]
if device == "cuda":  # one request of 32,768 tokens, 2 bytes a number
    long_k, long_v = torch.randn(2, 2048, 16, 3, 64, device=device, dtype=torch.float16)
    long_q = torch.randn(1, 9, 64, device=device, dtype=torch.float16)
    long = (
        long_q,
        long_k,
        long_v,
        torch.randperm(2048, device=device)[None],
        torch.tensor([32768], device=device),
    )
    whole_ms = triton.testing.do_bench(lambda: paged_decode(*long, 32768))
    print(f"one program a KV head: {whole_ms:.3f} ms")
    for split in (4096, 1024, 512, 128):
        split_ms = triton.testing.do_bench(lambda split=split: paged_decode_split(*long, 32768, split))
        print(f"splits of {split:>4}: {split_ms:.3f} ms")
else:
    print("no GPU here: not measured")

# %% [markdown]
# ## 3.6 Paged prefill · ●●● · 40 min · extra
#
# A chunk of a prompt: many queries of one request, over its cached context and over themselves,
# **causally**. Query i of the chunk stands at position `context_len − query_len + i`, and sees keys
# up to there.
#
# Program (tile, seq, head) owns 16 queries of one head (FlashAttention; Dao et al., 2022). It walks
# over the context as in 3.4, and stops where its last query does. The grid is made for the longest
# chunk of the batch, so some programs find nothing to do.

# %% [markdown]
# **Predict** for one head and a chunk of 64 tokens without cached context: how many pairs of tiles
# (16 queries, 16 keys) are there in the square, and how many does a program that stops need?

# %%
### BEGIN SOLUTION
tile_pairs = [16, 10]
### END SOLUTION
lab.predict("3.6", tile_pairs)

# %% [markdown]
# **Spec.** Each query is a decode over a shorter context.


# %%
def spec_paged_prefill(
    q, k_cache, v_cache, block_tables, query_start, query_lens, context_lens, max_query_len, max_context_len
):
    rows = []
    for blocks, n, context_len in zip(block_tables, query_lens.tolist(), context_lens.tolist(), strict=True):
        for seen in range(context_len - n + 1, context_len + 1):
            one = q[len(rows)][None], k_cache, v_cache, blocks[None], torch.tensor([seen]), seen
            rows.append(spec_paged_decode(*one)[0])
    return torch.stack(rows)


# %% tags=["solve:3.6"]
@triton.jit
def paged_prefill_kernel(
    q,  # rows q_stride apart; those of out NUM_KV_HEADS * GROUP * HEAD_DIM
    k_cache,
    v_cache,
    block_tables,
    query_start,  # request seq has the rows query_start[seq] … of q
    query_lens,
    context_lens,
    out,
    scale,
    q_stride,
    table_stride,
    BLOCK_SIZE: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIM_PAD: tl.constexpr,
    QUERY_TILE: tl.constexpr,
    TILE: tl.constexpr,
    MAX_LEN: tl.constexpr,
):
    """One program: QUERY_TILE queries of one head of one request."""
    tile, seq, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query_len, context_len = tl.load(query_lens + seq), tl.load(context_lens + seq)
    if tile * QUERY_TILE < query_len:
        index, column = tile * QUERY_TILE + tl.arange(0, QUERY_TILE), tl.arange(0, DIM_PAD)
        row = tl.load(query_start + seq) + index
        query_position = context_len - query_len + index
        is_query = (index < query_len)[:, None] & (column < HEAD_DIM)[None, :]
        at_query = row[:, None] * q_stride + head * HEAD_DIM + column[None, :]
        queries = tl.load(q + at_query, mask=is_query, other=0.0).to(tl.float32)
        m = tl.full([QUERY_TILE], float("-inf"), tl.float32)
        total = tl.zeros([QUERY_TILE], tl.float32)
        acc = tl.zeros([QUERY_TILE, DIM_PAD], tl.float32)
        ### BEGIN SOLUTION
        end = tl.minimum(context_len, context_len - query_len + (tile + 1) * QUERY_TILE)
        for begin in range(0, MAX_LEN, TILE):
            if begin < end:
                position = begin + tl.arange(0, TILE)
                is_token = position < context_len
                entry = block_tables + seq * table_stride + position // BLOCK_SIZE
                block = tl.load(entry, mask=is_token, other=0).to(tl.int64)
                slot = block * BLOCK_SIZE + position % BLOCK_SIZE
                at = (slot[:, None] * NUM_KV_HEADS + head // GROUP) * HEAD_DIM + column[None, :]
                is_kv = is_token[:, None] & (column < HEAD_DIM)[None, :]
                keys = tl.load(k_cache + at, mask=is_kv, other=0.0).to(tl.float32)
                values = tl.load(v_cache + at, mask=is_kv, other=0.0).to(tl.float32)
                scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
                is_seen = position[None, :] <= query_position[:, None]
                scores = tl.where(is_seen, scores, float("-inf"))
                new_m = tl.maximum(m, tl.max(scores, axis=1))
                weights = tl.exp(scores - new_m[:, None])
                shrink = tl.exp(m - new_m)
                total = total * shrink + tl.sum(weights, axis=1)
                acc = acc * shrink[:, None] + tl.dot(weights, values, input_precision="ieee")
                m = new_m
        ### END SOLUTION
        at_out = row[:, None] * (NUM_KV_HEADS * GROUP * HEAD_DIM) + head * HEAD_DIM + column[None, :]
        tl.store(out + at_out, (acc / total[:, None]).to(out.dtype.element_ty), mask=is_query)


def paged_prefill(
    q, k_cache, v_cache, block_tables, query_start, query_lens, context_lens, max_query_len, max_context_len
):
    """Causal attention of chunks over their paged context, each chunk being the last tokens of it.

    q: [num_tokens, num_heads, head_dim]; query_start: [num_seqs + 1]; query_lens, context_lens: [num_seqs],
    none above max_query_len and max_context_len; the rest as in paged_decode → like q
    """
    num_tokens, num_heads, head_dim = q.shape
    _, block_size, num_kv_heads, _ = k_cache.shape
    group = num_heads // num_kv_heads
    sizes = dict(BLOCK_SIZE=block_size, NUM_KV_HEADS=num_kv_heads, GROUP=group, HEAD_DIM=head_dim)
    sizes["DIM_PAD"] = max(16, triton.next_power_of_2(head_dim))
    sizes |= dict(QUERY_TILE=16, TILE=16, MAX_LEN=triton.next_power_of_2(max_context_len))
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lengths, numbers = (query_start, query_lens, context_lens), (q.stride(0), block_tables.stride(0))
    paged_prefill_kernel[(triton.cdiv(max_query_len, 16), len(query_lens), num_heads)](
        q, k_cache, v_cache, block_tables, *lengths, out, head_dim**-0.5, *numbers, **sizes
    )
    return out


# %% tags=["check:3.6"]
lab.check(paged_prefill)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Start from your loop of 3.4. Rows are now 16 queries of one head instead of the heads of a group;
# its KV head is `head // GROUP`.
#
# <details><summary>Hint 2: the key line</summary>
#
# The score's mask is a matrix: `position[None, :] <= query_position[:, None]`. Loads are masked as
# before, by what exists: `position < context_len`.
#
# <details><summary>Hint 3: nearly code</summary>
#
# The last query of the tile stands at `context_len - query_len + (tile + 1) * QUERY_TILE - 1`: only
# tiles of keys that begin before `end`, the position behind it, need any work; and `end` is at most
# context_len.
# </details></details></details>

# %%
paged_prefill = lab.part("3.6")
query_lens = torch.tensor([20, 1, 5], device=device)
query_start = torch.tensor([0, 20, 21, 26], device=device)
chunk_q = torch.randn(26, 9, 64, device=device)
chunks = chunk_q, k_cache, v_cache, block_tables, query_start, query_lens, context_lens, 20, batch[-1]
print("same as the spec:", torch.allclose(paged_prefill(*chunks), spec_paged_prefill(*chunks), atol=1e-3))
lab.compare("3.6", [4 * 4, 1 + 2 + 3 + 4])

# %% [markdown]
# Half of the square, in the limit: causality saves a factor of 2, but only for tiles that are
# skipped, not for those that are masked.
#
# All of your kernels, and a prompt that comes in two chunks: the second one finds the first in the
# cache.

# %%
chunked = lab.engine(**backend, **small, max_num_batched_tokens=9)
print("same tokens as paged attention in torch:", tokens_of(chunked, text_ids[:1]) == in_torch[:1])
print("tokens in each step:", *[sum(step.num_scheduled_tokens.values()) for step in chunked.trace.steps])

# %% [markdown]
# ## See: who loads what
#
# Request A of the beginning, 106 tokens in 7 blocks. First one program a KV head, then splits of 32
# tokens. Below that A's prompt of 60 tokens as one chunk: four tiles of queries. Two questions:
# which block do programs load most often, and why does the last split have less to do?

# %% tags=["nbval-ignore-output"]
blocks, length = tables["A"], contexts["A"]


def loaded(first, last):
    """{block: number of the tokens first … last − 1 in it}"""
    return dict(Counter(blocks[p // 16] for p in range(first, last)))


rows = [("3.4: all of it", 0, loaded(0, length))]
for first in range(0, length, 32):
    rows.append((f"3.5: split {first // 32}", 1, loaded(first, min(first + 32, length))))
for first in range(0, 60, 16):
    end = min(first + 16, 60)
    rows.append((f"3.6: queries {first}–{end - 1}", 2, loaded(0, end)))
draw_loads(
    rows, 16, "Blocks loaded for request A: all seven, one or two for each split, a staircase in prefill."
)
for label, _, what in rows:
    print(f"{label:<18}", " ".join(f"{block}({n})" for block, n in what.items()))

# %% [markdown]
# ## Measure, where there is a GPU
#
# On a GPU: its copy bandwidth and matmul peak, and your decode kernel at 64 requests of 4,096
# tokens. How near to the roof does it come? Below 80 %, look at the tile, the number of warps, the
# type of the products ([paged_decode.py](../minivllm/kernels/paged_decode.py) chooses them by
# architecture).
#
# Without one nothing is measured, and nothing is claimed.


# %% tags=["nbval-ignore-output"]
def measured_roofline():
    half = dict(device="cuda", dtype=torch.float16)
    source, matrix = torch.empty(2**30, device="cuda", dtype=torch.uint8), torch.randn(8192, 8192, **half)
    target = torch.empty_like(source)
    bandwidth = 2 * 2**30 / (triton.testing.do_bench(lambda: target.copy_(source)) / 1000)
    peak = 2 * 8192**3 / (triton.testing.do_bench(lambda: matrix @ matrix) / 1000)
    gpu = Hardware("this GPU", peak, bandwidth, torch.cuda.mem_get_info()[1])
    points = []
    for group in (1, 3, 8):
        q = torch.randn(64, 3 * group, 64, **half)
        k, v = torch.randn(2, 64 * 256, 16, 3, 64, **half)
        ids = torch.randperm(64 * 256, device="cuda").view(64, 256)
        arguments = q, k, v, ids, torch.full((64,), 4096, device="cuda"), 4096
        seconds = triton.testing.do_bench(lambda arguments=arguments: paged_decode(*arguments)) / 1000
        flops = 64 * 4096 * 3 * group * 4 * 64
        points.append(Point(f"yours, group {group}", gpu, flops / (k.nbytes + v.nbytes), flops / seconds))
    return Roofline([gpu], points)


if device == "cuda":
    roofline = measured_roofline()
    print(roofline.table())
    roofline.show()
else:
    print("no GPU here: not measured")

# %% [markdown]
# ## Break it
#
# **A. A mask forgotten.** Here is a small decode kernel, one head, one tile, in which two masks can
# be switched off: the −inf of scores behind the context, and the mask of the loads. Behind the
# context lie zeros, an old request's values, or NaN. Before you run it: which of the nine answers
# are right?


# %%
@triton.jit
def careless_kernel(
    q,
    k,
    v,
    out,
    context_len,
    TILE: tl.constexpr,
    DIM: tl.constexpr,
    MASK_SCORES: tl.constexpr,
    MASK_LOADS: tl.constexpr,
):
    position, column = tl.arange(0, TILE), tl.arange(0, DIM)
    is_token = position < context_len
    at = position[:, None] * DIM + column[None, :]
    if MASK_LOADS:
        keys = tl.load(k + at, mask=is_token[:, None], other=0.0)
        values = tl.load(v + at, mask=is_token[:, None], other=0.0)
    else:
        keys, values = tl.load(k + at), tl.load(v + at)
    scores = tl.sum(keys * tl.load(q + column)[None, :], axis=1)
    if MASK_SCORES:
        scores = tl.where(is_token, scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, axis=0))
    tl.store(out + column, tl.sum(values * weights[:, None], axis=0) / tl.sum(weights, axis=0))


def careless(garbage, mask_scores, mask_loads):
    torch.manual_seed(1)
    q, k, v = torch.randn(16, device=device), *torch.randn(2, 16, 16, device=device)
    want = (k[:11] @ q).softmax(0) @ v[:11]
    k[11:], v[11:] = garbage, garbage
    out = torch.empty(16, device=device)
    masks = dict(MASK_SCORES=mask_scores, MASK_LOADS=mask_loads)
    careless_kernel[(1,)](q, k, v, out, 11, TILE=16, DIM=16, **masks)
    return "NaN" if out.isnan().any() else "right" if torch.allclose(out, want, atol=1e-4) else "wrong"


choices = {"both masks": (1, 1), "no −inf for scores": (0, 1), "loads not masked": (1, 0)} if HERE else {}
print(f"{'behind the context:':<22} {'0':>6} {'3.0':>6} {'NaN':>6}")
for label, masks in choices.items():
    print(f"{label:<22}", *[f"{careless(garbage, *masks):>6}" for garbage in (0.0, 3.0, float("nan"))])

# %% [markdown]
# - Without −inf, a slot behind the context has score 0, hence weight: always wrong, never a crash.
# - With −inf alone the weights are 0, which hides everything but NaN: **0 · NaN is NaN**. Memory
#   from `torch.empty` holds NaN once in a while, so this passes most tests, and fails in
#   production.
#
# **B. Offsets past 2³¹.** Block ids often come as int32, and a product of two int32 is an int32. At
# what block does a cache of 16 slots a block and 1,024 numbers a slot go wrong?

# %%
per_block = 16 * 1024
for block in (2**17 - 1, 2**17, 2**17 + 1, 2**18):
    short = torch.tensor(block, dtype=torch.int32) * per_block
    right = torch.tensor(block, dtype=torch.int64) * per_block
    print(f"block {block:>7,}: offset {right.item():>14,}, in int32 {short.item():>14,}")

print("\nmemory at which the keys of one layer reach 2³¹ numbers of 2 bytes:")
for layers in (16, 32, 80):
    print(f"{layers:>3} layers: {2**31 * 2 * 2 * layers / 2**30:>4.0f} GiB of cache")

# %% [markdown]
# Block 2¹⁷ is *negative*: memory before the cache. Block 2¹⁸ is 0 again: **another request's
# keys**, no crash. Small models on large GPUs get there first, and any cache that keeps all layers
# in one tensor. The cure costs one conversion: `block.to(tl.int64)` *before* the product.
#
# **C. The grid.** With one program for each *query* head instead of each KV head every answer is
# right. What is lost? (Compare bytes: 3 times the keys and values, on SmolLM2. Caches may hide some
# of it.)

# %% [markdown]
# ## Interview corner
#
# Say your answer aloud before you unfold.
#
# <details><summary><b>1.</b> Why is decode attention bound by memory, and what does GQA change?</summary>
#
# - Each key and value is read for one query token: 4 · head_dim FLOPs a query head, 4 · head_dim
#   bytes in 2-byte numbers. Intensity = query heads that share it, 1 for MHA, 8 for a group of 8;
#   an H100's ridge is near 300.
# - Batching does not help: every request has its own cache. It helps the linear layers.
# - GQA: fewer bytes, more work for each. But only if one program serves the whole group.
# - Strong: MLA and speculative decoding raise it further; 8-bit caches halve bytes.
# </details>

# %% [markdown]
# <details><summary><b>2.</b> Why split the context, and when not?</summary>
#
# - Programs = requests · KV heads. One long request gives 3 or 8, a GPU has 132 SMs; the rest
#   idles.
# - Splits give programs; partial (m, l, acc) are combined exactly, by a second kernel. Cost: a
#   launch, and reading and writing partial results.
# - Not with many requests: programs enough. Engines choose the number from batch and lengths, or
#   balance by a plan made on the CPU (FlashInfer).
# - Strong: another split adds floats in another order, so results differ in the last bits; a
#   batch-invariant engine fixes the split's size, not their number.
# </details>

# %% [markdown]
# <details><summary><b>3.</b> Derive the online softmax.</summary>
#
# - Keep m, l, acc over the keys so far. New tile: m' = max(m, max s). Old sums are relative to m:
#   times exp(m − m').
# - l' = l · exp(m − m') + Σ exp(s − m'); acc alike, with values. End: acc / l.
# - Nothing above 0 goes into exp, so no overflow. The combination is associative: that is what
#   splitting uses.
# - Strong: names the identity (−inf, 0, 0), and that −inf − (−inf) is NaN.
# </details>

# %% [markdown]
# <details><summary><b>4.</b> Why not one program for each cache block?</summary>
#
# - It is a split of 16 tokens: partial results as large as a good part of the cache, and a
#   reduction over thousands. Queries are loaded again each time, and there is nothing to hide
#   latency behind.
# - A program walks over many blocks, and its tile need not be the block: look the block up for each
#   position.
# </details>

# %% [markdown]
# <details><summary><b>5.</b> What is coalescing, and what has block_size to do with it?</summary>
#
# - 32 threads load at once; memory answers in 32-byte pieces. Neighbouring addresses share pieces,
#   scattered ones waste them.
# - In [block, slot, KV head, head_dim] one head of one token is 128 bytes in a row (64 numbers of 2
#   bytes): coalesced, with any block size. Larger blocks mean fewer look-ups, not better loads.
# - Strong: says how the layout could be otherwise (heads outermost), and what that gives: longer
#   runs.
# </details>

# %% [markdown]
# <details><summary><b>6.</b> What breaks if masked slots get weight 0, but are still loaded?</summary>
#
# - Nothing, until a slot holds NaN or inf: 0 · NaN is NaN. Or until the table's padding points
#   outside the cache: then it is an illegal address, or a neighbour's memory.
# - Found by tests that fill every unused slot with NaN, and every output with NaN before.
# </details>

# %%
lab.progress()

# %% [markdown]
# ## What you built, and where it lives
#
# - Your parts: `my_engine/`. Minivllm's: [store_kv.py](../minivllm/kernels/store_kv.py),
#   [rms_norm.py](../minivllm/kernels/rms_norm.py),
#   [paged_decode.py](../minivllm/kernels/paged_decode.py),
#   [paged_prefill.py](../minivllm/kernels/paged_prefill.py); who calls them:
#   [triton.py](../minivllm/attention/triton.py).
# - The report: [compile_report.py](../minivllm/course/compile_report.py).
#
# **vLLM** began with a CUDA kernel of its own, split over the context ("v2"); today FlashAttention
# and FlashInfer read its pages, and a Triton backend like yours is there for other GPUs. **SGLang**
# uses FlashInfer or FlashAttention, and has a Triton backend with split decode.
#
# **Read on:** Tillet et al., *Triton* (2019); Milakov and Gimelshein, *Online normalizer
# calculation for softmax* (2018); Dao et al., *FlashAttention* (2022), *Flash-Decoding* (2023); Ye
# et al., *FlashInfer* (2025).
