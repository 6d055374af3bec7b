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
# # 00 · Inference is not training
#
# What limits a language model that answers people: its arithmetic, or its memory? You count both, for
# a model that you run and for one that you could never afford, and hold the counts against the clock.
#
# **Afterwards you can** say why reading a prompt and writing an answer are two different programs, read
# a roofline, and size the memory of a deployment on paper.
#
# **Core:** 0.1 – 0.4, about 75 minutes. **Extra:** 0.5 and *Break it*, 20 minutes.

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
from dataclasses import replace
from unittest.mock import patch

import torch

from minivllm import LLM, SamplingParams, course
from minivllm.attention.dense import causal_attention
from minivllm.executor.cost import forward_cost
from minivllm.executor.hardware import A100, H100, L4, this_machine
from minivllm.model.config import ModelConfig
from minivllm.model.linear import Linear
from minivllm.viz import style
from minivllm.viz.roofline import Point, Roofline

lab = course.open(0)

# %% [markdown]
# ## The pain
#
# A model answers in two phases. It reads your whole prompt in one call, a **forward**: that is
# **prefill**, and gives the first new token. Then it writes one token a forward: **decode**.
#
# Here is SmolLM2, 135 million weights, in the engine of this course: a prompt of 256 tokens, an answer
# of 33.

# %%
llm = LLM(device="cpu", dtype="float32", max_model_len=1024, enable_prefix_caching=False)
cfg = llm.engine.model_config
prompt = list(range(1000, 1256))  # any ids will do: the work is the same
answer = SamplingParams(temperature=0, max_tokens=33, ignore_eos=True)
for _ in range(2):  # the second run counts; the first one warms up
    llm.generate([prompt], answer, use_tqdm=False)
steps = list(llm.trace.steps)[-33:]
tokens = [sum(step.num_scheduled_tokens.values()) for step in steps]
seconds = [step.time_end - step.time_start for step in steps]
print("tokens in each forward:", *tokens)

# %% tags=["nbval-ignore-output"]
decode_seconds = sum(seconds[1:]) / 32
rates = {"prefill": 256 / seconds[0], "decode": 1 / decode_seconds}
for (phase, rate), (n, s) in zip(rates.items(), ((256, seconds[0]), (1, decode_seconds)), strict=True):
    print(f"{phase:>8}: {n:>3} tokens in {1000 * s:>6.1f} ms: {rate:>7.0f} tokens/s")
print(f"prefill is {rates['prefill'] / rates['decode']:.0f} times faster for each token")

figure, axes = style.figure(width=5, height=2.8)
for number, (phase, rate) in enumerate(rates.items()):
    style.bar(axes, phase, rate, number)
axes.set(ylabel="tokens/s")
style.show(figure, "Tokens a second in prefill and in decode: the bar of decode is many times lower.")

# %% [markdown]
# Same weights, same layers, same arithmetic for a token. Where does the time of a decode step go?
#
# ### What training does differently
#
# Training shows the model whole texts, millions of tokens a step, forwards and backwards. It has one
# measure, tokens per second, and arithmetic limits it. Serving meets people:
#
# - **TTFT**, time to first token: how long you stare at nothing. Prefill.
# - **ITL**, inter-token latency: how fast the answer flows. Decode, step by step, since each token needs the
#   one before it.
# - **Throughput**: tokens per second over all users, which pays the bill.
#
# What makes one better often makes another worse.

# %% [markdown]
# ## The idea
#
# A machine computes, so many **FLOP**s a second (floating-point operations: a multiply-add is two), and
# moves bytes between memory and arithmetic, so many a second. Both go on at once, so work takes as
# long as the slower one. Which one that is depends on the work's **arithmetic intensity**: FLOPs for
# each byte that it moves.
#
# The **roofline** (Williams, Waterman and Patterson, 2009) draws the speed that a machine allows. Left of
# the **ridge** you wait for memory, right of it for arithmetic: work is **memory-bound** or
# **compute-bound**.

# %%
print(Roofline([H100, A100, L4]).table())

# %% tags=["nbval-ignore-output"]
Roofline([H100, A100, L4]).show()

# %% [markdown]
# The numbers are those of data sheets ([hardware.py](../minivllm/executor/hardware.py)), for dense
# products of 2-byte numbers. Sheets print twice as much in large letters: that is "with sparsity",
# which you will not have.
#
# ## 0.1 Count a forward · ●●○ · 25 min · core
#
# You count two numbers for a forward. **FLOPs:** 2 for each multiply-add of a matrix product.
# **Bytes:** every weight is read once. Keys and values of the new tokens are written to a cache, then
# attention reads those of the *whole* context from it.
#
# We leave out what is small: norms, rotary, softmax, the embedding's row, activations.

# %% [markdown]
# The sizes are in `cfg`. A layer multiplies each token with `q`, `k`, `v`, `o`, and the `gate`, `up`
# and `down` of the MLP; k and v have `num_kv_heads` heads only. The output layer, the **head**, runs
# for the last token of a request alone.
#
# `context_len` are all tokens that the last one sees, the new ones included. Prefill of p tokens:
# `num_tokens = context_len = p`. Decode at t tokens: `num_tokens = 1`, `context_len = t`. A batch is
# that many requests, all alike, in one forward.
#
# **Predict** the GFLOPs (10⁹) of SmolLM2 for one decode token at a context of 256, and for a prefill of
# 256 tokens. Rule of thumb: 2 FLOPs for each weight and token.

# %%
### BEGIN SOLUTION
gflops = [0.27, 69]
### END SOLUTION
lab.predict("0.1", gflops)

# %% [markdown]
# **Spec.** One matrix product after the other, one query after the other.


# %%
def spec_flops_and_bytes(cfg, num_tokens, context_len, dtype_bytes, batch=1):
    flops = numbers = 0
    wide, narrow = cfg.num_heads * cfg.head_dim, cfg.num_kv_heads * cfg.head_dim
    h, m = cfg.hidden_size, cfg.intermediate_size
    for _layer in range(cfg.num_layers):
        for rows, columns in [(h, wide), (h, narrow), (h, narrow), (wide, h), (h, m), (h, m), (m, h)]:
            numbers += rows * columns  # q k v o gate up down, read once
            flops += batch * num_tokens * 2 * rows * columns
        for _request in range(batch):
            numbers += 2 * narrow * num_tokens  # a key and a value of each new token, written
            numbers += 2 * narrow * context_len  # keys and values of the context, read
            for sees in range(context_len - num_tokens + 1, context_len + 1):  # causal
                for _head in range(cfg.num_heads):
                    flops += 2 * cfg.head_dim * sees  # query times keys
                    flops += 2 * sees * cfg.head_dim  # weights times values
    numbers += h * cfg.vocab_size
    flops += batch * 2 * h * cfg.vocab_size
    return flops, numbers * dtype_bytes


# %% [markdown]
# Yours has no loop over tokens or requests: it is asked for a billion prompts of a million tokens.


# %% tags=["solve:0.1"]
def flops_and_bytes(cfg, num_tokens, context_len, dtype_bytes, batch=1):
    """(FLOPs, bytes moved) of one forward of `batch` requests that are all alike.

    num_tokens: new tokens of each request; context_len: all of its tokens that the last one sees;
    dtype_bytes: bytes of a number, be it a weight, a key or a value
    """
    ### BEGIN SOLUTION
    wide, narrow = cfg.num_heads * cfg.head_dim, cfg.num_kv_heads * cfg.head_dim
    layer = cfg.hidden_size * (2 * wide + 2 * narrow + 3 * cfg.intermediate_size)
    head = cfg.hidden_size * cfg.vocab_size
    pairs = num_tokens * (context_len - num_tokens) + num_tokens * (num_tokens + 1) // 2
    flops = cfg.num_layers * (2 * layer * num_tokens + 4 * wide * pairs) + 2 * head
    weights = cfg.num_layers * layer + head
    cached = cfg.num_layers * 2 * narrow * (num_tokens + context_len)
    return batch * flops, (weights + batch * cached) * dtype_bytes
    ### END SOLUTION


# %% tags=["check:0.1"]
lab.check(flops_and_bytes)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Three kinds of terms: weights of a layer, the head, attention. Which are each token's, each
# request's, or shared by all? Begin with the weights of one layer.
#
# <details><summary>Hint 2: the key line</summary>
#
# Pairs of a query and a key it sees: num_tokens · (context_len − num_tokens) before the new tokens,
# and num_tokens · (num_tokens + 1) / 2 among them. A pair takes 4 · head_dim FLOPs a head.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `layer = hidden_size * (2*wide + 2*narrow + 3*intermediate_size)`. FLOPs: `batch * (num_layers *
# (2*layer*num_tokens + 4*wide*pairs) + 2*head)`. Numbers that move: `num_layers*layer + head +
# batch*num_layers*2*narrow*(num_tokens + context_len)`.
# </details></details></details>

# %% [markdown]
# Is it true? Count while the real model runs: every matrix product with weights goes through
# [linear.py](../minivllm/model/linear.py), and attention is ours to watch.

# %%
flops_and_bytes = lab.part("0.1")
decoder, counted = llm.engine.executor.model, 0
multiply = Linear.__call__


def counting(linear, x):
    global counted
    counted += 2 * len(x) * linear.in_features * linear.out_features
    return multiply(linear, x)


def counting_attention(layer, q, k, v):
    global counted
    num_tokens, num_heads, head_dim = q.shape
    counted += sum(4 * head_dim * num_heads * sees for sees in range(1, num_tokens + 1))
    return causal_attention(q, k, v)


with torch.inference_mode(), patch.object(Linear, "__call__", counting):
    hidden = decoder.hidden(torch.tensor(prompt), torch.arange(256), counting_attention)
    decoder.logits(hidden[-1:])
prefill, one_token = flops_and_bytes(cfg, 256, 256, 4), flops_and_bytes(cfg, 1, 256, 4)
print(f"FLOPs of 256 tokens, counted while running: {counted:,}; by your function: {prefill[0]:,}")
lab.compare("0.1", [round(one_token[0] / 1e9, 3), round(prefill[0] / 1e9, 1)])

# %% [markdown]
# Why is the prefill less than 256 times a token? The head ran once.
#
# Now what is moved for it, with 4-byte numbers as on this CPU.

# %%
print(f"{'':<22} {'GFLOP':>7} {'MB':>7} {'FLOPs a byte':>13}")
for label, (flops, num_bytes) in (("prefill of 256 tokens", prefill), ("decode of one token", one_token)):
    print(f"{label:<22} {flops / 1e9:>7.2f} {num_bytes / 1e6:>7.0f} {flops / num_bytes:>13.2f}")

# %% [markdown]
# That is the whole secret: a decode step moves nearly the same bytes as a prefill, for a fraction of the
# arithmetic.
#
# ## 0.2 Which bound? · ●○○ · 15 min · core
#
# Now the roofline as a class. Computing and moving overlap perfectly, as they never quite do: `seconds`
# is a **floor**, the least time that the work can take.
#
# **Predict.** Llama 3.1 with 8 billion weights decodes on an H100, 2 bytes a number. A batch shares the
# read of the weights. From which batch on is the step compute-bound, if each request has a context of
# 1 token? And of 2,048 tokens? Type 0 for "never".

# %%
### BEGIN SOLUTION
turning_batches = [295, 0]
### END SOLUTION
lab.predict("0.2", turning_batches)

# %% [markdown]
# **Spec.** The machine, tick by tick.


# %%
def spec_seconds(flops, num_bytes, gpu, tick=1e-6):
    seconds = 0
    while flops > 0 or num_bytes > 0:  # it is done when both are done
        flops -= gpu.flops * tick
        num_bytes -= gpu.bandwidth * tick
        seconds += tick
    return seconds


# %% tags=["solve:0.2"]
class Cost:
    """What some work computes (FLOPs) and moves (bytes)."""

    def __init__(self, flops, num_bytes):
        ### BEGIN SOLUTION
        self.flops = flops
        self.num_bytes = num_bytes
        ### END SOLUTION

    def arithmetic_intensity(self):
        """FLOPs a byte."""
        ### BEGIN SOLUTION
        return self.flops / self.num_bytes
        ### END SOLUTION

    def is_compute_bound(self, gpu):
        """True if computing takes at least as long as moving. gpu.flops: FLOP/s; gpu.bandwidth: bytes/s."""
        ### BEGIN SOLUTION
        return self.flops / gpu.flops >= self.num_bytes / gpu.bandwidth
        ### END SOLUTION

    def seconds(self, gpu):
        """The least time: both at once, until the later one is done."""
        ### BEGIN SOLUTION
        return max(self.flops / gpu.flops, self.num_bytes / gpu.bandwidth)
        ### END SOLUTION


# %% tags=["check:0.2"]
lab.check(Cost)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Two times, each a quantity divided by a speed. Everything follows from them.
#
# <details><summary>Hint 2: the key line</summary>
#
# Computing takes flops / gpu.flops, moving num_bytes / gpu.bandwidth. They overlap: the longer one
# counts, not the sum.
#
# <details><summary>Hint 3: nearly code</summary>
#
# Compute-bound: `self.flops / gpu.flops >= self.num_bytes / gpu.bandwidth`. Seconds: `max` of the same
# two.
# </details></details></details>

# %%
Cost = lab.part("0.2")
llama_8b = ModelConfig.from_dict(
    dict(
        architectures=["LlamaForCausalLM"],
        num_hidden_layers=32,
        hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
    )
)


def decode(cfg, context_len, batch):
    return Cost(*flops_and_bytes(cfg, 1, context_len, 2, batch))


def turning_batch(cfg, context_len, gpu, most=20_000):
    """The smallest batch whose decode step is compute-bound; 0 if no batch up to `most` is."""
    batches = range(1, most + 1)
    return next((b for b in batches if decode(cfg, context_len, b).is_compute_bound(gpu)), 0)


contexts = (1, 128, 256, 512, 2048)
print("decode of Llama 8B turns compute-bound at batch (0: never)")
print(f"{'context':<16}" + "".join(f"{context:>7,}" for context in contexts))
for gpu in (H100, A100, L4):
    print(f"{gpu.name:<16}" + "".join(f"{turning_batch(llama_8b, c, gpu):>7,}" for c in contexts))
lab.compare("0.2", [turning_batch(llama_8b, c, H100) for c in (1, 2048)])

# %% [markdown]
# With hardly any context, intensity is about the batch: one read of a weight serves one token of each
# request. So the turning point lies near the ridge. What spoils it when contexts grow? Look at intensities.

# %%
batches = (1, 8, 64, 512, 4096)
print("FLOPs a byte in decode, Llama 8B")
print(f"{'context':>8}" + "".join(f"{f'batch {batch:,}':>13}" for batch in batches))
for context in (1, 256, 2048, 16384):
    row = [decode(llama_8b, context, batch).arithmetic_intensity() for batch in batches]
    print(f"{context:>8,}" + "".join(f"{intensity:>13.1f}" for intensity in row))

# %% [markdown]
# **Explain it, before you unfold.** Why does intensity stop growing with the batch? Towards what?
#
# <details><summary>An answer</summary>
#
# Weights are shared by the batch, keys and values are not: each request brings its own, and they are
# read for its one token only. Attention alone does 4 · num_heads · head_dim FLOPs for each cached token and
# layer, and reads 2 · num_kv_heads · head_dim numbers of 2 bytes: num_heads / num_kv_heads = 4 FLOPs a byte,
# whatever the batch. The longer the context, the nearer the whole step is to that. So decode at
# long contexts is memory-bound at *any* batch.
# </details>

# %% tags=["nbval-ignore-output"]
steps = {
    "decode, batch 1": decode(llama_8b, 2048, 1),
    "batch 64": decode(llama_8b, 2048, 64),
    "batch 64, context 1": decode(llama_8b, 1, 64),
    "prefill of 2,048": Cost(*flops_and_bytes(llama_8b, 2048, 2048, 2)),
}
points = [Point(label, H100, cost.arithmetic_intensity()) for label, cost in steps.items()]
picture = Roofline([H100], points)
picture.show()
print(picture.table())

# %% [markdown]
# ## 0.3 What a token leaves behind · ●○○ · 10 min · core
#
# Those keys and values are the **KV cache**. It decides how large a batch can be at all, since it must
# lie in the memory that the weights leave free.
#
# **Predict:** the bytes that one token leaves in a model of 80 layers, 64 query heads, 8 KV heads,
# head_dim 128, with 2-byte numbers.

# %%
### BEGIN SOLUTION
token_bytes = 2 * 80 * 8 * 128 * 2
### END SOLUTION
lab.predict("0.3", token_bytes)

# %% [markdown]
# **Spec.** Put down every number of it.


# %%
def spec_kv_bytes_per_token(cfg, dtype_bytes):
    total = 0
    for _layer in range(cfg.num_layers):
        for _kind in ("key", "value"):
            for _kv_head in range(cfg.num_kv_heads):
                for _number in range(cfg.head_dim):
                    total += dtype_bytes
    return total


# %% tags=["solve:0.3"]
def kv_bytes_per_token(cfg, dtype_bytes):
    """Bytes that one token takes in the KV cache, all layers together. In one expression, no loop."""
    ### BEGIN SOLUTION
    return 2 * cfg.num_layers * cfg.num_kv_heads * cfg.head_dim * dtype_bytes
    ### END SOLUTION


# %% tags=["check:0.3"]
lab.check(kv_bytes_per_token)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Multiply what the four loops and the last line count.
#
# <details><summary>Hint 2: the key line</summary>
#
# Queries are not kept. Only `num_kv_heads` counts, not `num_heads`.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `2 * cfg.num_layers * cfg.num_kv_heads * …`
# </details></details></details>

# %% [markdown]
# In **grouped-query attention** (GQA; Ainslie et al., 2023) several query heads share a KV head. One KV
# head for each query head is multi-head attention (MHA); one for all is multi-query attention (MQA;
# Shazeer, 2019). The same model in all three, with requests of 4,096 tokens:

# %%
kv_bytes_per_token = lab.part("0.3")
llama_70b = ModelConfig.from_dict(
    dict(
        architectures=["LlamaForCausalLM"],
        num_hidden_layers=80,
        hidden_size=8192,
        intermediate_size=28672,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=128256,
    )
)
print(f"{'80 layers':<10} {'bytes a token':>14} {'4,096 tokens, bytes':>20} {'GiB':>6} {'GB':>6}")
for kind, heads in (("MHA", 64), ("GQA", 8), ("MQA", 1)):
    token = kv_bytes_per_token(replace(llama_70b, num_kv_heads=heads), 2)
    request = 4096 * token
    print(f"{kind} {heads:>2} {token:>18,} {request:>20,} {request / 2**30:>6.2f} {request / 1e9:>6.2f}")
lab.compare("0.3", kv_bytes_per_token(llama_70b, 2))

# %% [markdown]
# GiB are 2³⁰ bytes, GB are 10⁹. Keep bytes until the end, and divide once.
#
# ## 0.4 How many at once? · ●○○ · 20 min · core
#
# The budget of every deployment: memory, less the weights, divided by what a request takes at its full
# length. Requests that fit are the batch, and the batch is what the weights' read is shared by.
#
# **Predict:** the 80-layer model's weights take 42 · 10⁹ of 80 · 10⁹ bytes. How many requests of 4,096
# tokens run at once with GQA, and how many if the model had MHA?

# %%
### BEGIN SOLUTION
at_once = [28, 3]
### END SOLUTION
lab.predict("0.4", at_once)

# %% [markdown]
# **Spec.** Admit one after the other while there is room.


# %%
def spec_max_concurrent_requests(gpu_bytes, weight_bytes, cfg, seq_len, dtype_bytes=2):
    free, running = gpu_bytes - weight_bytes, 0
    while free >= seq_len * spec_kv_bytes_per_token(cfg, dtype_bytes):
        free -= seq_len * spec_kv_bytes_per_token(cfg, dtype_bytes)
        running += 1
    return running


# %% tags=["solve:0.4"]
def max_concurrent_requests(gpu_bytes, weight_bytes, cfg, seq_len, dtype_bytes=2):
    """Requests of seq_len tokens whose KV fits beside the weights: a whole number, 0 if there is no room.

    dtype_bytes: bytes of a key's or value's number
    """
    ### BEGIN SOLUTION
    request = seq_len * kv_bytes_per_token(cfg, dtype_bytes)
    return max(0, int((gpu_bytes - weight_bytes) // request))
    ### END SOLUTION


# %% tags=["check:0.4"]
lab.check(max_concurrent_requests)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# A difference and a division that rounds down. Use your 0.3.
#
# <details><summary>Hint 2: the key line</summary>
#
# `//` rounds down, towards minus infinity: weights that do not fit would give a negative number of
# requests.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `max(0, (gpu_bytes - weight_bytes) // (seq_len * kv_bytes_per_token(cfg, dtype_bytes)))`
# </details></details></details>

# %%
max_concurrent_requests = lab.part("0.4")
with_mha = replace(llama_70b, num_kv_heads=64)
fit = [max_concurrent_requests(80 * 10**9, 42 * 10**9, model, 4096) for model in (llama_70b, with_mha)]
lab.compare("0.4", fit)

# %% [markdown]
# ### Three slips
#
# You read in a blog: *"Llama 70B, 80 layers with 8 KV heads of 128, everything in 16 bits, takes 42 GB
# of an 80 GB GPU. That leaves 38 GB for the KV cache. A request of 4,096 tokens takes 1.28 GB, so about 30
# fit."*
#
# Every number in it has a reason, and hardly one is right. Compute, with what you have built: a
# request in GB (10⁹); how many fit in 38 GB; how many in 38 GiB; and the bits for each of 70 · 10⁹ weights
# that 42 GB amount to.

# %%
### BEGIN SOLUTION
request_gb = round(4096 * kv_bytes_per_token(llama_70b, 2) / 1e9, 2)
in_38_gb = max_concurrent_requests(38 * 10**9, 0, llama_70b, 4096)
in_38_gib = max_concurrent_requests(38 * 2**30, 0, llama_70b, 4096)
bits_a_weight = 42e9 * 8 / 70e9
### END SOLUTION
lab.predict("0.4 slips", [request_gb, in_38_gb, in_38_gib, bits_a_weight])

# %% [markdown]
# <details><summary>The three slips</summary>
#
# 1. **1.28 GB mixes units.** It is 1.25 GiB or 1.34 GB. 1.25 GiB are 1,280 MiB; divided by 1,000
#    that reads "1.28".
# 2. **"About 30" is 28 in 38 · 10⁹ bytes.** It is 30 only in 38 GiB. (38 / 1.28 is 29.7: one slip hides
#    the other.)
# 3. **42 GB for 70 B weights are 4.8 bits a weight**, not 16: a model quantized to 4 bits and some
#    scales. In 16 bits the weights alone take 140 GB, and no request fits.
# </details>

# %%
request = 4096 * kv_bytes_per_token(llama_70b, 2)
in_38 = [max_concurrent_requests(38 * unit, 0, llama_70b, 4096) for unit in (10**9, 2**30)]
lab.compare("0.4 slips", [round(request / 1e9, 2), *in_38, round(42e9 * 8 / 70e9, 1)])
weights_16_bit = 2 * llama_70b.num_parameters()
print(f"weights in 16 bits: {weights_16_bit:,} bytes")
print("requests on one 80 GB GPU: ", max_concurrent_requests(80 * 10**9, weights_16_bit, llama_70b, 4096))
print("requests on two, KV split: ", max_concurrent_requests(160 * 10**9, weights_16_bit, llama_70b, 4096))

# %% [markdown]
# **See.** Requests that fit against their length, same 38 GB. Two questions: at which length does MHA
# serve one request only? What does halving the length buy?

# %%
lengths = [2**n for n in range(9, 18)]
budgets = {
    f"{kind}, {heads} KV heads": [
        max_concurrent_requests(80 * 10**9, 42 * 10**9, replace(llama_70b, num_kv_heads=heads), n)
        for n in lengths
    ]
    for kind, heads in (("MHA", 64), ("GQA", 8), ("MQA", 1))
}
print(f"{'tokens a request':<18}" + "".join(f"{n:>8,}" for n in lengths))
for label, counts in budgets.items():
    print(f"{label:<18}" + "".join(f"{count:>8,}" for count in counts))

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(width=7)
for number, (label, counts) in enumerate(budgets.items()):
    some = [(n, count) for n, count in zip(lengths, counts, strict=True) if count]
    style.line(axes, *zip(*some, strict=True), number, label)
axes.set(xlabel="tokens a request", ylabel="requests at once", ylim=(0.8, None))
axes.set_xscale("log", base=2)
axes.set_yscale("log", base=10)
axes.set_xticks(lengths, [f"{n:,}" for n in lengths])
axes.legend()
style.show(figure, "Requests at once against their length: lines that fall, MHA lowest, MQA highest.")

# %% [markdown]
# ## Plug in
#
# Does an engine keep to your arithmetic? We give ours 20 MiB for keys and values, in blocks of 16 tokens,
# and send ten requests of 128 tokens. How large is its cache really, and how many run at once?

# %%
llm = decoder = None  # one model in memory is enough
budget, seq_len = 20 * 2**20, 128
num_blocks = budget // (16 * kv_bytes_per_token(cfg, 4))
settings = dict(max_model_len=seq_len, num_gpu_blocks_override=num_blocks, enable_prefix_caching=False)
llm = LLM(device="cpu", dtype="float32", **settings)
decoder = llm.engine.executor.model
cache = llm.engine.executor.backend.data
print(f"the cache: {cache.nbytes:,} bytes; by your 0.3: {num_blocks * 16 * kv_bytes_per_token(cfg, 4):,}")

short_answer = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
prompts = [[1000 + i] * (seq_len - 4) for i in range(10)]
outputs = llm.generate(prompts, short_answer, use_tqdm=False)
most = max(len(step.num_scheduled_tokens) for step in llm.trace.steps)
fit = max_concurrent_requests(budget, 0, cfg, seq_len, 4)
print(f"most requests in one step: {most}; by your 0.4: {fit}")
print(f"all answered: {[len(output.outputs[0].token_ids) for output in outputs] == [4] * 10}")

# %% [markdown]
# The others waited. Which memory goes to whom, and when, is what labs 02 and 04 are about.
#
# ## 0.5 Floors for TTFT and ITL · ●●○ · 15 min · extra
#
# From a model, a GPU and a workload to the latencies that no engine can beat.
#
# - **TTFT:** the prefill of one prompt on an idle GPU.
# - **ITL:** one decode step of `batch` requests that have just finished such a prefill. Each has one
#   new token, and sees `prompt_len + 1` with it.
#
# Numbers take 2 bytes.
#
# **Predict:** TTFT and ITL in milliseconds for Llama 8B on an H100, prompts of 2,048 tokens, batch 32.

# %%
### BEGIN SOLUTION
milliseconds = [33, 7]
### END SOLUTION
lab.predict("0.5", milliseconds)

# %% [markdown]
# **Spec.** The specs of 0.1 and 0.2, one after the other.


# %%
def spec_ttft_and_itl_floor(cfg, gpu, prompt_len, batch):
    ttft = spec_seconds(*spec_flops_and_bytes(cfg, prompt_len, prompt_len, 2), gpu)
    itl = spec_seconds(*spec_flops_and_bytes(cfg, 1, prompt_len + 1, 2, batch), gpu)
    return ttft, itl


# %% tags=["solve:0.5"]
def ttft_and_itl_floor(cfg, gpu, prompt_len, batch):
    """(TTFT, ITL) in seconds, each as long as the roofline says at least. With your 0.1 and 0.2."""
    ### BEGIN SOLUTION
    prefill = Cost(*flops_and_bytes(cfg, prompt_len, prompt_len, 2))
    decode_step = Cost(*flops_and_bytes(cfg, 1, prompt_len + 1, 2, batch))
    return prefill.seconds(gpu), decode_step.seconds(gpu)
    ### END SOLUTION


# %% tags=["check:0.5"]
lab.check(ttft_and_itl_floor)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Two forwards, and the seconds of each.
#
# <details><summary>Hint 2: the key line</summary>
#
# Prefill: num_tokens = context_len = prompt_len, one request. Decode: num_tokens = 1, context_len =
# prompt_len + 1, the whole batch.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `Cost(*flops_and_bytes(cfg, prompt_len, prompt_len, 2)).seconds(gpu)`, and the same for the decode
# step with `batch` as the last argument.
# </details></details></details>

# %%
ttft_and_itl_floor = lab.part("0.5")
print("Llama 8B, 2 bytes a number, milliseconds at least")
print(f"{'':<16} {'prompt':>7} {'batch':>6} {'TTFT':>8} {'ITL':>7} {'tokens/s, all':>14}")
for gpu in (H100, A100, L4):
    for prompt_len, batch in ((256, 1), (2048, 1), (2048, 32), (8192, 32)):
        ttft, itl = ttft_and_itl_floor(llama_8b, gpu, prompt_len, batch)
        head = f"{gpu.name:<16} {prompt_len:>7,} {batch:>6}"
        print(f"{head} {1000 * ttft:>8.1f} {1000 * itl:>7.2f} {batch / itl:>14,.0f}")
lab.compare("0.5", [round(1000 * s, 1) for s in ttft_and_itl_floor(llama_8b, H100, 2048, 32)])

# %% [markdown]
# **Explain it, before you unfold.** What does batch 32 cost the one user, what does it bring to all? And
# can the L4 serve the last line at all?
#
# <details><summary>An answer</summary>
#
# ITL grows far less than the batch, since the weights are read once; all together get many times more
# tokens. That is why servers batch. The price is paid in keys and values, more with every token of
# context. On the L4, ask `max_concurrent_requests(L4.memory, 2 * llama_8b.num_parameters(), llama_8b,
# 8192)`: the time has a floor, but the memory says no first.
# </details>

# %% [markdown]
# ## Measure: this machine
#
# Data sheets do not know your machine, so measure its roof: the best rate of a few matrix products, and
# of copying large tensors. Then forwards of SmolLM2 with 1 to 512 new tokens.

# %% tags=["nbval-ignore-output"]
here = this_machine()
print(Roofline([here]).table())

# %% [markdown]
# **Predict:** from how many tokens a forward on is this machine compute-bound? Intensity in fp32 is about
# half the number of tokens.

# %% tags=["nbval-ignore-output"]
### BEGIN SOLUTION
turning_tokens = round(2 * here.ridge)
### END SOLUTION
lab.predict("measure", turning_tokens)


# %% tags=["nbval-ignore-output"]
@torch.inference_mode()
def forward_seconds(num_tokens):
    """The fastest of a few prefills of num_tokens."""
    token_ids, positions, best = torch.arange(num_tokens), torch.arange(num_tokens), float("inf")
    for _ in range(16 if num_tokens <= 32 else 4):
        start = time.perf_counter()
        hidden = decoder.hidden(token_ids, positions, lambda _layer, q, k, v: causal_attention(q, k, v))
        decoder.logits(hidden[-1:])
        best = min(best, time.perf_counter() - start)
    return best


sizes = [2**n for n in range(10)]
costs = {n: Cost(*flops_and_bytes(cfg, n, n, 4)) for n in sizes}
measured = {n: forward_seconds(n) for n in sizes}
print(f"{'tokens':>6} {'FLOPs a byte':>13} {'bound':>8} {'floor, ms':>10} {'measured':>9} {'ms a token':>11}")
for n, cost in costs.items():
    bound = "compute" if cost.is_compute_bound(here) else "memory"
    floor, ms = 1000 * cost.seconds(here), 1000 * measured[n]
    print(f"{n:>6} {cost.arithmetic_intensity():>13.2f} {bound:>8} {floor:>10.1f} {ms:>9.1f} {ms / n:>11.2f}")
bound_by_compute = (n for n in range(1, 2000) if Cost(*flops_and_bytes(cfg, n, n, 4)).is_compute_bound(here))
lab.compare("measure", next(bound_by_compute, 0))

# %% [markdown]
# ## See
#
# The same forwards as points, by their number of tokens, beside the roofs of two GPUs. Filled is
# measured; hollow is counted, and lies on the roof.
#
# Two questions: up to which point are more tokens nearly free? And where does the gap between point and
# roof come from at the left end?

# %% tags=["nbval-ignore-output"]
points = []
for n, cost in costs.items():
    flops, _ = flops_and_bytes(cfg, n, n, 4)
    points.append(Point(f"{n}", here, cost.arithmetic_intensity(), flops / measured[n]))
for n in (1, 512):  # counted only, with 2-byte numbers
    intensity = Cost(*flops_and_bytes(cfg, n, n, 2)).arithmetic_intensity()
    points += [Point(f"{n}", gpu, intensity) for gpu in (H100, A100)]
picture = Roofline([H100, A100, here], points)
picture.show()
print(picture.table())

# %% [markdown]
# <details><summary>An answer</summary>
#
# Along the slope the time of a forward hardly changes, so each further token is nearly free; it ends
# about where the slope does. A point under the roof waits for something that we did not count: hundreds of
# small operations a forward, each started from Python, activations, and products too thin to reach
# the best rate. A point above it was luckier than the measurement of the roof: something else ran then. A
# floor is what you compare with, not what you get.
# </details>
#
# Where is your decode point of *The pain* in this picture? At the far left. A batch moves it to the
# right, and that is what the rest of this course is for.

# %% [markdown]
# ## Break it
#
# Squeeze the numbers: weights in 4 bits, keys and values in 8, arithmetic in 16 bits as before.
#
# **Before you run it:** which of the four rows gets faster by small weights, which by a small cache,
# which by neither?
#
# `forward_cost` is minivllm's counter ([cost.py](../minivllm/executor/cost.py)): any mixture of
# (new tokens, context) in a step, and a size of its own for the numbers of weights and cache.

# %%
work = {
    "decode, batch 1, context 256": [(1, 256)],
    "decode, batch 64, context 256": [(1, 256)] * 64,
    "decode, batch 64, context 8,192": [(1, 8192)] * 64,
    "prefill of 2,048 tokens": [(2048, 2048)],
}
formats = {"16 / 16": (2, 2), "4 / 16": (0.5, 2), "16 / 8": (2, 1), "4 / 8": (0.5, 1)}
print("Llama 8B on an H100: milliseconds at least, by bits of weights / cache (c: compute-bound)")
print(" " * 32 + "".join(f"{label:>10}" for label in formats))
for label, chunks in work.items():
    row = [forward_cost(llama_8b, chunks, *numbers) for numbers in formats.values()]
    marks = [
        f"{1000 * cost.seconds(H100):>8.2f}{' c' if cost.is_compute_bound(H100) else '  '}" for cost in row
    ]
    print(f"{label:<32}" + "".join(marks))

# %% [markdown]
# Small numbers move the **memory** bound. They help who waits for it, with the part that he waits for:
# weights at batch 1, the cache at long contexts. Prefill waits for arithmetic, and unpacking 4 bits
# even costs some. The flat roof moves only where the arithmetic itself is done in smaller numbers.
#
# A second fault, found in many calculators: forget the context. Which of the three decode steps do
# you then get wrong, and by how much?

# %%
for label, chunks in list(work.items())[:3]:
    whole, blind = forward_cost(llama_8b, chunks), forward_cost(llama_8b, [(1, 1)] * len(chunks))
    ms, without = 1000 * whole.seconds(H100), 1000 * blind.seconds(H100)
    print(f"{label:<32} {ms:>6.2f} ms, with the context forgotten {without:>6.2f} ms")

# %% [markdown]
# ## Interview corner
#
# Say your answer aloud before you unfold.
#
# <details><summary><b>1.</b> Why are prefill and decode different programs?</summary>
#
# - Same weights, same layers. Prefill: many tokens for one read of the weights, compute-bound for a long
#   prompt. Decode: one token a request, memory-bound; a batch shares the weights, not the KV cache.
# - So TTFT follows FLOPs and prompt length, ITL follows bytes: weights + batch · context.
# - Strong: names the ridge (FLOP/s over bytes/s, near 300 for an H100), and what follows: chunked
#   prefill to mix both in a step, or disaggregation, to give each its own machines.
# </details>

# %% [markdown]
# <details><summary><b>2.</b> At which batch does decode on an H100 turn compute-bound?</summary>
#
# - Weights alone: intensity in 2-byte numbers is about the batch, so near 295.
# - Attention reads each request's own cache at num_heads / num_kv_heads FLOPs a byte, far below the ridge:
#   beyond some hundred tokens of context an 8 B model never turns.
# - Strong: the batch must fit first; a long context takes the memory before the ridge is reached.
# </details>

# %% [markdown]
# <details><summary><b>3.</b> Size it: our 80-layer 70 B model in 16 bits, 100 requests of 4,096.</summary>
#
# - Weights 140 GB; 327,680 bytes a token, 1.34 GB a request, 134 GB for 100: 274 GB and something for
#   activations. Four 80 GB GPUs.
# - Strong: keeps GB and GiB apart; says that few requests are at full length, so paging admits more.
# </details>

# %% [markdown]
# <details><summary><b>4.</b> What breaks if you quantize weights to 4 bits for a better TTFT?</summary>
#
# - Nothing breaks, and nothing gets faster: a long prefill is compute-bound, weights are unpacked to 16
#   bits for the arithmetic. Single-stream ITL falls up to fourfold instead, and memory is freed for
#   more requests.
# - Strong: FP8 arithmetic would help TTFT; says at which prompt length the bound changes.
# </details>

# %% [markdown]
# <details><summary><b>5.</b> Training reaches half of a GPU's peak. Why does your server reach 5 %?</summary>
#
# - Training: millions of tokens a step, compute-bound, one goal. Serving: decode left of the ridge, small
#   batches bounded by latency and KV memory, gaps between arrivals.
# - Strong: FLOP utilisation is the wrong measure for decode; compare bytes/s with the bandwidth.
# </details>

# %%
lab.progress()

# %% [markdown]
# ## What you built, and where it lives
#
# - Your parts: `my_engine/`. Minivllm's: [cost.py](../minivllm/executor/cost.py), and machines in
#   [hardware.py](../minivllm/executor/hardware.py). The picture:
#   [roofline.py](../minivllm/viz/roofline.py).
# - The engine makes the same division as your 0.4 when it starts:
#   [assembly.py](../minivllm/assembly.py).
#
# **vLLM** runs one largest forward at start-up, sees what is left of `gpu_memory_utilization`, and prints
# your 0.4 as "maximum concurrency". **SGLang** sets aside `mem_fraction_static` for weights and cache
# together. Both then batch as far as this memory allows.

# %% [markdown]
# **Read on:** Williams, Waterman, Patterson, *Roofline: An Insightful Visual Performance Model* (2009);
# Pope et al., *Efficiently Scaling Transformer Inference* (2022); Kwon et al., *Efficient Memory
# Management for Large Language Model Serving with PagedAttention* (2023).
#
# **Next:** lab 01 writes those keys and values down, and finds out what they save.
