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
# # 01 · The naive KV cache
#
# You make a language model produce text the slow way, find out what is slow about it, and take that away
# with the simplest KV cache there is. Your cache then runs inside a real engine.
#
# **Afterwards you can** say why generating N tokens without a cache takes O(N²) work and with one
# O(N), what the cache costs in bytes, and why memory becomes the problem as soon as compute is not.
#
# **Core:** 1.1 – 1.4, about 90 minutes. **Extra:** 1.5, 20 minutes.

# %%
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("minivllm") is None:  # a hosted notebook: install what lies beside labs/
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--editable", ".."], check=True)
    sys.path.insert(0, os.path.abspath(".."))  # this kernel started before it was there

# %% [markdown]
# An exercise goes like this. You **predict** a number. You read a **spec**: code that is short,
# slow and obviously right. You replace the line `raise course.NotImplementedYet` by your own code,
# and run the cell below it, which **checks** it in a process of its own. What passes is kept in
# `my_engine/`.
#
# Nothing here stops you: a cell that needs an exercise you have not done takes the reference.

# %%
import time

import torch

from minivllm import LLM, SamplingParams, course
from minivllm.attention.dense import causal_attention
from minivllm.model.fetch import resolve
from minivllm.model.layers import rotary_cos_sin, rotary_frequencies, rotate
from minivllm.model.loader import load_model
from minivllm.model.tokenizer import Tokenizer
from minivllm.viz import style

lab = course.open(1)

# %% [markdown]
# ## The pain
#
# This is SmolLM2, a chat model of 135 million weights. You call it as `model(token_ids, positions,
# attend)` and get the logits after the last token. In every layer it makes queries `q`, keys `k`
# and values `v` of the tokens that you gave it, and calls `attend(layer, q, k, v)`: **attention is
# yours**. The keys and queries have been rotated to their positions already.
#
# `model.calls` keeps the number of tokens and the seconds of every call.

# %%
path = resolve("SmolLM2-135M-Instruct")
tokenizer = Tokenizer(path)


class Model:
    def __init__(self, decoder):
        self.decoder = decoder
        self.calls = []

    @torch.inference_mode()
    def __call__(self, token_ids, positions, attend):
        start = time.perf_counter()
        hidden = self.decoder.hidden(torch.tensor(token_ids), torch.tensor(positions), attend)
        logits = self.decoder.logits(hidden[-1:])[0]  # [vocab_size]
        self.calls.append((len(token_ids), time.perf_counter() - start))
        return logits


model = Model(load_model(path))
cfg = model.decoder.config
print(f"{cfg.num_layers} layers, {cfg.num_heads} heads, {cfg.num_kv_heads} KV heads, head_dim {cfg.head_dim}")

# %% [markdown]
# `attend` without a cache is one line. Here is one token of an answer.


# %% tags=["nbval-ignore-output"]
def attend(layer, q, k, v):
    return causal_attention(q, k, v)


text = "Once upon a time, in a small village by the sea, there lived"
prompt = tokenizer.encode(text)
logits = model(prompt, list(range(len(prompt))), attend)
print(f"{len(prompt)} tokens → {tokenizer.decode([int(logits.argmax())])!r}")

# %% [markdown]
# One token is out. For the next one you call the model again, on a sequence that is one longer. So
# what does one more token cost, at the end of a text of t tokens? Run it.

# %% tags=["nbval-ignore-output"]
lengths = [16, 64, 128, 256, 512]
seconds = []
for t in lengths:
    for _ in range(2):  # the second call counts: the first one of a new size is slower
        model([1] * t, list(range(t)), attend)
    seconds.append(model.calls[-1][1])

figure, axes = style.figure(width=6)
style.line(axes, lengths, [1000 * s for s in seconds], 0, "one call")
axes.set(xlabel="tokens in the sequence", ylabel="ms for one more token", ylim=(0, None))
style.show(figure, "Milliseconds of one model call against the tokens given: it grows with every token.")

for t, s in zip(lengths, seconds, strict=True):
    print(f"one more token at {t:>3}: {1000 * s:>5.0f} ms")
whole = torch.trapezoid(torch.tensor(seconds), torch.tensor(lengths).float())
print(f"a text of 512 tokens, written like this: {whole:.0f} s")

# %% [markdown]
# ## The idea
#
# Attention is causal: no token sees a later one. So keys and values of a token **never change**
# when text is added behind it. Keep them, and a new token needs its own row of work only. What you
# keep is the **KV cache**; filling it with the prompt is **prefill**, each token after that is a
# **decode** step. Queries are not kept: only the newest is ever asked for.
#
# The picture shows the scores of six tokens, blue where they are computed for the sixth. Without a
# cache each new token computes the whole triangle again.

# %% tags=["nbval-ignore-output"]
figure, (left, right) = style.figure(columns=2, width=7, height=2.9)
for axes, title, cached in ((left, "without cache", False), (right, "with cache", True)):
    for row in range(6):
        for column in range(row + 1):
            not_needed = cached and row < 5
            colour = style.EMPTY if not_needed else style.PALETTE[0]
            style.cell(axes, column + 1, row + 1, colour)
    style.matrix(axes, 6, 6)
    axes.set(title=title, xlabel="key of token", ylabel="query of token")
style.show(figure, "Two triangles of scores: without cache all 21 are computed, with cache the 6 of row 6.")

# %% [markdown]
# ## 1.1 One query over its context · ●○○ · 20 min · core
#
# A decode step has one query for each head, and the keys and values of all tokens so far. In
# **grouped-query attention** (GQA; Ainslie et al., 2023) several query heads share one KV head,
# neighbours together:
#
#     query heads  0 1 2   3 4 5   6 7 8
#     KV head        0       1       2
#
# One KV head for each query head is multi-head attention (MHA); one for all is multi-query
# attention (MQA; Shazeer, 2019).
#
# **Predict:** at 512 tokens, how many times fewer scores has the last row than the full square matrix?

# %%
### BEGIN SOLUTION
times_fewer = 256
### END SOLUTION
lab.predict("1.1", times_fewer)

# %% [markdown]
# **Spec.** The full matrix, for all queries at once. You want its last row, without computing the others.


# %%
def spec_attention(q, k, v):
    """q: [T, num_heads, head_dim]; k, v: [T, num_kv_heads, head_dim] → [T, num_heads, head_dim]."""
    T, num_heads, head_dim = q.shape
    out = torch.zeros_like(q)
    for head in range(num_heads):
        kv_head = head // (num_heads // k.shape[1])
        scores = q[:, head] @ k[:, kv_head].T / head_dim**0.5  # [T, T]
        later = torch.ones(T, T, dtype=torch.bool).triu(1)
        out[:, head] = scores.masked_fill(later, float("-inf")).softmax(-1) @ v[:, kv_head]
    return out


# %% tags=["solve:1.1"]
def attention_one_step(q, k, v):
    """Attention of the newest token over all tokens so far, itself included.

    q: [num_heads, head_dim]; k, v: [context_len, num_kv_heads, head_dim] → [num_heads, head_dim]
    No loop over tokens, and no ready-made attention from torch.
    """
    ### BEGIN SOLUTION
    num_heads, head_dim = q.shape
    num_kv_heads = k.shape[1]
    q = q.reshape(num_kv_heads, num_heads // num_kv_heads, head_dim)  # [kv_head, group, dim]
    scores = torch.einsum("ngd,tnd->ngt", q, k) / head_dim**0.5
    out = torch.einsum("ngt,tnd->ngd", scores.softmax(-1), v)
    return out.reshape(num_heads, head_dim)
    ### END SOLUTION


# %% tags=["check:1.1"]
lab.check(attention_one_step)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# No mask is needed: the newest token may see everything. Write it for one KV head for each query
# head first.
#
# <details><summary>Hint 2: the key line</summary>
#
# Heads that share a KV head are neighbours, so a reshape of `q` to [num_kv_heads, group, head_dim]
# brings them together. Nothing has to be repeated.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `scores = einsum("ngd,tnd->ngt", grouped q, k)`, divide by √head_dim, softmax over t, then
# `einsum("ngt,tnd->ngd", weights, v)`, and back to [num_heads, head_dim].
# </details></details></details>

# %% [markdown]
# Asked for every row, your function gives the whole matrix. `causal_attention`, which you use for prompts
# from here on, gives the same in one go ([dense.py](../minivllm/attention/dense.py)).

# %%
attention_one_step = lab.part("1.1")
q, k, v = (torch.randn(40, heads, 64) for heads in (9, 3, 3))
rows = torch.stack([attention_one_step(q[t], k[: t + 1], v[: t + 1]) for t in range(40)])
print("row by row = spec:", torch.allclose(rows, spec_attention(q, k, v), atol=1e-4))
print("row by row = causal_attention:", torch.allclose(rows, causal_attention(q, k, v), atol=1e-4))
lab.compare("1.1", (512 * 512) // 512)

# %% [markdown]
# Against the causal triangle alone it is half of that. Which of the two a kernel really computes
# depends on whether it skips the part that is masked.
#
# ## 1.2 Generation without a cache · ●○○ · 15 min · core
#
# This is the baseline that you are going to beat, and the judge of everything after it: a cache is right
# when its tokens are these. **Greedy**: the next token is the one with the largest logit.
#
# **Predict:** the seconds that 16, 32 and 64 new tokens will take here, after our prompt of 15
# tokens. The picture above has what you need.

# %%
### BEGIN SOLUTION
guess = [0.5, 1.2, 3.0]
### END SOLUTION
lab.predict("1.2", guess)

# %% [markdown]
# **Spec.** The first token, and then the answer to a prompt that is one longer.


# %%
def spec_generate_recompute(model, prompt, n):
    if n == 0:
        return []
    logits = model(prompt, list(range(len(prompt))), lambda layer, q, k, v: causal_attention(q, k, v))
    token = int(logits.argmax())
    return [token] + spec_generate_recompute(model, prompt + [token], n - 1)


# %% tags=["solve:1.2"]
def generate_recompute(model, prompt, n):
    """n greedy tokens after the prompt, computing the whole sequence anew for each. With a loop.

    prompt: list of token ids, left as it is → list of n token ids
    """

    ### BEGIN SOLUTION
    def attend(layer, q, k, v):
        return causal_attention(q, k, v)

    tokens = list(prompt)
    for _ in range(n):
        logits = model(tokens, list(range(len(tokens))), attend)
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]
    ### END SOLUTION


# %% tags=["check:1.2"]
lab.check(generate_recompute)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Each round: call the model on everything, take the best token, put it at the end.
#
# <details><summary>Hint 2: the key line</summary>
#
# Token number i of the sequence has position i. `int(logits.argmax())` is the best token as a plain
# number.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `tokens = list(prompt)`; n times: `tokens.append(int(model(tokens, list(range(len(tokens))),
# attend).argmax()))`; return what lies behind the prompt. `attend(layer, q, k, v)` returns
# `causal_attention(q, k, v)`.
# </details></details></details>

# %% tags=["nbval-ignore-output"]
generate_recompute = lab.part("1.2")
model.calls.clear()
recomputed = generate_recompute(model, prompt, 64)
recompute_calls = list(model.calls)
measured = [round(sum(s for _, s in recompute_calls[:n]), 1) for n in (16, 32, 64)]
lab.compare("1.2", measured)
print(text + tokenizer.decode(recomputed))

# %% [markdown]
# Did the time grow fourfold when n doubled, as "quadratic" promises? Keep your answer until *Measure*.
#
# ## 1.3 The cache · ●●○ · 30 min · core
#
# One piece of memory for one request, **made once**, for as many tokens as the request may ever have:
#
#     [num_layers, 2, max_len, num_kv_heads, head_dim]     2: keys, values
#
# Each layer has a length of its own, since a model call appends to one layer after the other.
#
# **Predict:** the bytes of this cache for SmolLM2, 512 tokens, 4 bytes a number.

# %%
### BEGIN SOLUTION
cache_bytes = 30 * 2 * 512 * 3 * 64 * 4
### END SOLUTION
lab.predict("1.3", cache_bytes)

# %% [markdown]
# **Spec.** It does the right thing with `cat`, and copies all it holds for every token. Yours may
# not: room made in advance is filled in place, and a view is not a copy.


# %%
class spec_KVCache:
    def __init__(self, num_layers, max_len, num_kv_heads, head_dim, dtype=torch.float32, device="cpu"):
        self.max_len = max_len
        self.empty = torch.empty(0, num_kv_heads, head_dim, dtype=dtype, device=device)
        self.layers = [(self.empty, self.empty)] * num_layers

    def append(self, layer, k, v):
        old_k, old_v = self.layers[layer]
        if len(old_k) + len(k) > self.max_len:
            raise ValueError(f"{len(old_k) + len(k)} tokens do not fit into {self.max_len}")
        self.layers[layer] = torch.cat([old_k, k]), torch.cat([old_v, v])

    def view(self, layer):
        return self.layers[layer]

    def clear(self):
        self.layers = [(self.empty, self.empty)] * len(self.layers)


# %% tags=["solve:1.3"]
class ContiguousKVCache:
    """Keys and values of one request, all layers, in one preallocated tensor."""

    def __init__(self, num_layers, max_len, num_kv_heads, head_dim, dtype=torch.float32, device="cpu"):
        """Make the tensor, and a length of 0 for each layer."""
        ### BEGIN SOLUTION
        self.max_len = max_len
        self.data = torch.empty(num_layers, 2, max_len, num_kv_heads, head_dim, dtype=dtype, device=device)
        self.lengths = [0] * num_layers
        ### END SOLUTION

    def append(self, layer, k, v):
        """Store k, v: [num_tokens, num_kv_heads, head_dim] behind what the layer holds.

        ValueError if they do not fit; then nothing is stored."""
        ### BEGIN SOLUTION
        start, end = self.lengths[layer], self.lengths[layer] + k.shape[0]
        if end > self.max_len:
            raise ValueError(f"{end} tokens do not fit into {self.max_len}; make the cache longer")
        self.data[layer, 0, start:end] = k
        self.data[layer, 1, start:end] = v
        self.lengths[layer] = end
        ### END SOLUTION

    def view(self, layer):
        """(k, v) of the layer so far, each [length, num_kv_heads, head_dim]."""
        ### BEGIN SOLUTION
        length = self.lengths[layer]
        return self.data[layer, 0, :length], self.data[layer, 1, :length]
        ### END SOLUTION

    def clear(self):
        """Forget all tokens, keep the memory."""
        ### BEGIN SOLUTION
        self.lengths = [0] * len(self.lengths)
        ### END SOLUTION


# %% tags=["check:1.3"]
lab.check(ContiguousKVCache)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# The tensor never changes its size. All that moves is one number for each layer.
#
# <details><summary>Hint 2: the key line</summary>
#
# New tokens go into the slots from `length` to `length + num_tokens`. Check the end against
# `max_len` before you write, and advance the length after you have written.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `self.data[layer, 0, start:end] = k`, the same with 1 for `v`, `self.lengths[layer] = end`. A view is
# `self.data[layer, 0, :length]` and its sister.
# </details></details></details>

# %%
ContiguousKVCache = lab.part("1.3")


def new_cache(max_len=512):
    return ContiguousKVCache(cfg.num_layers, max_len, cfg.num_kv_heads, cfg.head_dim)


one_token_bytes = cfg.kv_bytes_per_token(4)
print(f"a token takes {one_token_bytes:,} bytes in all layers")
lab.compare("1.3", 512 * one_token_bytes)

# %% [markdown]
# ## 1.4 Generation with a cache · ●●○ · 25 min · core
#
# Now the two come together: one **prefill** call with the whole prompt, then a **decode** call with
# one token at a time. In each layer you append the new keys and values, and let the new queries
# look at all there are. One thing the cache cannot know: which **position** does a new token get?
#
# **Predict:** a *token-forward* is one token going through the model once. How many are there for
# 64 new tokens after a prompt of 15, without a cache and with one?

# %%
### BEGIN SOLUTION
without_cache = 64 * 15 + 64 * 63 // 2
with_cache = 15 + 64 - 1
### END SOLUTION
lab.predict("1.4", [without_cache, with_cache])

# %% [markdown]
# **Spec.** The tokens are those of 1.2, and the cache makes no difference to them.


# %%
def spec_generate_cached(model, prompt, n, cache):
    return spec_generate_recompute(model, prompt, n)


# %% tags=["solve:1.4"]
def generate_cached(model, prompt, n, cache):
    """n greedy tokens after the prompt, each token given to the model once.

    prompt: list of token ids, left as it is; cache: empty, as in 1.3 → list of n token ids
    """

    ### BEGIN SOLUTION
    def attend(layer, q, k, v):
        cache.append(layer, k, v)
        return causal_attention(q, *cache.view(layer))

    output = []
    new, start = list(prompt), 0
    while len(output) < n:
        logits = model(new, list(range(start, start + len(new))), attend)
        start += len(new)
        new = [int(logits.argmax())]
        output += new
    return output
    ### END SOLUTION


# %% tags=["check:1.4"]
lab.check(generate_cached)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# `causal_attention` takes fewer queries than keys: the queries are then the last tokens. So prefill
# and decode can be one loop, in which only the number of new tokens differs.
#
# <details><summary>Hint 2: the key line</summary>
#
# In `attend`: append first, so that a token sees itself; then attention over `cache.view(layer)`. A
# token's position is the number of tokens before it.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `new, start = list(prompt), 0`; n times: call the model with `new` at the positions from `start`,
# advance `start` by `len(new)`, make `new` the one best token, and add it to the output.
# </details></details></details>

# %% [markdown]
# The same prompt as in 1.2, with your cache. Same tokens?

# %%
generate_cached = lab.part("1.4")
model.calls.clear()
cached = generate_cached(model, prompt, 64, new_cache())
cached_calls = list(model.calls)
print("same 64 tokens as without a cache:", cached == recomputed)

# %% [markdown]
# ## Plug in
#
# Your loop serves one request. The engine serves many: it queues, batches, samples, stops, and
# leaves keys and values to a backend. The *contiguous* backend makes one `ContiguousKVCache` for
# each request that it can run at once ([contiguous.py](../minivllm/attention/contiguous.py)), and
# it can be **yours**.

# %%
prompts = [prompt] + [
    tokenizer.encode(line)
    for line in (
        "The capital of France is Paris. The capital of Italy is",
        "def fibonacci(n):\n    if n < 2:\n        return n\n",
        "1, 2, 3, 4, 5,",
    )
]
greedy = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
settings = dict(max_model_len=512, max_num_seqs=4, device="cpu")
llm = lab.engine(attention_backend="contiguous", **settings)
outputs = llm.generate(prompts, greedy, use_tqdm=False)
in_engine = [output.outputs[0].token_ids for output in outputs]

# %% tags=["nbval-ignore-output"]
for tokens, output in zip(prompts, outputs, strict=True):
    print(repr(tokenizer.decode(tokens)), "→", repr(output.outputs[0].text[:70]))

# %%
your_loop = [generate_cached(model, p, 32, new_cache()) for p in prompts]
print("same tokens as your own loop:     ", in_engine == your_loop)
no_cache = [generate_recompute(model, p, 32) for p in prompts]
print("same tokens as without a cache:   ", in_engine == no_cache)
paged = LLM(**settings).generate(prompts, greedy, use_tqdm=False)
print("same tokens as minivllm, paged:   ", in_engine == [o.outputs[0].token_ids for o in paged])
stats = llm.stats()
print(f"free when idle: {stats['num_free_blocks']} of {stats['num_blocks']} caches")

# %% [markdown]
# ## Measure: what the cache saves
#
# `model.calls` has the tokens of every call of the two runs. First the counts, which are exact,
# beside the formulas for a prompt of p tokens.

# %%
p = len(prompt)
print(f"{'n':>4} {'without':>9} {'n·p+n(n−1)/2':>13} {'with':>6} {'p+n−1':>6}")
counts = {}
for n in (1, 2, 4, 8, 16, 32, 64):
    counts[n] = sum(t for t, _ in recompute_calls[:n]), sum(t for t, _ in cached_calls[:n])
    print(f"{n:>4} {counts[n][0]:>9,} {n * p + n * (n - 1) // 2:>13,} {counts[n][1]:>6} {p + n - 1:>6}")
lab.compare("1.4", list(counts[64]))

# %% [markdown]
# Now the seconds of the same calls, beside the counts.

# %% tags=["nbval-ignore-output"]
ns = list(range(1, 65))
figure, (left, right) = style.figure(columns=2)
for number, (label, calls) in enumerate((("without cache", recompute_calls), ("with cache", cached_calls))):
    style.line(left, ns, [sum(t for t, _ in calls[:n]) for n in ns], number, label, markevery=8)
    style.line(right, ns, [sum(s for _, s in calls[:n]) for n in ns], number, label, markevery=8)
left.set(xlabel="new tokens n", ylabel="token-forwards", title="counted")
right.set(xlabel="new tokens n", ylabel="seconds", title="measured", ylim=(0, None))
left.legend()
style.show(figure, "Token-forwards and seconds against new tokens: both grow faster without a cache.")

for label, calls in (("without", recompute_calls), ("with", cached_calls)):
    ms = [1000 * s for _, s in calls]
    print(f"{label:>8} cache: {sum(ms) / 1000:.2f} s in all", end=", ")
    print(f"a token takes {sum(ms[1:9]) / 8:.0f} ms at first, {sum(ms[-8:]) / 8:.0f} ms at last")

# %% [markdown]
# **Explain it, before you unfold.** Token-forwards without a cache grow with the square of n. Why do
# the seconds grow less than that at these n? And why does a decode step, one token, take more than
# 1/15 of the prefill, 15 tokens?
#
# <details><summary>An answer</summary>
#
# A call has a fixed cost: every weight is read from memory, be it for one token or for fifty. While
# reading takes the time, more tokens are nearly free, and larger matrix products run at a better
# rate. Time follows the count only where computing takes longer than reading. The cached way spends
# nearly all its time on reading weights for one token.
# </details>

# %% [markdown]
# ### What the cache does not save
#
# A new token still looks at every earlier one. Count the scores of one head in one layer.


# %%
def scores(p, n, cached):
    """Causal scores that are computed for n tokens after a prompt of p."""
    triangle = [t * (t + 1) // 2 for t in range(p, p + n)]
    return triangle[0] + sum(range(p + 1, p + n)) if cached else sum(triangle)


print(f"{'n':>5} {'without cache':>16} {'with cache':>12}")
before = None
for n in (64, 128, 256, 512, 1024, 2048, 4096):
    now = scores(p, n, False), scores(p, n, True)
    growth = f"   × {now[0] / before[0]:.1f}, × {now[1] / before[1]:.1f}" if before else ""
    print(f"{n:>5} {now[0]:>16,} {now[1]:>12,}{growth}")
    before = now

# %% [markdown]
# Doubling n comes close to 8 times as much without the cache and 4 times as much with it: attention falls
# from O(N³) to O(N²) in total, and stays there. The linear layers fall from O(N²) to O(N). At short
# contexts the linear layers are nearly all of the work, so people say "O(N)". At 100,000 tokens it
# is attention, reading the cache for every token, that a decode step spends its time on.

# %% [markdown]
# ## Measure: what the cache costs
#
# Two tensors a layer, one vector a token and KV head:
#
# **bytes per layer = 2 · seq_len · num_kv_heads · head_dim · bytes per number**
#
# Only the number of *KV* heads counts. Here are SmolLM2 and a model of 80 layers, as they are and as
# they would be with MHA and MQA.


# %%
def kv_bytes_per_layer(seq_len, num_kv_heads, head_dim, dtype_bytes):
    return 2 * seq_len * num_kv_heads * head_dim * dtype_bytes


models = {"SmolLM2-135M": (30, 9, 3, 64, 4), "80 layers, 70 B": (80, 64, 8, 128, 2)}
table = {}
for name, (layers, heads, kv_heads, head_dim, dtype_bytes) in models.items():
    for kind, n in (("MHA", heads), ("GQA", kv_heads), ("MQA", 1)):
        layer = kv_bytes_per_layer(1, n, head_dim, dtype_bytes)
        table[name, kind] = layers * layer
        a_layer, a_token = f"{layer:,} · seq_len bytes a layer", f"{layers * layer:,} a token"
        print(f"{name:<16} {kind} {n:>3} KV heads: {a_layer:>30}, {a_token:>17}")

request = 4096 * table["80 layers, 70 B", "GQA"]
print(f"4,096 tokens, 80 layers, GQA: {request:,} bytes = {request / 2**30:.2f} GiB = {request / 1e9:.2f} GB")

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(columns=2, width=7.5, height=2.8)
for ax, name in zip(axes, models, strict=True):
    for number, kind in enumerate(("MHA", "GQA", "MQA")):
        style.bar(ax, kind, table[name, kind] / 1024, number)
    ax.set(title=name, ylabel="KiB a token")
style.show(figure, "KV bytes a token for MHA, GQA and MQA of two models: fewer KV heads, less memory.")

# %% [markdown]
# **Question.** A blog says that a 4,096-token request of this 80-layer model takes "1.28 GB". Which
# two units does it mix?
#
# <details><summary>An answer</summary>
#
# 1.25 GiB are 1,280 MiB, and 1,280 divided by 1,000 instead of 1,024 reads "1.28": MiB and GB. Keep
# bytes until the end, and divide once.
# </details>

# %% [markdown]
# ## See: memory is the problem now
#
# Your cache reserves `max_len` slots when a request starts. Here are the four requests of *Plug
# in*: what they reserved, what they used. Two questions: what share of the memory is ever used? How
# many requests would fit if each took only what it needs?

# %%
reserved = 512
used = {"ABCD"[i]: len(tokens) + 31 for i, tokens in enumerate(prompts)}  # the 32nd is never stored
print("request  slots reserved  used   KiB reserved    used")
for letter, slots in used.items():
    kib = reserved * one_token_bytes // 1024, slots * one_token_bytes // 1024
    print(f"{letter:<8} {reserved:>14} {slots:>5} {kib[0]:>14,} {kib[1]:>7,}")
print(f"used: {sum(used.values()) / (len(used) * reserved):.1%} of what is reserved")

# %% tags=["nbval-ignore-output"]
figure, (left, right) = style.figure(columns=2)
tokens = list(range(0, 513, 16))
style.line(left, tokens, [t * one_token_bytes / 2**20 for t in tokens], 0, "used", markevery=4)
style.line(left, tokens, [512 * one_token_bytes / 2**20] * len(tokens), 1, "reserved", markevery=4)
left.set(xlabel="tokens of one request", ylabel="MiB", title="one request's cache", ylim=(0, None))
left.legend()
for number, (letter, slots) in enumerate(used.items()):
    style.bar(right, letter, reserved, number, empty=True)
    style.bar(right, letter, slots, number)
right.set(xlabel="request", ylabel="slots", title="grey: reserved, never used")
style.show(
    figure,
    "Left: bytes used grow with the tokens, bytes reserved are the maximum from the start. "
    "Right: four requests, each of which used a small part of its 512 reserved slots.",
)

# %% [markdown]
# ## 1.5 A ragged batch · ●●○ · 20 min · extra
#
# The engine ran your caches one request after the other. One large call is faster, but the requests have
# different lengths. The naive way: put them into one **padded** tensor, as long as the longest, and mask.
#
# The slots behind a length hold whatever was there before. Attention must not notice.
#
# **Predict:** lengths 500, 20, 20, 20. What share of the padded slots is padding?

# %%
### BEGIN SOLUTION
padding_share = 0.7
### END SOLUTION
lab.predict("1.5", padding_share)

# %% [markdown]
# **Spec.** One request after the other, each without its padding.


# %%
def spec_batched_attention(q, k, v, lengths):
    rows = [spec_attention(q[i].expand(n, -1, -1), k[i, :n], v[i, :n])[-1] for i, n in enumerate(lengths)]
    return torch.stack(rows)


# %% tags=["solve:1.5"]
def batched_attention(q, k, v, lengths):
    """One query for each request, all at once; no loop over requests.

    q: [num_seqs, num_heads, head_dim]; k, v: [num_seqs, max_len, num_kv_heads, head_dim], request i
    filling the first lengths[i] slots; lengths: list of numbers ≥ 1 → q's shape
    """
    ### BEGIN SOLUTION
    num_seqs, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[2]
    padding = torch.arange(k.shape[1])[None, :] >= torch.tensor(lengths)[:, None]  # [seq, slot]
    q = q.reshape(num_seqs, num_kv_heads, num_heads // num_kv_heads, head_dim)
    scores = torch.einsum("sngd,stnd->sngt", q, k) / head_dim**0.5
    weights = scores.masked_fill(padding[:, None, None, :], float("-inf")).softmax(-1)
    v = v.masked_fill(padding[:, :, None, None], 0)  # 0 · NaN is NaN
    return torch.einsum("sngt,stnd->sngd", weights, v).reshape(num_seqs, num_heads, head_dim)
    ### END SOLUTION


# %% tags=["check:1.5"]
lab.check(batched_attention)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# It is 1.1 with one more dimension in front, and a mask between the scores and the softmax.
#
# <details><summary>Hint 2: the key line</summary>
#
# `torch.arange(max_len)[None, :] >= torch.tensor(lengths)[:, None]` is true for padding. Such
# scores become −inf.
#
# <details><summary>Hint 3: nearly code</summary>
#
# A weight of 0 times NaN is NaN, and memory that nobody has written may hold NaN: fill the padding
# of `v` with 0 as well, by `v.masked_fill(padding[:, :, None, None], 0)`.
# </details></details></details>

# %%
batched_attention = lab.part("1.5")
lengths = [500, 20, 20, 20]
q = torch.randn(4, 9, 64)
k, v = torch.randn(4, 500, 3, 64), torch.randn(4, 500, 3, 64)
one_by_one = spec_batched_attention(q, k, v, lengths)
print("same as one by one:", torch.allclose(batched_attention(q, k, v, lengths), one_by_one, atol=1e-4))
print(f"slots read: {4 * max(lengths)}, slots needed: {sum(lengths)}")
lab.compare("1.5", 1 - sum(lengths) / (4 * max(lengths)))

# %% [markdown]
# Padding costs reads as well as memory. The engine's batches are ragged instead: tokens of all
# requests lie one after the other, and only attention looks at the borders. That needs attention
# which can find a request's keys wherever they are, and this is lab 02.

# %% [markdown]
# ## Break it
#
# Three faults that people really make. Before you run the cells: which of them still gives fluent text?
#
# - **A.** The length is never advanced: each token overwrites the one before.
# - **B.** Keys are rotated to their positions a second time when they are read.
# - **C.** Appended after attention instead of before: a token does not see itself.


# %%
def generate_broken(fault, n=24):
    cache, seen = new_cache(), 0
    frequencies = rotary_frequencies(cfg.rope, cfg.head_dim)

    def attend(layer, q, k, v):
        if fault == "A" and seen > 0:
            return causal_attention(q, k, v)  # slot 0 again: all that a view of one token can show
        old_k, old_v = cache.view(layer)
        cache.append(layer, k, v)
        all_k, all_v = cache.view(layer)
        if fault == "B":
            cos, sin = rotary_cos_sin(torch.arange(len(all_k)), frequencies, all_k.dtype)
            all_k = rotate(all_k, cos, sin)
        if fault == "C" and seen > 0:
            all_k, all_v = old_k, old_v
        return causal_attention(q, all_k, all_v)

    new, output = list(prompt), []
    while len(output) < n:
        logits = model(new, list(range(seen, seen + len(new))), attend)
        seen += len(new)
        new = [int(logits.argmax())]
        output += new
    return output


# %% tags=["nbval-ignore-output"]
for fault in ("none", "A", "B", "C"):
    broken = generate_broken(fault)
    same = next((i for i, (a, b) in enumerate(zip(broken, cached, strict=False)) if a != b), len(broken))
    print(f"{fault:>4}: first {same:>2} of 24 tokens right  {tokenizer.decode(broken)[:80]!r}")

# %% [markdown]
# Fluent text proves nothing. The test that finds all three is the one you ran: **the same tokens as
# without a cache.**

# %% [markdown]
# ## Interview corner
#
# Say your answer aloud before you unfold.
#
# <details><summary><b>1.</b> What does a KV cache save, and what does it not?</summary>
#
# - Keys and values of earlier tokens, and all of their linear layers: n·p + n(n−1)/2 token-forwards
#   become p + n − 1.
# - Not the look back: n queries over up to p + n keys stay O(N²) in total.
# - Why it is allowed: causal attention, so earlier keys and values never change.
# - Strong: decode then reads all weights for one token, so it is bound by memory bandwidth;
#   batching shares that read.
# </details>

# %% [markdown]
# <details><summary><b>2.</b> 80 layers, 8 KV heads, head_dim 128, 2 bytes: 4,096 tokens take?</summary>
#
# - 2 · 8 · 128 · 2 = 4,096 bytes a token and layer; times 80 and 4,096 gives 1.25 GiB (1.34 GB).
# - Strong: says that query heads do not count, and what MHA with 64 heads would take (8 times as much).
# </details>

# %% [markdown]
# <details><summary><b>3.</b> Why are keys cached after the rotary embedding?</summary>
#
# - A token's position does not change, so its rotation is done once; else it would be redone at
#   every step.
# - Strong: names what it rules out: the cached keys cannot be moved to another position, which
#   matters for prefix caching and for dropping tokens from the middle.
# </details>

# %% [markdown]
# <details><summary><b>4.</b> What breaks if a new token gets position 0 in each decode step?</summary>
#
# - Nothing crashes. Its query and key are rotated as if it stood at the beginning; distances to
#   earlier tokens are wrong, the text degrades. Only a comparison with the uncached run finds it
#   for sure.
# </details>
#
# <details><summary><b>5.</b> What breaks if max_len is reserved for each of 256 requests?</summary>
#
# - Memory: most of it is reserved and never used (you measured the share), so few requests run at
#   once, and the weights are read for few tokens. That is **internal fragmentation**.
# - Strong: pieces of different lengths leave holes as well (external fragmentation); paging answers both.
# </details>

# %%
lab.progress()

# %% [markdown]
# ## What you built, and where it lives
#
# - Your parts: `my_engine/`. Minivllm's: [contiguous.py](../minivllm/attention/contiguous.py),
# [dense.py](../minivllm/attention/dense.py), [naive.py](../minivllm/course/reference/naive.py).
# - The engine has no prefill and no decode: a request's computed tokens catch up with its known ones
# ([request.py](../minivllm/request.py)).
#
# **vLLM** keeps no contiguous cache: blocks of 16 tokens, found through a table (lab 02).
# **SGLang** gives out token slots from one pool, and finds shared prefixes in a radix tree (lab
# 06).
#
# **Read on:** Shazeer, *Fast Transformer Decoding* (2019); Ainslie et al., *GQA* (2023); Pope et
# al., *Efficiently Scaling Transformer Inference* (2022); Kwon et al., *PagedAttention* (2023).
