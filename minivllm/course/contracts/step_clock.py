"""5.3 `StepClock(cfg, gpu, dtype_bytes)`: `chunk_time(tokens, context, decodes)` in seconds, and
`budget(target, prompt_len, decodes)` in tokens.

The roofline of lab 00 for a mixed step: FLOPs add up, bytes too, but weights are read once. The budget is
for the slowest step of a prompt, a whole chunk at its very end.
"""

from __future__ import annotations

import random
from typing import Any

from .expect import refuses, show
from .rules import Broken, Rules
from .small_shapes import bytes_of, describe, equal, flops_of, lent, machine, random_shape, shape

rules = Rules()
SLOW_MEMORY, SLOW_ARITHMETIC = machine(10**15, 10**6), machine(10**6, 10**15)


def _seconds(cfg: Any, gpu: Any, dtype_bytes: int, chunks: list[tuple[int, int]]) -> float:
    nothing_cached = bytes_of(cfg, 0, 0, dtype_bytes)  # the weights alone
    flops = sum(flops_of(cfg, n, context) for n, context in chunks)
    moved = nothing_cached
    moved += sum(bytes_of(cfg, n, context, dtype_bytes) - nothing_cached for n, context in chunks)
    return max(flops / gpu.flops, moved / gpu.bandwidth)


def _clock(part, cfg, gpu, dtype_bytes: int) -> tuple[str, Any]:
    speeds = f"gpu: {gpu.flops:,} FLOP/s, {gpu.bandwidth:,} bytes/s"
    return f"StepClock(cfg, gpu, {dtype_bytes}), {speeds}, {describe(cfg)}", part(
        lent(cfg), lent(gpu), dtype_bytes
    )


def _time(part, cfg, gpu, tokens: int, context: int, decodes: list[int], dtype_bytes: int = 2) -> None:
    want = _seconds(cfg, gpu, dtype_bytes, [(tokens, context), *((1, seen) for seen in decodes)])
    made, clock = _clock(part, cfg, gpu, dtype_bytes)
    got = clock.chunk_time(tokens, context, list(decodes))
    equal(f"chunk_time({tokens}, {context}, {show(decodes)}) of {made}", got, want, " s")


def _budget(part, cfg, gpu, chunk: int, prompt_len: int, decodes: list[int]) -> None:
    """The budget for a target that a chunk of so many tokens just meets."""

    def slowest(n: int) -> float:
        return _seconds(cfg, gpu, 2, [(n, prompt_len), *((1, seen) for seen in decodes)])

    target = slowest(chunk) * 1.5 if chunk == prompt_len else (slowest(chunk) + slowest(chunk + 1)) / 2
    want = len(decodes) + chunk
    made, clock = _clock(part, cfg, gpu, 2)
    got = clock.budget(target, prompt_len, list(decodes))
    if type(got) is not int or got != want:
        called = f"budget({target:.6g}, {prompt_len}, {show(decodes)}) of {made}"
        words = f"{want}: {len(decodes)} decodes and a chunk of {chunk}"
        raise Broken(called, show(got), words)


@rules.add(
    "Without decodes it is lab 00: Cost(*flops_and_bytes(cfg, tokens, context, dtype_bytes)).seconds(gpu)"
)
def a_chunk_alone_takes_what_lab_00_says(part, rng):
    for gpu in (SLOW_ARITHMETIC, SLOW_MEMORY):
        for tokens, context in ((1, 1), (8, 8), (8, 40), (1, 40)):
            _time(part, shape(), gpu, tokens, context, [])


@rules.add("A decode is a chunk of one token: add its FLOPs, flops_and_bytes(cfg, 1, seen, …)[0].")
def decodes_add_their_arithmetic(part, rng):
    for decodes in ([5], [5, 90], [30] * 8):
        _time(part, shape(), SLOW_ARITHMETIC, 8, 40, decodes)


@rules.add("Each decode reads the keys and values of its own context, and writes one token's.")
def every_decode_reads_its_own_cache(part, rng):
    cfg = shape()
    made, clock = _clock(part, cfg, SLOW_MEMORY, 2)
    for near, far in (([5], [6]), ([5, 90], [9, 97])):
        more = clock.chunk_time(8, 40, list(far)) - clock.chunk_time(8, 40, list(near))
        want = _seconds(cfg, SLOW_MEMORY, 2, [(1, c) for c in far])
        want -= _seconds(cfg, SLOW_MEMORY, 2, [(1, c) for c in near])
        if not abs(more - want) <= 1e-6 * want:
            called = f"chunk_time(8, 40, {far}) less chunk_time(8, 40, {near}) of {made}"
            raise Broken(called, f"{more:.6g} s", f"{want:.6g} s")


@rules.add("One step reads the weights once, whoever is in it: take them off for each decode you add.")
def weights_are_read_once_in_a_step(part, rng):
    for decodes in ([5], [5, 90], [30] * 8):
        _time(part, shape(), SLOW_MEMORY, 8, 40, decodes)


@rules.add("Add up FLOPs and bytes of the whole step, then take the longer time: Cost(flops, bytes).seconds.")
def the_step_as_a_whole_is_bound_by_one_of_the_two(part, rng):
    cfg = shape()
    chunk, decodes = [(30, 30)], [(1, 400)] * 6
    flops = sum(flops_of(cfg, n, c) for n, c in chunk + decodes)
    moved = _seconds(cfg, machine(10**30, 1), 2, chunk + decodes)
    for ratio in (0.8, 1.25):
        gpu = machine(10**6, round(10**6 * moved / flops * ratio))
        _time(part, cfg, gpu, 30, 30, [400] * 6)


@rules.add("dtype_bytes is the size of every number that moves: of weights, keys and values.")
def the_size_of_a_number_counts(part, rng):
    for dtype_bytes in (1, 4):
        _time(part, shape(), SLOW_MEMORY, 8, 40, [5, 90], dtype_bytes)


@rules.add("The sum of all chunks' FLOPs and bytes, weights once, through the roofline.")
def times_hold_for_any_step(part, rng):
    for _ in range(15):
        gpu = machine(rng.randint(10**6, 10**9), rng.randint(10**5, 10**7))
        context = rng.randint(1, 200)
        decodes = [rng.randint(1, 200) for _ in range(rng.randint(0, 6))]
        sizes = rng.randint(1, context), context, decodes, rng.choice([1, 2, 4])
        _time(part, random_shape(rng), gpu, *sizes)


@rules.add("The budget is for everybody in the step: the decodes' tokens and the chunk.")
def the_budget_holds_decodes_and_chunk(part, rng):
    _budget(part, shape(), SLOW_ARITHMETIC, 7, 20, [])
    _budget(part, shape(), SLOW_ARITHMETIC, 7, 20, [10, 30, 50])


@rules.add("The slowest step is the last: a whole chunk whose last token sees prompt_len tokens.")
def the_last_chunk_decides(part, rng):
    for prompt_len in (30, 200):
        _budget(part, shape(), SLOW_ARITHMETIC, 9, prompt_len, [10, 30])


@rules.add("Where memory is slow, a few more tokens cost next to nothing: the target decides, not a formula.")
def a_budget_can_be_bound_by_memory(part, rng):
    _budget(part, shape(), SLOW_MEMORY, 12, 60, [10, 30])
    _budget(part, shape(), machine(10**7, 10**6), 12, 60, [10, 30])


@rules.add("No chunk is larger than the prompt: at most len(decodes) + prompt_len.")
def a_generous_target_takes_the_prompt_whole(part, rng):
    for gpu in (SLOW_ARITHMETIC, SLOW_MEMORY):
        _budget(part, shape(), gpu, 25, 25, [10, 30])


@rules.add(
    "One prompt token is the least; a target that forbids it is a ValueError, not a budget of no chunk."
)
def one_token_may_be_all_that_fits(part, rng):
    cfg, decodes = shape(), [10, 30, 50]
    _budget(part, cfg, SLOW_ARITHMETIC, 1, 40, decodes)
    least = _seconds(cfg, SLOW_ARITHMETIC, 2, [(1, 40), *((1, seen) for seen in decodes)])
    made, clock = _clock(part, cfg, SLOW_ARITHMETIC, 2)
    for target in (least * 0.99, least / 2):
        called = f"budget({target:.6g}, 40, {decodes}) of {made}"
        refuses(called, lambda t=target: clock.budget(t, 40, list(decodes)))


@rules.add("Keep cfg, gpu and dtype_bytes on self, in __init__.")
def two_clocks_share_nothing(part, rng):
    cfg = shape()
    made, clock = _clock(part, cfg, SLOW_ARITHMETIC, 2)
    want = _seconds(cfg, SLOW_ARITHMETIC, 2, [(4, 9)])
    part(lent(shape(num_layers=9)), lent(SLOW_MEMORY), 4)
    equal(
        f"chunk_time(4, 9, []) of {made}, after another clock was made",
        clock.chunk_time(4, 9, []),
        want,
        " s",
    )


@rules.add(
    "The largest chunk, from 1 to prompt_len, whose time at the end of the prompt is within the target."
)
def budgets_hold_for_any_prompt(part, rng):
    for _ in range(12):
        gpu = machine(rng.randint(10**6, 10**9), rng.randint(10**5, 10**7))
        prompt_len = rng.randint(1, 60)
        decodes = _contexts(rng)
        _budget(part, random_shape(rng), gpu, rng.randint(1, prompt_len), prompt_len, decodes)


def _contexts(rng: random.Random) -> list[int]:
    return [rng.randint(1, 200) for _ in range(rng.randint(0, 6))]
