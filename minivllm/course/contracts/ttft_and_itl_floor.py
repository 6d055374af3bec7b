"""0.5 `ttft_and_itl_floor(cfg, gpu, prompt_len, batch)` → (ttft, itl) in seconds, numbers of 2 bytes.

TTFT: the prefill of one prompt on an idle machine. ITL: the first decode step of `batch` such requests.
"""

from __future__ import annotations

from .rules import Broken, Rules
from .small_shapes import bytes_of, describe, equal, flops_of, lent, machine, pair, random_shape, shape

rules = Rules()
TTFT, ITL = 0, 1
TIMES = "seconds to the first token, seconds between tokens"
SLOW_MEMORY, SLOW_ARITHMETIC = machine(10**15, 10**6), machine(10**6, 10**15)


def _call(cfg, gpu, prompt_len, batch) -> str:
    speeds = f"gpu: {gpu.flops:,} FLOP/s, {gpu.bandwidth:,} bytes/s"
    return f"ttft_and_itl_floor(cfg, gpu, {prompt_len}, {batch}), {speeds}, {describe(cfg)}"


def _seconds(gpu, cfg, num_tokens, context_len, batch=1) -> float:
    moving = bytes_of(cfg, num_tokens, context_len, 2, batch) / gpu.bandwidth
    return max(flops_of(cfg, num_tokens, context_len, batch) / gpu.flops, moving)


def _compare(part, which, cfg, gpu, prompt_len, batch) -> None:
    called = _call(cfg, gpu, prompt_len, batch)
    got = pair(called, part(lent(cfg), lent(gpu), prompt_len, batch), TIMES)
    if which == TTFT:
        want = _seconds(gpu, cfg, prompt_len, prompt_len)
    else:
        want = _seconds(gpu, cfg, 1, prompt_len + 1, batch)
    equal(f"{called}: {('TTFT', 'ITL')[which]}", got[which], want, " s")


@rules.add("return ttft, itl")
def it_returns_two_times(part, rng):
    called = _call(shape(), SLOW_MEMORY, 8, 1)
    got = pair(called, part(shape(), lent(SLOW_MEMORY), 8, 1), TIMES)
    if min(got) <= 0:
        raise Broken(called, f"{got}", "two positive numbers")


@rules.add("Prefill is one forward: num_tokens = context_len = prompt_len. Its FLOPs / gpu.flops, if longer.")
def first_token_waits_for_the_arithmetic_of_the_prompt(part, rng):
    for prompt_len in (1, 9, 200):
        _compare(part, TTFT, shape(), SLOW_ARITHMETIC, prompt_len, 1)


@rules.add("A short prompt still needs every weight read: bytes / gpu.bandwidth. Numbers take 2 bytes.")
def first_token_waits_for_the_weights_too(part, rng):
    for prompt_len in (1, 9):
        _compare(part, TTFT, shape(), SLOW_MEMORY, prompt_len, 1)


@rules.add("TTFT is that of one prompt on an idle machine; batch has no part in it.")
def first_token_does_not_wait_for_the_others(part, rng):
    for batch in (1, 7):
        _compare(part, TTFT, shape(), SLOW_ARITHMETIC, 9, batch)
        _compare(part, TTFT, shape(), SLOW_MEMORY, 9, batch)


@rules.add("A decode step gives each request 1 token; with it, the context is prompt_len + 1 tokens.")
def a_decode_step_reads_prompt_and_new_token(part, rng):
    for prompt_len in (1, 2, 500):
        _compare(part, ITL, shape(), SLOW_MEMORY, prompt_len, 1)


@rules.add("One step serves the whole batch: weights once, keys and values for each request.")
def a_batch_shares_the_weights_and_not_the_cache(part, rng):
    for batch in (2, 10):
        _compare(part, ITL, shape(), SLOW_MEMORY, 50, batch)


@rules.add("Decode can be compute-bound too: take the longer of both times here as well.")
def a_large_batch_waits_for_arithmetic(part, rng):
    for batch in (1, 30):
        _compare(part, ITL, shape(), SLOW_ARITHMETIC, 4, batch)


@rules.add("Two forwards, Cost(*flops_and_bytes(…)).seconds(gpu) of each.")
def it_holds_for_any_model_and_machine(part, rng):
    for _ in range(20):
        cfg, gpu = random_shape(rng), machine(rng.randint(10**6, 10**9), rng.randint(10**5, 10**7))
        prompt_len, batch = rng.randint(1, 400), rng.randint(1, 40)
        for which in (TTFT, ITL):
            _compare(part, which, cfg, gpu, prompt_len, batch)
