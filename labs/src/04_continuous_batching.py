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
# # 04 · Continuous batching
#
# You watch a batch wait for its slowest member, and then write the scheduler that ends this: it decides
# anew before every step who takes part. It starts small and grows in four classes, until it can run a
# model in too little memory. It runs SmolLM2 in the real engine.
#
# **Afterwards you can** explain **iteration-level scheduling** and why it helps throughput and latency at
# once, admit requests under a memory budget, and say what **preemption** costs, recomputed or swapped.
#
# **Core:** 4.1 – 4.4 with what lies between them, about 90 minutes. **Extra:** 4.5 and what follows it, 60
# minutes.

# %%
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("minivllm") is None:  # a hosted notebook: install what lies beside labs/
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--editable", ".."], check=True)
    sys.path.insert(0, os.path.abspath(".."))  # this kernel started before it was there

# %%
import heapq
import random
from functools import partial
from statistics import mean, median

from minivllm import LLM, EngineConfig, Parts, SamplingParams, course
from minivllm.kv.blocks import BlockPool
from minivllm.kv.manager import KVManager
from minivllm.kv.prefix import HashPrefixCache
from minivllm.request import Request, Status
from minivllm.scheduler.base import Chunk, StepPlan, refuse_what_never_fits
from minivllm.scheduler.planner import plan_step
from minivllm.viz import style
from minivllm.viz.identity import letters
from minivllm.viz.timeline import TimelineView, compare

lab = course.open(4)

# %% [markdown]
# ## The pain
#
# Forty people ask at the same moment. Most want a few words, some want a lot: answers have a **long
# tail**. Eight fit into a batch. The simple way is a **static batch**: take eight, generate until the
# last of them is done, take the next eight.
#
# A step gives each request of the batch one token, so a request with an answer of n tokens is in n
# steps: the prompt's own step gives the first token.

# %%
SLOTS = 8
rng = random.Random(4)
answers = [rng.randint(32, 64) if rng.random() < 1 / 6 else rng.randint(2, 10) for _ in range(40)]
prompts = [[rng.randrange(1000, 40000) for _ in range(12)] for _ in answers]


def params_of(lengths):
    return [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in lengths]


small = dict(device="cpu", max_model_len=256, max_num_seqs=SLOTS, enable_prefix_caching=False)
llm = LLM(scheduler="static", num_gpu_blocks_override=SLOTS * 256 // 16, **small)
outputs = llm.generate(prompts, params_of(answers), use_tqdm=False)
static_trace, static_outputs = llm.trace, outputs

steps = len(static_trace.steps)
print("answers:", *sorted(answers))
print(f"{sum(answers)} tokens, {steps} steps, {steps * SLOTS} slot-steps:", end=" ")
print(f"{1 - sum(answers) / (steps * SLOTS):.0%} of them had no request")

# %% tags=["nbval-ignore-output"]
figure, axes = style.figure(width=7.5)
running = [len(step.num_scheduled_tokens) for step in static_trace.steps]
axes.fill_between(range(steps), SLOTS, color=style.EMPTY, step="mid", label="idle")
axes.fill_between(range(steps), running, color=style.PALETTE[0], step="mid", label="in use")
axes.set(xlabel="step", ylabel="slots", ylim=(0, SLOTS), xlim=(0, steps), title="static batches of 8")
axes.legend(loc="upper right", frameon=True)
style.show(figure, "Slots in use against steps: five times 8 at first, then 1 or 2 for a long time.")

# %% [markdown]
# Two kinds of waste in one picture. **Idle slots**: the machine runs steps for one or two requests. And
# **waiting**: the last request wants two tokens, and gets them after four batches that have nothing to do
# with it.
#
# ## The idea
#
# Nothing ties the requests of a batch together. Weights are read once a step for whoever is there; the
# next step may have other guests. So decide **before every step**: who has ended leaves, who waits joins.
# This is **iteration-level scheduling** (Yu et al., *Orca*, 2022), today called **continuous batching**.
#
# Five requests in two slots; a letter is a step of a request, a dot an idle one.

# %%
FIVE = {"A": 6, "B": 2, "C": 3, "D": 1, "E": 2}


def slots_drawn(lengths, num_slots, continuous):
    rows, waiting = ["" for _ in range(num_slots)], list(lengths.items())
    while waiting:
        if not continuous:  # the batch ends with its longest request
            rows = [row.ljust(max(map(len, rows)), "·") for row in rows]
        for _ in range(num_slots):
            if waiting:
                name, length = waiting.pop(0)
                shortest = min(range(num_slots), key=lambda slot: len(rows[slot]))
                rows[shortest] += name * length
    return [row.ljust(max(map(len, rows)), "·") for row in rows]


for title, continuous in (("static", False), ("continuous", True)):
    print(title, *slots_drawn(FIVE, 2, continuous), sep="\n  ")

# %% [markdown]
# ## 4.1 What a batch costs · ●●○ · 20 min · core
#
# Before you build it, know what it is worth. From nothing but the lengths you can count the steps, the
# idle slot-steps, and the step in which each request ends.
#
# **Predict:** the answers above, eight slots, continuous. How many steps instead of 217? And what share of
# the slot-steps is idle? Sum of all answers: 527.

# %%
### BEGIN SOLUTION
steps_and_idle_percent = [90, 25]
### END SOLUTION
lab.predict("4.1", steps_and_idle_percent)

# %% [markdown]
# **Spec.** Step by step, slot by slot. Yours must not walk through the steps: lengths may be millions.


# %%
def spec_batch_cost(lengths, num_slots, continuous=False):
    waiting, left, ends, step = list(enumerate(lengths)), {}, [0] * len(lengths), 0
    while waiting or left:
        if continuous or not left:  # static: nobody joins while somebody runs
            while waiting and len(left) < num_slots:
                request, length = waiting.pop(0)
                left[request] = length
        step += 1
        for request in list(left):
            left[request] -= 1
            if left[request] == 0:
                del left[request]
                ends[request] = step
    return step, step * num_slots - sum(lengths), ends


for continuous in (False, True):
    print("steps {}, idle {}, ends {}".format(*spec_batch_cost([6, 2, 3, 1, 2], 2, continuous)))


# %% tags=["solve:4.1"]
def batch_cost(lengths, num_slots, continuous=False):
    """(steps, idle slot-steps, ends) of requests that take a slot for lengths[i] ≥ 1 steps each.

    They start in the order of the list. Static: num_slots of them together, when all before have ended.
    Continuous: each as soon as a slot is free, which is the slot that is free first.
    ends[i] is the number of the step, from 1, in which request i ends. No loop over steps.
    """
    ### BEGIN SOLUTION
    free_at = [0] * num_slots  # after how many steps each slot is free: a heap
    ends = []
    for i, length in enumerate(lengths):
        if not continuous and i % num_slots == 0:
            free_at = [max(free_at)] * num_slots
        end = heapq.heappop(free_at) + length
        heapq.heappush(free_at, end)
        ends.append(end)
    steps = max(free_at)
    return steps, steps * num_slots - sum(lengths), ends
    ### END SOLUTION


# %% tags=["check:4.1"]
lab.check(batch_cost)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# One number for each slot is enough: after how many steps it is free. A request makes one of these numbers
# larger by its length.
#
# <details><summary>Hint 2: the key line</summary>
#
# Take the smallest, add the length, put it back: `heapq.heappop`, `heapq.heappush`. Static: before every
# num_slots-th request all slots become free together, at the largest number.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `free_at = [0] * num_slots`; static and `i % num_slots == 0`: `free_at = [max(free_at)] * num_slots`;
# `end = heappop(free_at) + length`; in the end `steps = max(free_at)`.
# </details></details></details>

# %%
batch_cost = lab.part("4.1")
print(f"{'':<12} {'steps':>6} {'idle':>6} {'mean end':>9} {'last end':>9}")
for label, continuous in (("static", False), ("continuous", True)):
    num_steps, idle, ends = batch_cost(answers, SLOTS, continuous)
    share = idle / (num_steps * SLOTS)
    print(f"{label:<12} {num_steps:>6} {share:>6.0%} {mean(ends):>9.1f} {max(ends):>9}")
lab.compare("4.1", [num_steps, round(100 * share)])
print("static, as in the engine:", batch_cost(answers, SLOTS)[0] == steps)

# %% [markdown]
# Some slots are still idle: at the end nobody is left to take them. A server whose queue is never empty
# does not have that end. What if all answers are equally long?
#
# <details><summary>An answer</summary>
#
# `batch_cost([13] * 40, 8)` is the same both ways. The gain is in the spread: a static batch pays for its
# maximum, a continuous one for the mean.
# </details>

# %% [markdown]
# ## 4.2 Who takes part · ●●○ · 25 min · core
#
# A scheduler has two lists, `waiting` and `running`, and makes a `StepPlan` before each step. Three things
# decide: a seat (`max_num_seqs`), blocks for all known tokens, and the **token budget** of the step, which
# `plan_step` divides: it returns (request, number of tokens) pairs (lab 05 is about it).
#
# One rule covers prompts and answers: a request has `num_tokens` known tokens, `num_computed_tokens` of
# them in the cache, and every step brings the second number closer to the first.

# %% [markdown]
# This is what you may ask of `kv`, which does the blocks of lab 02 for you.
#
# | call | gives |
# |---|---|
# | `kv.num_free_blocks` | blocks nobody uses |
# | `kv.blocks_missing(request)` | blocks still to be taken for all its known tokens |
# | `kv.open(request)` | how many of its tokens are in the cache; makes its table |
# | `kv.reserve(request, end)` | its table, with room for its first `end` tokens; `None` if blocks are short |
# | `kv.give_moves_to(plan)` | nothing; hands over copies of blocks, once the plan is complete |

# %% [markdown]
# **Predict:** 6 free blocks of 16, 8 seats, nobody runs. Prompts of 12, 20, 12, 20, 12 … tokens wait. How
# many come in at the first step?

# %%
### BEGIN SOLUTION
come_in = 4
### END SOLUTION
lab.predict("4.2", come_in)

# %% [markdown]
# **Spec.** The choice alone, on plain numbers, without a budget: who runs goes on; the first who waits may
# come in; nobody overtakes.


# %%
def spec_choose(running, waiting, seats, free_blocks):
    """running: {name: tokens to compute}; waiting: [(name, tokens, blocks)] → {name: tokens}."""
    chosen = dict(running)
    for name, tokens, blocks in waiting:
        if len(chosen) == seats or blocks > free_blocks:
            break
        chosen[name] = tokens
        free_blocks -= blocks
    return chosen


queue = [("B", 20, 2), ("C", 60, 4), ("D", 5, 1)]
print("5 free blocks:", spec_choose({"A": 1}, queue, seats=8, free_blocks=5))
print("7 free blocks:", spec_choose({"A": 1}, queue, seats=8, free_blocks=7))


# %% tags=["solve:4.2"]
class StepScheduler:
    """Chooses who takes part in the next step. Both lists are in order of arrival."""

    def __init__(self, config, kv, plan_step):
        self.config = config  # has max_num_seqs, max_num_batched_tokens, max_model_len
        self.kv = kv
        self.plan_step = plan_step
        self.waiting = []
        self.running = []

    def add(self, request):
        refuse_what_never_fits(request, self.config.max_model_len, self.kv)
        self.waiting.append(request)

    def can_admit(self, request):
        """Are there free blocks for all its known tokens?"""
        ### BEGIN SOLUTION
        return self.kv.blocks_missing(request) <= self.kv.num_free_blocks
        ### END SOLUTION

    def place(self, request, n, plan):
        """Append Chunk(request, start, n, table) to plan.chunks: n more tokens, behind those that are in
        the cache. If there are no blocks for them, do nothing."""
        ### BEGIN SOLUTION
        start = self.kv.open(request)
        table = self.kv.reserve(request, start + n)
        if table is not None:
            plan.chunks.append(Chunk(request, start, n, table))
        ### END SOLUTION

    def schedule(self):
        """The StepPlan of the next step. num_computed_tokens stays as it is: nothing has run yet.

        Ask self.plan_step(running, candidates, budget, kv); candidates are those who wait, as many as
        there are seats left. Go through its (request, n) pairs: who waits comes in if it is the first of
        all who wait and can_admit says so, else it gets nothing. Place everybody else.
        """
        ### BEGIN SOLUTION
        plan = StepPlan()
        candidates = self.waiting[: self.config.max_num_seqs - len(self.running)]
        budget = self.config.max_num_batched_tokens
        for request, n in self.plan_step(self.running, candidates, budget, self.kv):
            if request.status is Status.WAITING:
                if request is not self.waiting[0] or not self.can_admit(request):
                    continue
                self.waiting.pop(0)
                self.running.append(request)
                request.status = Status.RUNNING
            self.place(request, n, plan)
        self.kv.give_moves_to(plan)
        return plan
        ### END SOLUTION


# %% tags=["check:4.2"]
lab.check(StepScheduler)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Three cases for each pair: it runs, so place it; it waits and may come in, so move it to the other list and
# place it; it waits and may not, so go on with the next pair.
#
# <details><summary>Hint 2: the key line</summary>
#
# Only `self.waiting[0]` may come in. That one test keeps everybody from overtaking: while the first is
# refused, it stays the first.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `if request.status is Status.WAITING:` and then `if request is not self.waiting[0] or not
# self.can_admit(request): continue`; pop, append, set `Status.RUNNING`. In `place`: `start =
# kv.open(request)`, `table = kv.reserve(request, start + n)`, `Chunk(request, start, n, table)`.
# </details></details></details>

# %%
StepScheduler = lab.part("4.2")


def new_scheduler(scheduler_class, num_blocks, seats=8, budget=2048, max_chunk=None, prefix_cache=None):
    config = EngineConfig(max_model_len=256, max_num_seqs=seats, max_num_batched_tokens=budget)
    kv = KVManager(BlockPool(num_blocks), 16, prefix_cache=prefix_cache)
    return scheduler_class(config, kv, partial(plan_step, max_chunk=max_chunk))


def new_requests(needs, seed=0):
    """needs: (tokens of the prompt, tokens of the answer). The request ids are letters."""
    rng, made = random.Random(seed), []
    for i, ((prompt, _), params) in enumerate(zip(needs, params_of(n for _, n in needs), strict=True)):
        tokens = [rng.randrange(1000) for _ in range(prompt)]
        made.append(Request(letters(i), tokens, params, arrival=i))
    return made


scheduler = new_scheduler(StepScheduler, num_blocks=6)
for request in new_requests([(12, 4), (20, 4)] * 4):
    scheduler.add(request)
plan = scheduler.schedule()
print("in the plan:", {chunk.request.request_id: chunk.num_tokens for chunk in plan.chunks})
print("free blocks:", scheduler.kv.num_free_blocks, " waiting:", len(scheduler.waiting))
lab.compare("4.2", len(plan.chunks))

# %% [markdown]
# ## 4.3 What comes of it · ●●○ · 25 min · core
#
# The step has run. `update(plan, sampled)` takes it in: counts what was computed, appends the new tokens,
# and lets go at once of whoever has ended, so that the **next** `schedule` finds the seat and the blocks
# free. A user may also hang up at any moment, even while the step runs: `abort` ends a request wherever it
# is, and frees all that it owns.
#
# `sampled` maps request ids to lists of tokens. Who has only part of its prompt computed is not in it.
#
# **Predict:** the forty requests in the engine with *your* scheduler: how many steps?

# %%
### BEGIN SOLUTION
steps_in_engine = batch_cost(answers, SLOTS, continuous=True)[0]
### END SOLUTION
lab.predict("4.3", steps_in_engine)

# %% [markdown]
# **Spec.** The whole loop with requests that are a few numbers. The upper half is 4.2, the lower half is
# what you write now.


# %%
def spec_engine(needs, seats, num_blocks, block=16):
    """needs: {name: (prompt, answer)} → for each step the names of those in it."""
    waiting, running, steps = dict(needs), {}, []  # running: {name: [known, computed, still to come]}
    while waiting or running:
        free = num_blocks - sum(-(-known // block) for known, _, _ in running.values())
        queue = [(name, p, -(-p // block)) for name, (p, _) in waiting.items()]
        chosen = spec_choose({name: 1 for name in running}, queue, seats, free)
        for name in chosen:
            if name in waiting:
                prompt, answer = waiting.pop(name)
                running[name] = [prompt, 0, answer]
        for name in chosen:
            known, _, to_come = running[name]
            running[name] = [known + 1, known, to_come - 1]  # all known are computed, one is sampled
            if to_come == 1:
                del running[name]
        steps.append("".join(chosen))
    return steps


print(*spec_engine({"A": (10, 6), "B": (10, 2), "C": (10, 3), "D": (10, 1), "E": (10, 2)}, 2, 8))


# %% tags=["solve:4.3"]
class Scheduler(StepScheduler):
    """Continuous batching: after every step whoever has ended leaves, and makes room for the next."""

    def update(self, plan, sampled):
        """Take in a step that has run, and return a list of (request, new token).

        First self.kv.settle(plan). Then for each chunk, unless its request has been aborted meanwhile
        (request.is_finished): num_computed_tokens is now where the chunk ends; request.append(token) for
        each token of sampled. If that has set request.finish_reason, the request has ended.
        """
        ### BEGIN SOLUTION
        self.kv.settle(plan)
        outputs = []
        for chunk in plan.chunks:
            request = chunk.request
            if request.is_finished:
                continue
            request.num_computed_tokens = chunk.start + chunk.num_tokens
            for token in sampled.get(request.request_id, []):
                request.append(token)
                outputs.append((request, token))
            if request.finish_reason is not None:
                self.finish(request)
        return outputs
        ### END SOLUTION

    def abort(self, request):
        """End a request that waits or runs; one that has ended stays as it is. finish_reason becomes
        "abort" unless there is one already (the engine aborts after a stop string, too)."""
        ### BEGIN SOLUTION
        if not request.is_finished:
            request.finish_reason = request.finish_reason or "abort"
            self.finish(request)
        ### END SOLUTION

    def finish(self, request):
        """Take it out of its list, give its blocks back (self.kv.free), and set Status.FINISHED."""
        ### BEGIN SOLUTION
        if request.status is Status.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self.kv.free(request)
        request.status = Status.FINISHED
        ### END SOLUTION


# %% tags=["check:4.3"]
lab.check(Scheduler)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# `finish` does the work for both: `update` calls it after the last token, `abort` at any time. Which of the
# two lists a request is in, its status says.
#
# <details><summary>Hint 2: the key line</summary>
#
# `request.num_computed_tokens = chunk.start + chunk.num_tokens`. A request that is not in `sampled` gets no
# token: `sampled.get(request.request_id, [])`.
#
# <details><summary>Hint 3: nearly code</summary>
#
# For each chunk: `if request.is_finished: continue`; count; for each token `request.append(token)` and
# `outputs.append((request, token))`; `if request.finish_reason is not None: self.finish(request)`. Go through
# `plan.chunks`, not through `self.running`, which gets shorter on the way.
# </details></details></details>

# %% [markdown]
# ## Plug in
#
# Your scheduler in the engine, on SmolLM2. It has not shown yet that it can do everything, so the engine
# knows its **level**: after 4.3 it is "basic", which takes whole prompts and memory that cannot run out.
# What is above that is refused with a reason. 4.4 adds prompts in pieces, 4.5 memory that runs out.

# %%
Scheduler = lab.part("4.3")
basic = Parts(scheduler=Scheduler, scheduler_level="basic")
llm = LLM(parts=basic, enable_chunked_prefill=False, num_gpu_blocks_override=SLOTS * 256 // 16, **small)
outputs = llm.generate(prompts, params_of(answers), use_tqdm=False)
my_trace, my_outputs = llm.trace, outputs


def tokens_of(outputs):
    return [output.outputs[0].token_ids for output in outputs]


print("same tokens as in static batches:", tokens_of(my_outputs) == tokens_of(static_outputs))
print(f"steps: {len(my_trace.steps)} instead of {steps}")
lab.compare("4.3", len(my_trace.steps))
try:
    llm.engine.reconfigure(num_blocks=24)
except ValueError as error:
    print(f"\n24 blocks: {error}")

# %% [markdown]
# ## Measure: static against continuous
#
# From lengths alone: 217 steps against 92, so 2.4 times the throughput **if every step takes as long**. And a
# request ends after 32 steps instead of 101, on average.
#
# **Predict** what you will measure in seconds: how many times the throughput, and how many times shorter
# the mean latency (from arrival to last token)? A full step does more work than one with a single request.

# %%
### BEGIN SOLUTION
times_throughput = 1.8
times_shorter = 2.6
### END SOLUTION
lab.predict("C4", [times_throughput, times_shorter])


# %% tags=["nbval-ignore-output"]
def seconds_of(trace):
    return trace.steps[-1].time_end - trace.steps[0].time_start


def latencies(outputs):
    return sorted(o.metrics.finished_time - o.metrics.arrival_time for o in outputs)


measured = {}
print(f"{'':<12} {'steps':>5} {'tokens/s':>9} {'mean latency':>13} {'P99':>7} {'ms a step':>10}")
for label, trace, got in (("static", static_trace, static_outputs), ("continuous", my_trace, my_outputs)):
    seconds, late = seconds_of(trace), latencies(got)
    p99 = late[int(0.99 * len(late))]
    measured[label] = sum(answers) / seconds, mean(late)
    print(f"{label:<12} {len(trace.steps):>5} {measured[label][0]:>9.0f} {mean(late):>11.2f} s", end=" ")
    print(f"{p99:>5.2f} s {1000 * seconds / len(trace.steps):>10.1f}")
(rate, wait), (my_rate, my_wait) = measured["static"], measured["continuous"]
lab.compare("C4", [round(my_rate / rate, 1), round(wait / my_wait, 1)])

by_rows = {}
for step in [*static_trace.steps, *my_trace.steps]:
    if set(step.num_scheduled_tokens.values()) == {1}:  # decodes only
        rows = len(step.num_scheduled_tokens)
        by_rows.setdefault(rows, []).append(1000 * (step.time_end - step.time_start))
print("ms of a step by its rows:", {rows: round(median(ms), 1) for rows, ms in sorted(by_rows.items())})

# %% [markdown]
# **Explain it, before you unfold.** Why is the factor in time smaller than that in steps? Why do throughput
# *and* mean latency gain, where usually one pays for the other?

# %% [markdown]
# <details><summary>An answer</summary>
#
# - The steps that vanish were cheap ones, with one or two rows. A step of 8 rows costs less than 8
#   steps of one row (weights are read once for all), but more than one. On a GPU, whose steps are
#   bound by reading weights, the two are nearly equal.
# - The 480 prompt tokens are the same work in both runs; here they join steps that others share.
# - Both gain because what is taken away is waste. Nobody is slowed down for it: idle slots become somebody's
#   early start. The trade between the two begins when no slot is idle any more.
# </details>

# %% [markdown]
# ## See: two runs on one time axis
#
# Above static, below continuous; a row is a request, letters are the same in both. Two questions: how many
# of the first eight have ended when I, the ninth, starts? And in which of the two does P, the sixteenth,
# start first?

# %% tags=["nbval-ignore-output"]
views = [TimelineView(static_trace, title="static"), TimelineView(my_trace, title="continuous")]
style.show(compare(views), " ".join(view.alt() for view in views)[:1500])

# %% tags=["nbval-ignore-output"]
print(views[1].table())

# %%
for label, trace in (("static", static_trace), ("continuous", my_trace)):
    first = {}
    for step in trace.steps:
        for request_id in step.num_scheduled_tokens:
            first.setdefault(request_id, step.index)
    full = sum(len(s.num_scheduled_tokens) == SLOTS for s in trace.steps if s.num_waiting)
    waiting = sum(s.num_waiting > 0 for s in trace.steps)
    print(f"{label:<11} P starts in step {sorted(first.values())[15]:>3};", end=" ")
    print(f"somebody waits in {waiting} steps, in {full} of them all slots are in use")

# %% [markdown]
# That last line is the point of iteration-level scheduling: **while anybody waits, no slot is idle.**

# %% [markdown]
# ## 4.4 Who may come in · ●●○ · 20 min · core
#
# `can_admit` of 4.2 looks at this moment only. Two things go wrong with that:
#
# - A prompt that is computed **in pieces** (lab 05 caps its share of a step) owns blocks for its first piece
#   only. The rest looks free, and is given to the next; then both are stuck.
# - Everybody who runs grows by a token a step. Fill memory to the last block, and in a few steps nobody
#   can go on.
#
# So: what the running ones still *miss* is **promised**, and one block each is kept as a **reserve**.

# %% [markdown]
# **Predict:** request A runs, 32 of its 100 tokens are computed. B waits with 60. Blocks of 16. How many
# blocks must be free for B?

# %%
### BEGIN SOLUTION
free_for_b = 4 + 5 + 1
### END SOLUTION
lab.predict("4.4", free_for_b)


# %% [markdown]
# **Spec.** On plain numbers, one block at a time.


# %%
def spec_can_admit(free_blocks, missing, missing_of_running):
    """missing: blocks the request needs; missing_of_running: a list, one number a running request."""
    for wanted in (missing, *missing_of_running, *(1 for _ in missing_of_running)):
        for _ in range(wanted):
            if free_blocks == 0:
                return False
            free_blocks -= 1
    return True


print("9 free:", "yes" if spec_can_admit(9, 4, [5]) else "no", end="; ")
print("10 free:", "yes" if spec_can_admit(10, 4, [5]) else "no")


# %% tags=["solve:4.4"]
class AdmittingScheduler(Scheduler):
    """Lets nobody in on blocks that those who run are going to need."""

    def can_admit(self, request):
        """Are the free blocks enough for all known tokens of this request, for all that the running
        requests still miss, and for a reserve of one block for each running request?"""
        ### BEGIN SOLUTION
        promised = sum(self.kv.blocks_missing(running) for running in self.running)
        reserve = len(self.running)
        return self.kv.blocks_missing(request) + promised + reserve <= self.kv.num_free_blocks
        ### END SOLUTION


# %% tags=["check:4.4"]
lab.check(AdmittingScheduler)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# Three numbers on one side, the free blocks on the other. Nothing has to be taken or changed.
#
# <details><summary>Hint 2: the key line</summary>
#
# `self.kv.blocks_missing(r)` works for whoever waits and for whoever runs: blocks for all known tokens, less
# those it has.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `promised = sum(self.kv.blocks_missing(r) for r in self.running)`; return whether
# `blocks_missing(request) + promised + len(self.running) <= num_free_blocks`.
# </details></details></details>

# %% [markdown]
# A scheduler needs no model. This is the engine's loop with a model that always says 0, so that you can try
# a rule in milliseconds.

# %%
AdmittingScheduler = lab.part("4.4")


def dry_run(scheduler_class, needs, num_blocks, arrivals=None, most_steps=2000, **more):
    """(plans, step in which each request got its first token, step in which it ended; 0 for never)."""
    scheduler = new_scheduler(scheduler_class, num_blocks, **more)
    requests, plans = new_requests(needs), []
    first, last = [0] * len(needs), [0] * len(needs)
    while not all(last) and len(plans) < most_steps:
        for i, request in enumerate(requests):
            if (arrivals[i] if arrivals else 0) == len(plans):
                scheduler.add(request)
        plan = scheduler.schedule()
        sampled = {chunk.request.request_id: [0] for chunk in plan.chunks if chunk.samples}
        plans.append(plan)
        for request, _ in scheduler.update(plan, sampled):
            first[request.arrival] = first[request.arrival] or len(plans)
            if request.is_finished:
                last[request.arrival] = len(plans)
    return plans, first, last


scheduler = new_scheduler(AdmittingScheduler, num_blocks=16, budget=32)
a, b = new_requests([(100, 8), (60, 8)])
scheduler.add(a)
plan = scheduler.schedule()
scheduler.update(plan, {})
scheduler.add(b)
print(f"A: {a.num_computed_tokens} of {a.num_tokens} computed,", end=" ")
print(f"{scheduler.kv.num_free_blocks} blocks are free")
needed = scheduler.kv.blocks_missing(b) + scheduler.kv.blocks_missing(a) + 1
lab.compare("4.4", needed)
for label, scheduler_class in (("4.2's can_admit", Scheduler), ("4.4's can_admit", AdmittingScheduler)):
    plans, _, last = dry_run(scheduler_class, [(100, 1), (60, 1), (60, 1)], 8, max_chunk=16, most_steps=50)
    stuck = sum(plan.num_tokens == 0 for plan in plans)
    print(f"{label}: {sum(map(bool, last))} of 3 ended, {len(plans)} steps, {stuck} of them empty")

# %% [markdown]
# The first one is a **deadlock**: three prompts in pieces of 16 tokens, each of which waits for blocks
# that the others hold, for ever.
#
# ### Head-of-line blocking
#
# Nobody overtakes, so a large request at the head of the queue keeps small ones out although there is room
# for them. Here is a stream of small requests, one every second step, and a large one among them. What if
# small ones may go first?

# %%
LARGE = 8
stream = [(200, 10) if i == LARGE else (20, 20) for i in range(60)]  # tokens of prompt, of answer
arrivals = [2 * i for i in range(60)]


class ShortestFirst(AdmittingScheduler):
    def add(self, request):
        super().add(request)
        self.waiting.sort(key=lambda waiting: waiting.num_prompt_tokens)


print(f"{'steps to first token':<22} {'mean':>6} {'median':>7} {'the large one':>14}")
for label, scheduler_class in (
    ("in order of arrival", AdmittingScheduler),
    ("shortest prompt first", ShortestFirst),
):
    _, first, _ = dry_run(scheduler_class, stream, num_blocks=32, arrivals=arrivals, seats=16)
    waits = [step - arrival for step, arrival in zip(first, arrivals, strict=True)]
    print(f"{label:<22} {mean(waits):>6.1f} {median(waits):>7} {waits[LARGE]:>14}")

# %% [markdown]
# With shortest first half of them do not wait at all, and the large one waits until the stream ends: it
# **starves**.
# Cures that keep a bound: let only so many overtake; let priority grow with waiting (**ageing**);
# compute long prompts in pieces, so that the head gets in earlier (lab 05); or have a second queue
# with its own share. Minivllm keeps one total order, with ageing:
# [policy.py](../minivllm/scheduler/policy.py).
#
# **Somebody hangs up.** What does an abort give back, and when?

# %%
chunked = Parts(scheduler=AdmittingScheduler, scheduler_level="chunked")
llm = LLM(parts=chunked, num_gpu_blocks_override=SLOTS * 256 // 16, **small)
for prompt in prompts[:3]:
    llm.engine.add_request(prompt * 4, params_of([40])[0])
for _ in range(5):
    llm.engine.step()
free = llm.stats()["num_free_blocks"]
output = llm.engine.abort("1")
print(f"{free} blocks free, abort, {llm.stats()['num_free_blocks']} free; it had got", end=" ")
print(f"{len(output.outputs[0].token_ids)} tokens, finish_reason {output.outputs[0].finish_reason}")
while llm.engine.has_unfinished_requests:
    llm.engine.step()
print(f"when idle: {llm.stats()['num_free_blocks']} of {llm.stats()['num_blocks']} blocks are free")

# %% [markdown]
# At once: the blocks of 48 + 4 tokens. A user who closes a tab is a seat and memory for somebody else. An
# engine that goes on until `max_tokens` gives away both.

# %% [markdown]
# ## 4.5 Preemption · ●●● · 30 min · extra
#
# Even with a reserve blocks run out: nobody knows how long answers get. Then somebody has to go. The last
# who came in gives up all its blocks, and waits again; its tokens, prompt *and* answer so far, are kept.
# When there is room it computes them again: **preemption by recompute**. The user sees a pause, and then
# the same tokens.

# %% [markdown]
# Who is in this step's plan already is safe: the plan says that it runs.
#
# **Predict:** a victim has a prompt of 80 tokens and 17 of its answer, all but the newest computed. How many
# tokens are lost? And how many does it compute before its next *new* token?

# %%
### BEGIN SOLUTION
lost = 96
computed_again = 97
### END SOLUTION
lab.predict("4.5", [lost, computed_again])

# %% [markdown]
# **Spec.** Who has to go, on plain numbers; block by block.


# %%
def spec_victims(blocks_of, in_plan, request, needed, free_blocks):
    """blocks_of: {name: blocks it owns}, in the order of coming in → (victims, does the request get its
    blocks?)."""
    victims = []
    while free_blocks < needed:
        others = [name for name in blocks_of if name not in in_plan and name not in victims]
        victims.append(others[-1])
        free_blocks += blocks_of[victims[-1]]
        if victims[-1] == request:
            return victims, False
    return victims, True


owned = {"A": 4, "B": 2, "C": 3}
print("A needs 1:", spec_victims(owned, [], "A", 1, 0)[0])
print("A needs 1, C is in the plan:", spec_victims(owned, ["C"], "A", 1, 0)[0])
print("C needs 1:", spec_victims(owned, ["A"], "C", 1, 0)[0])


# %% tags=["solve:4.5"]
class PreemptingScheduler(AdmittingScheduler):
    """Takes blocks back when there are none. What was computed with them is computed again later."""

    def place(self, request, n, plan):
        """Like place of 4.2, but while reserve gives None the last of self.running that has no chunk in
        this plan is preempted. If that is the request itself, it gets no chunk."""
        ### BEGIN SOLUTION
        start = self.kv.open(request)
        while (table := self.kv.reserve(request, start + n)) is None:
            in_plan = [chunk.request for chunk in plan.chunks]
            victim = [running for running in self.running if running not in in_plan][-1]
            self.preempt(victim, plan)
            if victim is request:
                return
        plan.chunks.append(Chunk(request, start, n, table))
        ### END SOLUTION

    def preempt(self, victim, plan):
        """Take all blocks of a running request, and let it wait again, in order of arrival.

        plan.preempted gets its id, plan.num_lost_tokens grows by its num_computed_tokens, which become
        0; its num_preemptions grows by 1, its status is Status.WAITING."""
        ### BEGIN SOLUTION
        plan.preempted.append(victim.request_id)
        plan.num_lost_tokens += victim.num_computed_tokens
        self.kv.free(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        victim.status = Status.WAITING
        self.running.remove(victim)
        self.waiting = sorted([victim, *self.waiting], key=lambda request: request.arrival)
        ### END SOLUTION


# %% tags=["check:4.5"]
lab.check(PreemptingScheduler)

# %% [markdown]
# <details><summary>Hint 1: direction</summary>
#
# `place` is a loop around `reserve`: not enough blocks, one victim more, ask again. Nothing else of your
# scheduler changes.
#
# <details><summary>Hint 2: the key line</summary>
#
# `[r for r in self.running if r not in in_plan][-1]`, where `in_plan` are the requests of `plan.chunks`. The
# request is not in the plan itself yet, so the list is never empty.
#
# <details><summary>Hint 3: nearly code</summary>
#
# `while (table := self.kv.reserve(request, start + n)) is None:` preempt the victim; `if victim is request:
# return`. In `preempt` count what is lost *before* you set `num_computed_tokens = 0`; free; move it to
# `waiting`, sorted by `arrival`.
# </details></details></details>

# %%
PreemptingScheduler = lab.part("4.5")
scheduler = new_scheduler(PreemptingScheduler, num_blocks=12)
first, victim = new_requests([(80, 40), (80, 40)])
for request in (first, victim):
    scheduler.add(request)
while not victim.num_preemptions:
    plan = scheduler.schedule()
    scheduler.update(plan, {c.request.request_id: [0] for c in plan.chunks if c.samples})
print(f"preempted: {plan.preempted}, lost {plan.num_lost_tokens} tokens; it knows {victim.num_tokens}")
lab.compare("4.5", [plan.num_lost_tokens, victim.num_tokens])

# %% [markdown]
# ## Measure: what too little memory costs
#
# Twelve requests with prompts of 48 to 96 tokens, in pools of 64, 24 and 12 blocks. The largest request alone
# takes 8 blocks: the last pool holds **one and a half requests**. A budget of 64 tokens cuts prompts into
# pieces.
#
# Before you run it: in which pool do you expect the first preemption? Will any token be another one?

# %%
rng = random.Random(0)
needs = [(rng.randint(48, 96), rng.randint(16, 32)) for _ in range(12)]
long_prompts = [request.token_ids for request in new_requests(needs)]
preempting = Parts(scheduler=PreemptingScheduler, scheduler_level="preempting")
engine = dict(max_num_batched_tokens=64, num_gpu_blocks_override=64, **small)
llm = LLM(parts=preempting, **engine)
runs = {}


def run_in(llm, num_blocks, **settings):
    """(tokens, trace) of the twelve requests."""
    llm.engine.reconfigure(num_blocks=num_blocks, **settings)
    return tokens_of(llm.generate(long_prompts, params_of(n for _, n in needs), use_tqdm=False)), llm.trace


def row(label, steps):
    """steps: those of a trace, or plans."""
    on_trace = hasattr(steps[0], "num_scheduled_tokens")
    computed = sum(sum(s.num_scheduled_tokens.values()) if on_trace else s.num_tokens for s in steps)
    preempted, lost = sum(len(s.preempted) for s in steps), sum(s.num_lost_tokens for s in steps)
    print(f"{label:<28} {len(steps):>5} {preempted:>10} {lost:>6} {computed:>10}")


for num_blocks in (64, 24, 12):
    runs[num_blocks] = run_in(llm, num_blocks)
print(f"{'':<28} {'steps':>5} {'preempted':>10} {'lost':>6} {'computed':>10}")
for num_blocks, (_, trace) in runs.items():
    row(f"{num_blocks} blocks", trace.steps)
print("same tokens in all pools:", runs[12][0] == runs[24][0] == runs[64][0])

# %% tags=["nbval-ignore-output"]
figure, (left, right) = style.figure(columns=2, width=8)
total = sum(n for _, n in needs)
for number, (num_blocks, (_, trace)) in enumerate(runs.items()):
    style.bar(left, f"{num_blocks}", total / seconds_of(trace), number)
    style.bar(right, f"{num_blocks}", sum(len(s.preempted) for s in trace.steps), number)
    print(f"{num_blocks:>3} blocks: {total / seconds_of(trace):>4.0f} tokens/s")
left.set(xlabel="blocks in the pool", ylabel="output tokens a second", title="throughput")
right.set(xlabel="blocks in the pool", ylabel="times", title="preempted")
style.show(figure, "Throughput falls with the pool; preemptions appear only in the smallest one.")

# %% [markdown]
# Throughput falls long before the first preemption. Fewer requests fit, so fewer share the reading of the
# weights: **a small pool costs batch size first, work done twice second.**
#
# The run in 12 blocks; hatched is what is computed again, × a preemption.

# %% tags=["nbval-ignore-output"]
view = TimelineView(runs[12][1], title="a pool for one and a half requests")
style.show(view.figure(), view.alt())
print(view.table())

# %% [markdown]
# ### How careful should admission be?
#
# Four rules in 12 blocks, without a model: whoever finds **one free block**; room for its own known tokens
# (4.2); with promises and a reserve (4.4); **the worst case**, with room for all that may ever come, so that
# nobody is ever preempted. Which takes the fewest steps? Which computes the most tokens?


# %%
class OneBlock(PreemptingScheduler):
    def can_admit(self, request):
        return self.kv.num_free_blocks >= 1


class OwnBlocks(PreemptingScheduler):
    def can_admit(self, request):
        return self.kv.blocks_missing(request) <= self.kv.num_free_blocks


class WorstCase(PreemptingScheduler):
    def may_come(self, request):
        most = -(-(request.num_prompt_tokens + request.max_tokens - 1) // 16)
        return most - -(-request.num_tokens // 16) + self.kv.blocks_missing(request)

    def can_admit(self, request):
        return sum(map(self.may_come, [*self.running, request])) <= self.kv.num_free_blocks


print(f"{'':<28} {'steps':>5} {'preempted':>10} {'lost':>6} {'computed':>10}")
for label, rule in (
    ("one free block", OneBlock),
    ("its own known tokens", OwnBlocks),
    ("promises and a reserve", PreemptingScheduler),
    ("the worst case", WorstCase),
):
    plans, _, last = dry_run(rule, needs, 12, budget=64)
    row(label, plans)
    assert all(last)

# %% [markdown]
# The first rule **thrashes**: a prompt comes in, computes a piece, loses it, comes in again. It computes more
# than three times what is needed. The worst case wastes nothing twice, and leaves blocks idle that
# most answers never need, so it takes the most steps. Optimism with a reserve lies between the two.
# Where the best point is depends on what a token costs against a step: prompts are dear on a CPU,
# steps are dear on a GPU.
#
# ### Recompute or swap?
#
# **Swap** moves a victim's blocks to host memory and brings them back later. Your scheduler does not;
# minivllm's can. Same pool, both ways.

# %%
llm = LLM(preemption_mode="swap", swap_space=0.05, **engine)  # minivllm's own scheduler
both = {}
for mode in ("recompute", "swap"):
    both[mode] = run_in(llm, 12, preemption_mode=mode)
    steps_taken = list(both[mode][1].steps)
    moved = sum(s.num_swapped_out + s.num_swapped_in for s in steps_taken)
    computed = sum(sum(s.num_scheduled_tokens.values()) for s in steps_taken)
    times = sum(len(s.preempted) for s in steps_taken)
    print(f"{mode:<10} {len(steps_taken)} steps, preempted {times} times,", end=" ")
    print(f"computed {computed} tokens, moved {moved} blocks")
print("same tokens:", both["swap"][0] == both["recompute"][0] == runs[64][0])

# %% tags=["nbval-ignore-output"]
for mode, (_, trace) in both.items():
    print(f"{mode:<10} {seconds_of(trace):.2f} s")

# %% [markdown]
# On a CPU both memories are the same RAM, so these seconds say little; the counts carry over. Which is
# cheaper on a GPU, for each token of a victim? Recompute: 2 FLOPs a weight. Swap: its keys and values, there
# and back. So the model's size and its KV bytes decide, and the ratio of two machine rates.
#
# **Predict:** below, for which of the four models is recompute cheaper? An H100 at half its 989 TFLOP/s, a
# PCIe link of 50 GB/s.

# %%
FLOPS, LINK = 0.5 * 989e12, 50e9
models = {  # parameters, bytes of keys and values a token (2-byte numbers)
    "SmolLM2, 135 M": (135e6, 2 * 30 * 3 * 64 * 2),
    "7 B, multi-head": (6.7e9, 2 * 32 * 32 * 128 * 2),
    "8 B, 8 KV heads": (8.0e9, 2 * 32 * 8 * 128 * 2),
    "70 B, 8 KV heads": (70e9, 2 * 80 * 8 * 128 * 2),
}
print(f"{'µs a token':<18} {'recompute':>10} {'swap':>6}   recompute is cheaper below")
for name, (parameters, kv_bytes) in models.items():
    recompute, swap = 2 * parameters / FLOPS, 2 * kv_bytes / LINK
    bandwidth = kv_bytes * FLOPS / parameters
    print(f"{name:<18} {1e6 * recompute:>10.1f} {1e6 * swap:>6.1f}   {bandwidth / 1e9:>4.0f} GB/s")

# %% [markdown]
# By this count swap wins but for the smallest model. Yet vLLM's engine of today has recompute only. What does
# the count leave out?

# %% [markdown]
# <details><summary>An answer</summary>
#
# - **Small pieces.** A block of one layer is 32 KiB here, and keys and values lie in different places. A link
#   reaches a fraction of its rate with such transfers (Kwon et al., 2023, measured swap as the worse
#   for small blocks).
# - **Company.** Recomputed tokens share a step with decodes that only read weights: the arithmetic may
#   be idle anyway.
# - **The prefix cache.** A victim's full blocks stay findable until they are evicted; often there is
#   little to recompute (next).
# - Swap needs host memory, a second path, and a bound of its own.
# </details>

# %% [markdown]
# ### A prefix-cached victim
#
# The same twelve in 12 blocks with prefix caching (lab 06): full blocks of a victim stay in the cache as long
# as nobody needs them. **Question.** What must the scheduler do differently?

# %%
print(f"{'':<28} {'steps':>5} {'preempted':>10} {'lost':>6} {'computed':>10}")
for label, cache in (("without prefix cache", None), ("with prefix cache", HashPrefixCache(16))):
    plans, _, last = dry_run(PreemptingScheduler, needs, 12, budget=64, prefix_cache=cache)
    row(label, plans)

# %% [markdown]
# <details><summary>An answer</summary>
#
# Nothing, if it has no special cases. `kv.open` says where to start, after a preemption as for a new request,
# and a match ends one token before the last, so that there is always something to compute. Fewer tokens are
# computed than are lost.
#
# Public faults of small engines are mostly here. A flag "is a prefill" that is wrong for somebody who comes
# back with half an answer; a count of cached tokens that outlives the blocks; a wholly cached prompt that
# leaves no token to compute and so no logits; blocks freed by the victim that a neighbour still shares.
# </details>

# %% [markdown]
# ## Break it
#
# **A. Forget to come back in order.** Victims go to the *end* of the queue. Everybody is still served. Who
# pays?


# %%
class ToTheEnd(PreemptingScheduler):
    def preempt(self, victim, plan):
        super().preempt(victim, plan)
        self.waiting.remove(victim)
        self.waiting.append(victim)


for label, rule in (("by arrival", PreemptingScheduler), ("to the end", ToTheEnd)):
    plans, first, last = dry_run(rule, needs, 12, budget=64)
    gaps = [end - start - n + 1 for (_, n), start, end in zip(needs, first, last, strict=True)]
    print(f"{label}: {len(plans)} steps; pauses after the first token, in steps: {gaps}")

# %% [markdown]
# Those who were preempted: their users have read half an answer, and now stare at it until the whole
# queue has been served.
#
# **B. Admit all of it.** With a single seat (`max_num_seqs=1`) and with 1,000 seats, in the pool of
# 64: before you run it, how do steps change? Which number limits the batch in each?

# %%
for seats in (1, 4, 8, 1000):
    plans, _, _ = dry_run(PreemptingScheduler, needs, 64, seats=seats, budget=64)
    at_once = max(len(plan.chunks) for plan in plans)
    print(f"{seats:>5} seats: {len(plans):>4} steps, at most {at_once:>2} requests in one")

# %% [markdown]
# ## The engine of your parts
#
# Whatever passes up to here, in one engine with ordinary settings.

# %% tags=["nbval-ignore-output"]
llm = lab.engine(device="cpu", max_model_len=256, num_gpu_blocks_override=40, max_num_seqs=8)

# %%
same = tokens_of(llm.generate(prompts, params_of(answers), use_tqdm=False)) == tokens_of(static_outputs)
print("same tokens as in static batches:", same)
print(f"free when idle: {llm.stats()['num_free_blocks']} of {llm.stats()['num_blocks']} blocks")

# %% [markdown]
# Claims about engines, this one included, should be repeatable: `python -m minivllm bench claims C4 C7` runs
# both of this lab's on your machine, against the ranges that the arithmetic gives.

# %% [markdown]
# ## Interview corner
#
# Say your answer aloud before you unfold.
#
# <details><summary><b>1.</b> What is continuous batching, and what did it replace?</summary>
#
# - *Before:* request-level scheduling. A batch is fixed until its longest answer is done: idle slots, and
#   newcomers wait for strangers.
# - *Orca's idea:* schedule **iterations**. After each forward pass whoever has ended leaves, whoever
#   waits joins.
# - *Selective batching:* linear layers take all tokens of all requests as one matrix, whatever their lengths;
#   only attention is done for each request with its own context. (Today one ragged kernel does that.)
# - Strong: names the gain from lengths alone, mean against maximum, and says when there is none.
# </details>

# %% [markdown]
# <details><summary><b>2.</b> Why do throughput and mean latency both gain? Is that not a trade?</summary>
#
# - Idle slots were paid for and served nobody. Filling them speeds up those who wait, and delays nobody.
# - It is a trade again once slots are full: more seats mean a larger batch, so a longer step, so a higher
#   inter-token latency for everyone, for more tokens a second.
# - Strong: a joining prompt makes *that* step long for those who decode: the stall of lab 05.
# </details>

# %% [markdown]
# <details><summary><b>3.</b> Two classes of work in one engine: chat that must be quick, and batch
# jobs that may wait. How does the scheduler treat them?</summary>
#
# - One total order for admission, blocks and victims: chat before batch, so batch work is the first to be
#   preempted and fills whatever is idle.
# - Ageing (or a share), so that batch work does not starve under steady chat.
# - A bound on the step: chunked prefill with a budget that fits the chat's inter-token target.
# - A reserve for bursts: batch work may not take the last blocks.
# - Strong: says when to part them into two pools of machines instead (tails interfere; scaling differs).
# </details>

# %% [markdown]
# <details><summary><b>4.</b> Memory is full. Recompute or swap?</summary>
#
# - Recompute costs 2 · parameters FLOPs a token, in company of other work; swap costs the KV bytes
#   twice over the host link, in small pieces, and host memory.
# - Crossover: KV bytes · FLOP/s ÷ parameters, a bandwidth. Below it recompute wins.
# - Long contexts add attention, O(t²), to recompute. A prefix cache takes most of it away.
# - Strong: avoid both, with admission that keeps a reserve; a preemption rate above a few per cent
#   means the pool is too small or `max_num_seqs` too large.
# </details>

# %% [markdown]
# <details><summary><b>5.</b> What breaks if a request that is already in this step's plan is chosen as a
# victim?</summary>
#
# - Its blocks go to somebody else, and both write keys into the same slots in this step. No crash: one
#   of the two reads the other's text.
# - The same family: advancing `num_computed_tokens` when a step is planned, not when it has run (a failed or
#   aborted step leaves tokens that were never computed); freeing blocks of an aborted request that a
#   GPU still writes.
# - Strong: knows that with an asynchronous scheduler, which plans step n + 1 while n runs, this is the hard
#   part.
# </details>

# %%
lab.progress()

# %% [markdown]
# ## What you built, and where it lives
#
# - Your parts: `my_engine/`. Minivllm's: [continuous.py](../minivllm/scheduler/continuous.py), which
#   adds policies, forks and swapping; [planner.py](../minivllm/scheduler/planner.py); the levels that
#   the engine asks for: [levels.py](../minivllm/scheduler/levels.py).
#
# **vLLM** has the same rule, `num_computed_tokens` catching up, in a scheduler of over 3,000 lines; it
# preempts by recompute, last come first. **SGLang** estimates how much of `max_tokens` answers really
# use, admits by that, and *retracts* requests when it was too optimistic.
#
# **Read on:** Yu et al., *Orca* (2022); Kwon et al., *PagedAttention* (2023), section 4.5; Sheng et
# al., *Fairness in Serving Large Language Models* (2024).
