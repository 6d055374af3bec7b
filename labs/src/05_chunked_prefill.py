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
# # 05 · Chunked prefill
#
# Somebody pastes a long document, and everybody else's answer stops. You make this stall visible, cut the
# prompt into chunks that fit beside the others' tokens, and work out how large a chunk should be. Your
# planner then decides, in the engine, who gets how many tokens in each step.
#
# **Afterwards you can** name the rule of stall-free batching, choose a token budget for a latency target
# on paper, and say who pays for it.
#
# **Core:** 5.1 – 5.3, *Plug in*, *Measure*, about 85 minutes. **Extra:** 5.4 and *Break it*, 35 minutes.

# %%
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("minivllm") is None:  # a hosted notebook: install what lies beside labs/
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--editable", ".."], check=True)
    sys.path.insert(0, os.path.abspath(".."))  # this kernel started before it was there

# %%
import math
import random
from bisect import bisect

from minivllm import LLM, Parts, SamplingParams, course
from minivllm.executor.cost import forward_cost
from minivllm.executor.hardware import A100, H100, this_machine
from minivllm.model.config import ModelConfig
from minivllm.viz import style
from minivllm.viz.timeline import TimelineView, compare

lab = course.open(5)

# %% [markdown]
# ## The pain
#
# Six readers, A to F, watch their answers appear. Then G arrives with a prompt of 768 tokens, and wants
# one token for it: "yes" or "no". The engine batches continuously (lab 04): G's prompt joins the next
# step. The **token budget** of a step, `max_num_batched_tokens`, is 2,048 here, so the prompt fits whole.

# %%
rng = random.Random(5)
short_prompts = [[rng.randrange(1000, 40000) for _ in range(16)] for _ in range(6)]
long_prompt = [rng.randrange(1000, 40000) for _ in range(768)]
settings = dict(device="cpu", max_model_len=1024, num_gpu_blocks_override=160, enable_prefix_caching=False)


def serve(llm, budget, num_answer=40):
    """A to F get `num_answer` tokens each; G arrives before step 8. (trace, {request: its tokens})"""
    llm.engine.reconfigure(max_num_batched_tokens=budget)
    answer = SamplingParams(temperature=0, max_tokens=num_answer, ignore_eos=True)
    for name, prompt in zip("ABCDEF", short_prompts, strict=True):
        llm.engine.add_request(prompt, answer, name)
    tokens, num_steps = {}, 0
    while llm.engine.has_unfinished_requests:
        if num_steps == 8:
            llm.engine.add_request(long_prompt, SamplingParams(temperature=0, max_tokens=1), "G")
        for output in llm.engine.step():
            tokens[output.request_id] = output.outputs[0].token_ids
        num_steps += 1
    return llm.trace, tokens


def tokens_of_steps(trace, first, last):
    for step in list(trace.steps)[first : last + 1]:
        long, n = step.num_scheduled_tokens.get("G", 0), sum(step.num_scheduled_tokens.values())
        where = f", of which G's {step.starts['G']} to {step.starts['G'] + long - 1}" if long else ""
        print(f"step {step.index:>2}: {n:>3} tokens{where}")


llm = LLM(**settings)
serve(llm, 2048)  # the first run warms up
whole, whole_tokens = serve(llm, 2048)
tokens_of_steps(whole, 6, 10)

# %% [markdown]
# One step in forty is 129 times as large as the others. Your readers see this:

# %% tags=["nbval-ignore-output"]
view = TimelineView(whole, "the prompt of G is computed whole")
view.show()
print(view.table())

# %% [markdown]
# Everybody waits for G. In a busy service there is always a G.
#
# ## The idea
#
# A prompt need not be computed at once. Its keys and values stay in the cache, so a **chunk** of it can
# be computed now and the next one in the next step, like any other tokens whose turn has come. Attention
# of a chunk reads what earlier chunks have stored, and gives exactly the same result.

# %% [markdown]
# So give each step a small **token budget**. Decodes take one token each, first; a prompt gets what is
# left. No step is longer than its budget, so no decode ever stalls: **stall-free batching**, by
# Sarathi-Serve (Agrawal et al., 2024). A step that holds both is a **mixed step**.

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(columns=2, width=9, height=2.6)
for axis, chunks, title in (
    (axes[0], [0, 0, 48, 0, 0, 0], "whole"),
    (axes[1], [0, 0, 12, 12, 12, 12], "budget of 16"),
):
    axis.bar(range(6), 4, color=style.PALETTE[5], label="decodes")
    axis.bar(
        range(6), chunks, bottom=4, color=style.PALETTE[0], hatch="//", edgecolor="white", label="prompt"
    )
    axis.set(title=title, xlabel="step", ylabel="tokens", ylim=(0, 56))
axes[1].axhline(16, color="black", linestyle="--", linewidth=1)
axes[0].legend(loc="upper right")
style.show(figure, "Tokens a step: one bar of 52 among bars of 4; with a budget, four bars of 16.")

# %% [markdown]
# ## 5.1 How long did they wait? · ●○○ · 15 min · core
#
# Two numbers a request, as its user feels them. **TTFT** is the time from arrival to the first token.
# **ITL**, inter-token latency, is the time between one token and the next; a request of n tokens has n
# − 1 of them.
#
# The engine writes a record of every step: `step.sampled` are the ids of those who got a token in it,
# `step.time_end` is when. A step that computes a chunk gives its request no token.

# %% [markdown]
# **Predict:** in the run above A to F got 40 tokens each, and each of them one in the long step. How many
# ITLs have the six together, and how many of these are stalls?

# %%
### BEGIN SOLUTION
num_itls = 6 * 39
num_stalls = 6
### END SOLUTION
lab.predict("5.1", [num_itls, num_stalls])

# %% [markdown]
# **Spec.** One request, with a stopwatch: the first wait is its TTFT, the others are its ITLs. A trace
# has thousands of steps and hundreds of requests, so yours goes through the steps once, for all of
# them.


# %%
def spec_waits(trace, request_id):
    waits, since = [], trace.requests[request_id].arrival_time
    for step in trace.steps:
        if request_id in step.sampled:
            waits.append(step.time_end - since)
            since = step.time_end
    return waits


print("waits of F, of G:", len(spec_waits(whole, "F")), len(spec_waits(whole, "G")))


# %% tags=["solve:5.1"]
def latencies(trace):
    """{request id: (ttft, itls)} of everybody in trace.requests; seconds, itls is a list.

    trace.requests: {id: record with arrival_time}; trace.steps: records with sampled, a list of ids, and
    time_end. The ttft of a request that has no token yet is None. Go through the steps once.
    """
    ### BEGIN SOLUTION
    since = {name: record.arrival_time for name, record in trace.requests.items()}
    waits = {name: [] for name in since}
    for step in trace.steps:
        for name in step.sampled:
            waits[name].append(step.time_end - since[name])
            since[name] = step.time_end
    return {name: (gaps[0] if gaps else None, gaps[1:]) for name, gaps in waits.items()}
    ### END SOLUTION


# %% tags=["check:5.1"]
lab.check(latencies)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Remember for each request since when it waits: from its arrival, later from its last token.
#
# <details><summary>Hint 2: the key line</summary>
#
# For each step, for each name in `step.sampled`: the wait is `step.time_end - since[name]`, and then
# `since[name] = step.time_end`.
#
# <details><summary>Hint 3: nearly code</summary>
#
# Collect the waits in a list a request. At the end: `(gaps[0] if gaps else None, gaps[1:])` for each.
# </details></details></details>

# %%
latencies = lab.part("5.1")
readers = "ABCDEF"


def itls_of_readers(trace):
    found = latencies(trace)
    return [itl for name in readers for itl in found[name][1]]


stalled = [step for step in whole.steps if sum(step.num_scheduled_tokens.values()) > 100]
num_stalled = sum(len(set(step.sampled) & set(readers)) for step in stalled)
lab.compare("5.1", [len(itls_of_readers(whole)), num_stalled])
print("the stall is step", *[step.index for step in stalled])

# %% tags=["nbval-ignore-output"]
found = latencies(whole)
for name in (*readers, "G"):
    ttft, itls = found[name]
    shown = " ".join(f"{1000 * itl:.0f}" for itl in itls[:12])
    print(
        f"{name}: TTFT {1000 * ttft:>4.0f} ms; ITLs in ms: {shown or 'none, one token'}{' …' if itls else ''}"
    )

# %% [markdown]
# G's TTFT is everybody's longest ITL: they waited in the same step.
#
# ## 5.2 Plan a step · ●●○ · 25 min · core
#
# The **planner** is asked before each step: who gets how many tokens? It sees two lists, in the order in
# which they are to be served: `running` requests, which hold blocks, and `waiting` ones. It does not
# care for blocks; the scheduler finds those, and may admit fewer than planned.

# %% [markdown]
# One number says it all: `kv.num_missing_tokens(request)`, the tokens that it has and whose keys and
# values are not cached. A running request that misses one is a **decode**. One that misses more is a
# prompt, or was preempted and starts again; no flag tells them apart, and none is needed.

# %% [markdown]
# The order: **decodes**, then the other **running** requests, then **waiting** ones. Each gets what it
# misses, or what is left of the budget. Nobody is in the plan with 0 tokens.
#
# If there are more decodes than budget, serve as many as fit, whichever (5.4 is about that).
#
# **Predict:** six decodes, G's 768 tokens wait, the budget is 64. How many tokens of G are in its first
# step, and in how many steps is its prompt computed?

# %%
### BEGIN SOLUTION
first_chunk = 64 - 6
num_chunks = math.ceil(768 / 58)
### END SOLUTION
lab.predict("5.2", [first_chunk, num_chunks])

# %% [markdown]
# **Spec.** It gives away one token at a time. Yours decides once for each request.


# %%
def spec_plan_step(running, waiting, budget, kv):
    plan = {}  # request → tokens
    decodes_first = sorted(running, key=lambda request: kv.num_missing_tokens(request) > 1)
    for _token in range(budget):
        for request in decodes_first + waiting:
            if plan.get(request, 0) < kv.num_missing_tokens(request):
                plan[request] = plan.get(request, 0) + 1
                break
    return list(plan.items())


# %% tags=["solve:5.2"]
def plan_step(running, waiting, budget, kv):
    """[(request, n)]: who gets how many tokens in this step, every n ≥ 1, together at most budget.

    running, waiting: lists of requests in their order, not to be changed; budget: tokens;
    kv.num_missing_tokens(request): how many it can use, at least 1
    """
    ### BEGIN SOLUTION
    decodes = [request for request in running if kv.num_missing_tokens(request) == 1]
    prompts = [request for request in running if kv.num_missing_tokens(request) > 1]
    plan = []
    for request in decodes + prompts + waiting:
        n = min(kv.num_missing_tokens(request), budget)
        if n == 0:
            break
        plan.append((request, n))
        budget -= n
    return plan
    ### END SOLUTION


# %% tags=["check:5.2"]
lab.check(plan_step)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Put everybody into one list, in the right order; then go through it and give.
#
# <details><summary>Hint 2: the key line</summary>
#
# `n = min(kv.num_missing_tokens(request), budget)`, and `budget -= n` after it is given. Stop when
# there is nothing to give.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `decodes = [r for r in running if kv.num_missing_tokens(r) == 1]`, `prompts` those with more; `for
# request in decodes + prompts + waiting:`. Lists joined with + are new; the scheduler's stay as they are.
# </details></details></details>

# %% [markdown]
# ## Plug in
#
# `Parts(plan_step=plan_step)` puts your function under the engine's own scheduler
# ([continuous.py](../minivllm/scheduler/continuous.py)). It asks with four arguments, unless a setting
# needs more. Nothing else changes, no kernel and no model: a chunk is only a number.

# %%
plan_step = lab.part("5.2")
llm = LLM(parts=Parts(plan_step=plan_step), **settings)
chunked, chunked_tokens = serve(llm, 64)
tokens_of_steps(chunked, 7, 10)
print("…")
tokens_of_steps(chunked, 20, 22)
with_g = [step.num_scheduled_tokens["G"] for step in chunked.steps if "G" in step.num_scheduled_tokens]
lab.compare("5.2", [with_g[0], len(with_g)])
print("same tokens as whole:", chunked_tokens == whole_tokens)

# %% [markdown]
# The last chunk is what was left, 14 tokens; it samples G's token. The same in an engine of all your
# parts so far:

# %% tags=["nbval-ignore-output"]
yours = lab.engine(**settings)
own_trace, own_tokens = serve(yours, 64)
print("same tokens:", own_tokens == whole_tokens, "- steps:", len(own_trace.steps))
yours = None  # one model in memory is enough

# %% [markdown]
# **See.** Both runs on one time axis. Two questions: what happens to the width of a step when a chunk is
# in it? And who pays for the readers' peace?

# %% tags=["nbval-ignore-output"]
views = [TimelineView(whole, "whole prompt"), TimelineView(chunked, "token budget 64")]
style.show(compare(views), " ".join(view.alt() for view in views))
for view in views:
    print(view.title, view.table(), sep="\n", end="\n\n")

# %% [markdown]
# A mixed step is three or four times as long as a pure decode step, and not twenty or thirty times. The
# mark of G's first token has moved to the right: G pays. How much, we come to.

# %% [markdown]
# ## 5.3 How large a budget? · ●●○ · 25 min · core
#
# Lab 00 can tell before anything runs. A step's FLOPs are those of its chunk and its decodes together,
# so are the bytes, with one exception: **the weights are read once a step**, whoever is in it. That is
# the second half of the idea: a decode step waits for memory and leaves arithmetic unused, and a chunk
# uses it. Decodes **piggyback** on the chunk, or the chunk on them.

# %% [markdown]
# Use your 0.1, 0.2 and 0.3, which count requests that are all alike. A decode at context c is
# `flops_and_bytes(cfg, 1, c, dtype_bytes)`: what of its bytes is already in the step? From both sums,
# `Cost(flops, num_bytes).seconds(gpu)` makes a time.
#
# Then turn it round: the largest budget with which the *slowest* step stays within a target. The slowest
# is a whole chunk at the end of the prompt, whose last token sees all `prompt_len` tokens.
#
# **Predict:** Llama 3.1 8B on an H100, 32 decodes with 2,048 tokens each, a prompt of 8,192.
# Milliseconds of the step: with the whole prompt, and with its last 512 tokens.

# %%
### BEGIN SOLUTION
milliseconds = [146, 8]  # FLOPs of the prompt / 989e12; bytes of weights and caches / 3.35e12
### END SOLUTION
lab.predict("5.3", milliseconds)

# %%
flops_and_bytes, Cost = lab.part("0.1"), lab.part("0.2")
kv_bytes_per_token = lab.part("0.3")

# %% [markdown]
# **Spec.** `forward_cost` of [cost.py](../minivllm/executor/cost.py) counts any mixture of (new tokens,
# context). Yours puts it together from what you have built, and tries fewer budgets.


# %%
class spec_StepClock:
    def __init__(self, cfg, gpu, dtype_bytes):
        self.cfg, self.gpu, self.dtype_bytes = cfg, gpu, dtype_bytes

    def chunk_time(self, tokens, context, decodes):
        step = [(tokens, context)] + [(1, seen) for seen in decodes]
        return forward_cost(self.cfg, step, self.dtype_bytes, self.dtype_bytes).seconds(self.gpu)

    def budget(self, target, prompt_len, decodes):
        chunks = range(1, prompt_len + 1)
        times = {chunk: self.chunk_time(chunk, prompt_len, decodes) for chunk in chunks}
        fitting = [chunk for chunk in chunks if times[chunk] <= target]
        if fitting == []:
            raise ValueError("not even one token of the prompt fits")
        return len(decodes) + max(fitting)


# %% tags=["solve:5.3"]
class StepClock:
    """The least seconds that mixed steps take, by the roofline, and the budget that keeps them short."""

    def __init__(self, cfg, gpu, dtype_bytes):
        ### BEGIN SOLUTION
        self.cfg, self.gpu, self.dtype_bytes = cfg, gpu, dtype_bytes
        ### END SOLUTION

    def chunk_time(self, tokens, context, decodes):
        """Seconds of a step with `tokens` tokens of a prompt, the last of which sees `context`, and one
        token of each of the decodes, a list of their contexts (the new token included)."""
        ### BEGIN SOLUTION
        flops, num_bytes = flops_and_bytes(self.cfg, tokens, context, self.dtype_bytes)
        one_token = flops_and_bytes(self.cfg, 1, 1, self.dtype_bytes)[1]
        weights = one_token - 2 * kv_bytes_per_token(self.cfg, self.dtype_bytes)  # written and read
        for seen in decodes:
            more_flops, more_bytes = flops_and_bytes(self.cfg, 1, seen, self.dtype_bytes)
            flops += more_flops
            num_bytes += more_bytes - weights
        return Cost(flops, num_bytes).seconds(self.gpu)
        ### END SOLUTION

    def budget(self, target, prompt_len, decodes):
        """Largest number of tokens a step, decodes included, so that a whole chunk at the end of the
        prompt takes at most target seconds. ValueError if one token of it takes longer."""
        ### BEGIN SOLUTION
        chunks = range(1, prompt_len + 1)
        fits = bisect(chunks, target, key=lambda chunk: self.chunk_time(chunk, prompt_len, decodes))
        if fits == 0:
            raise ValueError(f"{target} s are too short for one token of the prompt")
        return len(decodes) + fits
        ### END SOLUTION


# %% tags=["check:5.3"]
lab.check(StepClock)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Sum FLOPs and bytes over the chunk and all decodes; take the weights off where they are counted again;
# then one `Cost`. For the budget: a larger chunk takes longer, so search.
#
# <details><summary>Hint 2: the key line</summary>
#
# The weights' bytes: `flops_and_bytes(cfg, 1, 1, dtype_bytes)[1]` less one token written and one read,
# `2 * kv_bytes_per_token(cfg, dtype_bytes)`.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `bisect(range(1, prompt_len + 1), target, key=lambda chunk: self.chunk_time(chunk, prompt_len,
# decodes))` is the number of chunk sizes that fit; a loop from 1 upwards does as well. None fits:
# ValueError.
# </details></details></details>

# %%
StepClock = lab.part("5.3")
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
clock, decodes = StepClock(llama_8b, H100, 2), [2048] * 32
alone = 1000 * clock.chunk_time(1, 2048, decodes[1:])
print(f"32 decodes and no prompt: {alone:.1f} ms")
lab.compare("5.3", [round(1000 * clock.chunk_time(n, 8192, decodes)) for n in (8192, 512)])
print(f"{'ITL target':>10} {'budget':>7} {'steps for the prompt':>21}")
for target in (10, 15, 20, 30, 50, 100):
    budget = clock.budget(target / 1000, 8192, decodes)
    print(f"{target:>7} ms {budget:>7,} {math.ceil(8192 / (budget - 32)):>21}")

# %% [markdown]
# A step of 32 decodes alone takes more than half of the smallest target, and hardly computes. Up to some
# 500 tokens a chunk costs it little. That is where the budget wants to be. Look at the whole trade:


# %%
def sweep(clock, budgets, prompt_len, decodes):
    """{budget: (slowest step, TTFT)} in seconds, by the clock, for one prompt that meets these decodes."""
    found = {}
    for budget in budgets:
        chunk = budget - len(decodes)
        ends = [min(end, prompt_len) for end in range(chunk, prompt_len + chunk, chunk)]
        starts = [0, *ends[:-1]]
        times = [clock.chunk_time(b - a, b, decodes) for a, b in zip(starts, ends, strict=True)]
        found[budget] = max(times), sum(times)
    return found


h100_budgets = (64, 128, 256, 512, 1024, 2048, 8224)
h100_sweep = sweep(clock, h100_budgets, 8192, decodes)
token = kv_bytes_per_token(llama_8b, 2)
print(f"{'budget':>6} {'steps':>6} {'slowest step':>13} {'TTFT':>10} {'cache read for the prompt':>26}")
for budget, (slowest, ttft) in h100_sweep.items():
    chunk = budget - 32
    read = sum(min(end, 8192) for end in range(chunk, 8192 + chunk, chunk)) * token
    steps = math.ceil(8192 / chunk)
    print(f"{budget:>6,} {steps:>6} {1000 * slowest:>10.1f} ms {1000 * ttft:>7.0f} ms {read / 1e9:>23.1f} GB")

# %% [markdown]
# **Explain it, before you unfold.** From 8,224 down to 512 the slowest step falls to a fourteenth and
# TTFT hardly moves. Below, TTFT explodes. Why there?
#
# <details><summary>An answer</summary>
#
# While it is compute-bound, cutting a prompt costs nothing by the roofline: the FLOPs are the same
# in any number of steps. A step turns memory-bound where 2 FLOPs a weight and token take less time
# than reading the weight: at about 300 tokens on an H100 (its ridge, lab 00), later if decodes bring
# much cache. From there each step takes the same time whatever is in it, and half the chunk means twice
# the steps.
# </details>

# %% [markdown]
# So **the best chunk lies where the step turns compute-bound**: large enough to use the arithmetic, and
# no larger. The last column grows with prompt² / chunk, since each chunk reads the cache of all chunks
# before it; at sensible chunks that is little beside the weights, 16 GB a step.
#
# Where does a step turn compute-bound on your machine? In fp32 a weight has 4 bytes.


# %%
def turning_chunk(cfg, gpu, dtype_bytes):
    """The smallest chunk that, alone and at the start of a prompt, is compute-bound."""
    costs = ((n, Cost(*flops_and_bytes(cfg, n, n, dtype_bytes))) for n in range(1, 5000))
    return next(n for n, cost in costs if cost.is_compute_bound(gpu))


for gpu in (H100, A100):
    print(f"{gpu.name}: {turning_chunk(llama_8b, gpu, 2)} tokens of Llama 8B")

# %% tags=["nbval-ignore-output"]
cfg, here = llm.engine.model_config, this_machine()
print(f"{here.name}: {here.flops / 1e9:.0f} GFLOP/s, {here.bandwidth / 1e9:.0f} GB/s, ridge {here.ridge:.1f}")
print(f"{turning_chunk(cfg, here, 4)} tokens of SmolLM2")

# %% [markdown]
# ## Measure: the budget swept
#
# Claim C5: while a long prompt arrives, the longest ITL falls from "a whole prefill" to "one chunk", and
# the newcomer's TTFT rises a little.
#
# First what the clock says for this machine, five budgets against the whole prompt. Seconds of a
# roofline are a floor, so look at ratios. The readers have about 26 tokens each when G comes.

# %% tags=["nbval-ignore-output"]
budgets = (256, 128, 64, 32, 16, 2048)
smol_clock = StepClock(cfg, here, 4)
predicted = sweep(smol_clock, budgets, 768, [26] * 6)
slowest, ttft = predicted[2048]
print(f"{'budget':>7} {'longest ITL':>12} {'shorter by':>11} {'TTFT':>8} {'longer by':>10}")
for budget, (itl, first) in predicted.items():
    print(f"{budget:>7} {1000 * itl:>9.0f} ms {slowest / itl:>9.1f} ×", end=" ")
    print(f"{1000 * first:>5.0f} ms {first / ttft:>8.2f} ×")

# %% [markdown]
# **Predict**, with that table or against it: by which factor does the readers' longest ITL fall with a
# budget of 32, and by which does G's TTFT grow?

# %%
### BEGIN SOLUTION
itl_falls_by = 15
ttft_grows_by = 1.3
### END SOLUTION
lab.predict("C5", [itl_falls_by, ttft_grows_by])

# %% [markdown]
# Now measured. The counts first, which are the same on every machine.

# %%
runs = {budget: serve(llm, budget) for budget in budgets}
print(f"{'budget':>7} {'steps with G':>13} {'most tokens in a step':>22} {'same tokens':>12}")
for budget, (trace, tokens) in runs.items():
    with_g = sum("G" in step.num_scheduled_tokens for step in trace.steps)
    most = max(sum(step.num_scheduled_tokens.values()) for step in list(trace.steps)[1:])
    print(f"{budget:>7} {with_g:>13} {most:>22} {tokens == whole_tokens!s:>12}")


# %% tags=["nbval-ignore-output"]
def p99(values):
    """The smallest value that 99 % of them do not exceed."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


measured = {
    budget: (max(itls_of_readers(trace)), latencies(trace)["G"][0]) for budget, (trace, _) in runs.items()
}
slowest, ttft = measured[2048]
print(f"{'budget':>7} {'longest ITL':>12} {'shorter by':>11} {'P99':>8} {'TTFT':>9} {'longer by':>10}")
for budget, (itl, first) in measured.items():
    p = 1000 * p99(itls_of_readers(runs[budget][0]))
    print(f"{budget:>7} {1000 * itl:>9.0f} ms {slowest / itl:>9.1f} × {p:>5.0f} ms", end=" ")
    print(f"{1000 * first:>6.0f} ms {first / ttft:>8.2f} ×")
lab.compare("C5", [round(slowest / measured[32][0], 1), round(measured[32][1] / ttft, 2)])

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(columns=2, width=8, height=3)
some = sorted(budgets)[:-1]
for column, title in ((0, "longest ITL of the readers"), (1, "TTFT of G")):
    for number, (label, table) in enumerate((("measured", measured), ("by the clock", predicted))):
        ratios = [table[budget][column] / table[2048][column] for budget in some]
        style.line(axes[column], some, ratios, number, label)
    axes[column].axhline(1, color="black", linewidth=0.8)
    axes[column].set_xscale("log", base=2)
    axes[column].set_xticks(some, some)
    axes[column].set(title=title, xlabel="token budget", ylabel="whole prompt = 1", ylim=(0, None))
axes[0].legend()
style.show(figure, "Against the token budget: the longest ITL rises towards 1, TTFT falls towards 1.")

# %% [markdown]
# Where does G's time go? Take from each step with G in it what a pure decode step of the six readers takes.
# What is left is the price of the prompt's tokens.


# %% tags=["nbval-ignore-output"]
def seconds_of(trace, with_g):
    steps = [step for step in list(trace.steps)[1:] if ("G" in step.num_scheduled_tokens) == with_g]
    return sorted(step.time_end - step.time_start for step in steps)


pure = seconds_of(runs[2048][0], with_g=False)
decode_step = pure[len(pure) // 2]
print(f"a pure decode step: {1000 * decode_step:.0f} ms")
print(f"{'budget':>7} {'steps':>6} {'their decodes':>14} {'the prompt':>11} {'ms a prompt token':>18}")
for budget, (trace, _) in runs.items():
    times = seconds_of(trace, with_g=True)
    decoding = len(times) * decode_step
    prompt_time = sum(times) - decoding
    print(f"{budget:>7} {len(times):>6} {1000 * decoding:>11.0f} ms {1000 * prompt_time:>8.0f} ms", end=" ")
    print(f"{1000 * prompt_time / len(long_prompt):>18.2f}")

# %% [markdown]
# **Explain it, before you unfold.** All ratios are worse than the clock's, most of all for small budgets.
# What does the clock not know?
#
# <details><summary>An answer</summary>
#
# - Compare the last two columns. Cutting the prompt makes its tokens somewhat dearer, since products of
#   few rows are less efficient; in the smallest chunks they ride along while the weights are read.
# - Most of what TTFT pays are the *steps*: each computes the readers' tokens as well, and a decode step
#   takes longer than the clock says: scheduler, 30 layers of Python calls, sampling.
# - Chunks copy the blocks of earlier chunks together (lab 02).
# - The longest of some hundred intervals also catches whatever else your machine does.
# </details>

# %% [markdown]
# ### The percentile that may get worse
#
# Services promise percentiles: "P99 of ITL under 100 ms". P99 looks at the slowest hundredth. A stall
# is *one* interval a reader; a chunked prompt makes *many* intervals a little longer.
#
# Here is the same G once among answers of 40 tokens, and once among answers of 200. **Predict** the
# share of intervals that are slower than a pure decode step: whole and with a budget of 64, for 40 and
# for 200 tokens.

# %%
### BEGIN SOLUTION
percent = [2.6, 35.9, 0.5, 7.0]  # 1 of 39, 14 of 39, 1 of 199, 14 of 199
### END SOLUTION
lab.predict("C5 shares", percent)

# %%
cases = {
    ("often", 2048): runs[2048][0],
    ("often", 64): runs[64][0],
    ("rarely", 2048): serve(llm, 2048, 200)[0],
    ("rarely", 64): serve(llm, 64, 200)[0],
}
slow_shares = []
print(f"{'stalls are hit':<14} {'budget':>7} {'intervals':>10} {'beside G':>9} {'share':>7}")
for (label, budget), trace in cases.items():
    beside = sum(
        len(set(step.sampled) & set(readers)) for step in trace.steps if "G" in step.num_scheduled_tokens
    )
    number = len(itls_of_readers(trace))
    slow_shares.append(round(100 * beside / number, 1))
    print(f"{label:<14} {budget:>7} {number:>10} {beside:>9} {slow_shares[-1]:>5.1f} %")
lab.compare("C5 shares", slow_shares)

# %% tags=["nbval-ignore-output"]
print(f"{'stalls are hit':<14} {'budget':>7} {'median':>9} {'P99':>9} {'longest':>9}")
figure, axes = style.figure(columns=2, width=9)
for number, ((often, budget), trace) in enumerate(cases.items()):
    itls = sorted(1000 * itl for itl in itls_of_readers(trace))
    some = itls[len(itls) // 2], p99(itls), itls[-1]
    print(f"{often:<14} {budget:>7}" + "".join(f"{value:>6.0f} ms" for value in some))
    axis, label = axes[number // 2], "whole" if budget == 2048 else "budget of 64"
    reached = [100 * (i + 1) / len(itls) for i in range(len(itls))]
    style.line(axis, itls, reached, number % 2, label, markevery=len(itls) // 40, drawstyle="steps-post")
    axis.set(title=f"{often} stalled, answers of {len(itls) // 6 + 1}", xlabel="ITL, ms", xscale="log")
    axis.set(ylabel="% of intervals, not longer", ylim=(90, 100.3))
    axis.set_xticks([20, 50, 100, 200, 500], [20, 50, 100, 200, 500])
    axis.minorticks_off()
    axis.axhline(99, color="black", linewidth=0.8)
axes[0].legend(loc="lower right")
style.show(figure, "Intervals up to an ITL: chunked reaches 99 % earlier if stalls are frequent, else later.")

# %% [markdown]
# **Explain it, before you unfold.** Chunking made P99 better in one case and worse in the other. Which
# number would you promise?
#
# <details><summary>An answer</summary>
#
# If stalls are fewer than 1 in 100 intervals, P99 does not see them: it is a pure decode step. Chunked,
# the intervals beside G are more than 1 in 100, so P99 is a mixed step, and rises. The stall is still
# there, in P99.9 and in the maximum, and every reader sees it once an answer.
#
# So state the share of *requests* without an interval above the target, or the longest ITL of each. And
# do not believe "chunked prefill lowers P99" without the rate of long prompts beside it.
# </details>

# %% [markdown]
# Now use your clock to *choose*. You promise the readers that a step beside a prompt takes at most four
# times a pure decode step. The clock's seconds are too short, but the promise is a ratio.

# %% tags=["nbval-ignore-output"]
decodes = [26] * 6
pure = smol_clock.chunk_time(1, 26, decodes[1:])
budget = smol_clock.budget(4 * pure, 768, decodes)
trace, _ = serve(llm, budget)
itls = sorted(itls_of_readers(trace))
print(f"clock: a pure decode step takes {1000 * pure:.0f} ms; budget for four times that: {budget} tokens")
print(f"measured: shortest ITL {1000 * itls[0]:.0f} ms, longest {1000 * itls[-1]:.0f} ms:", end=" ")
print(f"{itls[-1] / itls[0]:.1f} times")

# %% [markdown]
# ## 5.4 Nobody waits for ever · ●●● · 25 min · extra
#
# What if there are more decodes than budget? One request may ask for several answers (`n=6`), and an
# engine that guards a latency target lowers its budget as it runs. With 5.2 the same ones are served in
# every step; the others, and all prompts, wait until those *end*. You want a bound that does not depend
# on how much somebody else writes.

# %% [markdown]
# Minivllm's scheduler counts for you: `request.num_skipped_steps`, the steps in a row without a token,
# of every running request and of the first that waits. (Under one that does not count, such as yours of
# lab 04 if you left that out, all are 0 and the order stays as it is.)
#
# With **more decodes than budget**:
#
# - the decodes that were skipped most often come first, so they take turns;
# - if the first prompt (the first running one, else the first waiting one) was skipped `PATIENCE` = 7
#   times in a row, the step is its turn: it comes before all decodes. What it leaves goes to the
#   others.
#
# With budget enough for all decodes nothing changes.

# %% [markdown]
# **Predict:** six decodes, a budget of 4, a prompt of 40 tokens comes. What is the longest way, in
# steps, from one token of a reader to the next? How many steps pass before the prompt's first turn?

# %%
### BEGIN SOLUTION
longest_way = math.ceil(6 / 4) + 1
steps_before = 7
### END SOLUTION
lab.predict("5.4", [longest_way, steps_before])

# %% [markdown]
# **Spec.** The bound that your planner has to keep, whatever the order: d decodes, budget b < d, one
# prompt.


# %%
def spec_bounds(d, b):
    reader, round_of_decodes = 1, 0
    while round_of_decodes < d:  # b of them in each step
        round_of_decodes += b
        reader += 1  # it began with the prompt's turn
    return {"steps from token to token": reader, "steps from chunk to chunk": 7 + 1}


print(spec_bounds(6, 4))

# %% tags=["solve:5.4"]
PATIENCE = 7


def fair_plan_step(running, waiting, budget, kv):
    """As plan_step; with more decodes than budget all are served in turn, and a prompt every eighth step.

    request.num_skipped_steps: steps in a row in which it was there and got nothing
    """
    ### BEGIN SOLUTION
    decodes = [request for request in running if kv.num_missing_tokens(request) == 1]
    if len(decodes) <= budget:
        return plan_step(running, waiting, budget, kv)
    prompts = [request for request in running if kv.num_missing_tokens(request) > 1] + waiting
    in_turn = sorted(decodes, key=lambda request: request.num_skipped_steps, reverse=True)
    if prompts and prompts[0].num_skipped_steps >= PATIENCE:
        return plan_step([], prompts + in_turn, budget, kv)
    return plan_step([], in_turn, budget, kv)
    ### END SOLUTION


# %% tags=["check:5.4"]
lab.check(fair_plan_step)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Only the order changes. Your `plan_step` serves a `waiting` list in the order that you give it.
#
# <details><summary>Hint 2: the key line</summary>
#
# `in_turn = sorted(decodes, key=lambda r: r.num_skipped_steps, reverse=True)`; the prompt's turn:
# `prompts[0].num_skipped_steps >= PATIENCE`.
#
# <details><summary>Hint 3: nearly code</summary>
#
# Enough budget: `return plan_step(running, waiting, budget, kv)`. The prompt's turn: `return
# plan_step([], prompts + in_turn, budget, kv)`. Else the same without the prompts.
# </details></details></details>

# %% [markdown]
# ## Break it
#
# **A. A budget below the number of running requests.** A asks for six answers of one prompt: it is
# computed once, and then A forks into A, A#1, … A#5 (lab 02). The budget is 4, and B's 40 tokens arrive
# before step
# 10. Once with your 5.2, once with 5.4. Who is in the steps?

# %%
fair_plan_step = lab.part("5.4")


def six_answers(planner):
    llm.engine.parts = Parts(plan_step=planner)
    llm.engine.reconfigure(max_num_batched_tokens=4)
    six = SamplingParams(n=6, temperature=1.0, seed=0, max_tokens=24, ignore_eos=True)
    llm.engine.add_request(short_prompts[0][:8], six, "A")
    for _ in range(10):
        llm.engine.step()
    llm.engine.add_request(long_prompt[:40], SamplingParams(temperature=0, max_tokens=1), "B")
    while llm.engine.has_unfinished_requests:
        llm.engine.step()
    return llm.trace


def longest_way(trace, name):
    """Most steps from one token of it to the next."""
    had = [step.index for step in trace.steps if name in step.sampled]
    return max(b - a for a, b in zip(had, had[1:], strict=False))


answers = ["A", *(f"A#{i}" for i in range(1, 6))]
print("columns of a step: the six answers, then B; a number is tokens")
for label, planner in (("5.2", plan_step), ("5.4", fair_plan_step)):
    trace = six_answers(planner)
    steps = list(trace.steps)
    print(
        f"{label}: each answer's longest way to a token:", *[longest_way(trace, a) for a in answers], "steps"
    )
    first = next(step.index for step in steps if "B" in step.num_scheduled_tokens)
    print(f"     B waits for {first - 10} steps; steps in all: {len(steps)}")
    for step in steps[10:20]:
        served = step.num_scheduled_tokens
        row = " ".join(f"{served.get(name, '·')!s:>2}" for name in [*answers, "B"])
        print(f"     step {step.index}: {row}")
lab.compare("5.4", [max(longest_way(trace, a) for a in answers), first - 10])

# %% [markdown]
# About as many steps, so the same throughput; but in the first run two answers stand still until four
# have ended, and B with them.
#
# With 5.4 every prompt gets through, four tokens in eight steps: for a prompt of 768 that is 1,536
# steps. Fairness bounds a wait; it does not make a budget sensible. Keep it above the number of
# requests that may run.

# %% [markdown]
# **Question.** Two prompts wait. Can a decode be passed over for more than one turn? And how long does a
# prompt wait if there are *exactly* as many decodes as budget?
#
# <details><summary>An answer</summary>
#
# Yes, for two: when the first prompt ends in its turn, the second may have waited as long, and has its
# turn in the next step. Only the first that waits is counted, so a third starts from 0.
#
# Until one of the decodes ends: while the budget has a token for each of them, each gets it. That is the
# stall-free rule, and a bound as well: nobody's answer is endless.
# </details>

# %% [markdown]
# **B. Prefill first.** Many engines began with the other order: prompts first, they bring the next user's
# first token. With a small budget that is still a chunked prefill. What do the readers see? Guess their
# longest way to a token, in steps, before you run it.


# %%
def prefill_first(running, waiting, budget, kv):
    decodes = [request for request in running if kv.num_missing_tokens(request) == 1]
    prompts = [request for request in running if kv.num_missing_tokens(request) > 1]
    return plan_step([], prompts + waiting + decodes, budget, kv)


orders = {}
for label, planner in (("decodes first", plan_step), ("prefill first", prefill_first)):
    llm.engine.parts = Parts(plan_step=planner)
    orders[label], tokens = serve(llm, 64)
    with_g = sum("G" in step.num_scheduled_tokens for step in orders[label].steps)
    ways = [longest_way(orders[label], name) for name in readers]
    print(
        f"{label}: longest ways to a token {ways}, G in {with_g} steps, same tokens: {tokens == whole_tokens}"
    )

# %% tags=["nbval-ignore-output"]
views = [TimelineView(trace, f"{label}, budget 64") for label, trace in orders.items()]
style.show(compare(views), " ".join(view.alt() for view in views))
for label, trace in orders.items():
    ttft, longest = latencies(trace)["G"][0], max(itls_of_readers(trace))
    print(f"{label}: TTFT of G {1000 * ttft:.0f} ms, longest ITL of the readers {1000 * longest:.0f} ms")

# %% [markdown]
# The stall is back, cut into twelve pieces and just as long: twelve steps hold G alone. It is the *order*
# that makes batching stall-free; the budget says how fine. G gained a little: twelve steps, not fourteen.

# %% [markdown]
# ## Interview corner
#
# Say your answer aloud before you unfold.
#
# <details><summary><b>1.</b> State Sarathi's stall-free rule, and why both halves are needed.</summary>
#
# - *Rule:* each step has a token budget. All running decodes are in it, first; what is left is filled
#   with chunks of prompts, those already begun before new ones.
# - Without the budget one step is as long as a prompt. Without the order a chunked prompt still keeps
#   decodes out, step after step.
# - Strong: a chunk uses arithmetic that a memory-bound decode step leaves idle, so throughput gains as
#   well; steps of equal length also keep pipeline stages busy.
# </details>

# %% [markdown]
# <details><summary><b>2.</b> How do you choose the chunk size?</summary>
#
# - *From above:* the slowest mixed step, a whole chunk at the end of the longest prompt, within the ITL
#   target.
# - *From below:* the point where the step turns compute-bound (about 2 FLOPs × tokens against bytes a
#   weight: the ridge; 8 – 32 rows on a CPU in fp32, about 300 on an H100 in bf16, later beside long
#   decode contexts). Smaller only multiplies steps: TTFT and throughput suffer, ITL gains nothing.
# - Also: whole tiles of the matrix kernels (multiples of 64 or 128); the number of decodes comes off
#   the budget.
# - Strong: "measure both curves", and a budget that adapts to a target.
# </details>

# %% [markdown]
# <details><summary><b>3.</b> What does chunking cost?</summary>
#
# - *TTFT* of the newcomer: more steps, each with the decodes' share and a fixed cost.
# - *Cache reads:* chunk i reads the keys and values of all before it: about N² / (2c) tokens instead of
#   N. For 8,192 tokens of Llama 8B in chunks of 480, 11 GB instead of 1; still little beside reading 16
#   GB of weights in each of 18 steps. FLOPs are the same.
# - *Memory:* a half-computed prompt holds blocks and gives no token yet.
# - Strong: with n prompts at once, chunks of one delay the next; first come first served keeps TTFT best.
# </details>

# %% [markdown]
# <details><summary><b>4.</b> What does disaggregation change?</summary>
#
# - *Idea:* prefill and decode on different GPUs (DistServe, Splitwise, 2024). No interference, so no
#   trade of TTFT against ITL in one step; each side has its own batch size, parallelism, even hardware.
# - *Price:* the cache moves: 128 KiB a token for Llama 8B, 1 GiB for 8,192 tokens, 20 ms at 50 GB/s;
#   two pools to size for a mixture that drifts; idle arithmetic on the decode side is lost.
# - Chunks remain useful: between prompts on the prefill side, and as a fallback.
# - Strong: prefers chunking for small fleets and short prompts, disaggregation for strict ITL at large
#   scale.
# </details>

# %% [markdown]
# <details><summary><b>5.</b> What breaks if every chunk samples a token?</summary>
#
# - A token appears in the middle of the prompt: TTFT looks wonderful, the text is nonsense. Engines
#   sample only in the step in which computed tokens reach known tokens.
# - And if a chunk starts at the wrong position? Rotary angles and slots are off: wrong text, no crash.
# - Strong: tests that tokens are equal for any budget, as you did above.
# </details>

# %% [markdown]
# <details><summary><b>6.</b> You switch chunked prefill on, and P99 of ITL rises. Is it broken?</summary>
#
# - Not if stalls were rarer than 1 in 100 intervals: P99 did not see them. Mixed steps are many, so it
#   sees those.
# - Look at the longest ITL of each request, or at P99.9, and at the share of long prompts.
# - Strong: computes the share: intervals beside a prompt = chunks × readers.
# </details>

# %%
lab.progress()

# %% [markdown]
# ## What you built, and where it lives
#
# - Your planner: `my_engine/`. Minivllm's: [planner.py](../minivllm/scheduler/planner.py), with
#   patience; who asks it: [continuous.py](../minivllm/scheduler/continuous.py). A budget that follows
#   an ITL target while the engine runs: `StepTimeGuard` in
#   [policy.py](../minivllm/scheduler/policy.py).
# - Latencies in pictures: [timeline.py](../minivllm/viz/timeline.py). The claim again, with a workload of
#   its own: `python -m minivllm bench claims C5`.
#
# **vLLM** schedules running requests in order, then waiting ones, under `max_num_batched_tokens`; chunked
# prefill is on by default, `long_prefill_token_threshold` caps one prompt's share. **SGLang** has
# `--chunked-prefill-size`, runs prefill batches before decode ones by default, and mixes them with
# `--enable-mixed-chunk`.
#
# **Read on:** Agrawal et al., *Sarathi-Serve* (2024); Holmes et al., *DeepSpeed-FastGen* (2024), whose
# Dynamic SplitFuse is the same idea; Zhong et al., *DistServe* (2024).
