"""5.1 `latencies(trace)` → {request id: (TTFT, [ITL, …])}, in seconds.

`trace.requests` maps ids to records with an `arrival_time`; `trace.steps` are records with `sampled`, the ids
that got a token, and `time_end`, when they had it.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from .expect import show
from .rules import Broken, Rules
from .small_shapes import is_number

rules = Rules()


class Steps:
    """Records of steps that count how often they are gone through."""

    def __init__(self, steps: list) -> None:
        self._steps = steps
        self.num_reads = 0

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: int) -> Any:
        self.num_reads += 1
        return self._steps[index]

    def __iter__(self) -> Any:
        self.num_reads += len(self._steps)
        return iter(list(self._steps))


def trace(arrivals: dict[str, float], steps: list[tuple[float, float, str]], chunks: str = "") -> Any:
    """`steps`: (start, end, letters of those who got a token). Who is in `chunks` is scheduled in every
    step, too, and computes a piece of a prompt."""
    records = []
    for index, (start, end, letters) in enumerate(steps):
        scheduled = {**dict.fromkeys(chunks, 4), **dict.fromkeys(letters, 1)}
        record = SimpleNamespace(
            index=index,
            time_start=start,
            time_end=end,
            num_scheduled_tokens=scheduled,
            sampled=list(letters),
            finished=[],
            preempted=[],
        )
        records.append(record)
    requests = {name: SimpleNamespace(request_id=name, arrival_time=t) for name, t in arrivals.items()}
    return SimpleNamespace(requests=requests, steps=Steps(records))


def _expected(arrivals: dict[str, float], steps: list) -> dict[str, tuple[float | None, list[float]]]:
    found = {}
    for name, arrival in arrivals.items():
        ends = [end for _, end, letters in steps if name in letters]
        gaps = [ends[i] - ends[i - 1] for i in range(1, len(ends))]
        found[name] = (ends[0] - arrival if ends else None), gaps
    return found


def _words(arrivals: dict[str, float], steps: list) -> str:
    came = ", ".join(f"{name} arrives at {t:g} s" for name, t in arrivals.items())
    some = "; ".join(f"{start:g}–{end:g} s: {letters or 'no token'}" for start, end, letters in steps[:5])
    return f"latencies(trace); {came}; tokens in steps {some}{'; …' if len(steps) > 5 else ''}"


def _check(part: Any, arrivals: dict[str, float], steps: list, chunks: str = "", itls: bool = True) -> None:
    called = _words(arrivals, steps)
    want = _expected(arrivals, steps)
    got = part(trace(arrivals, steps, chunks))
    if not isinstance(got, dict):
        raise Broken(called, show(got), "a dict: {request id: (ttft, itls)}")
    if set(got) != set(want):
        raise Broken(called, f"requests {sorted(map(str, got))}", f"requests {sorted(want)}")
    for name, (ttft, gaps) in want.items():
        pair = got[name]
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[1], list):
            raise Broken(called, f"{name}: {show(pair)}", "a pair: TTFT, list of ITLs")
        if not _same(pair[0], ttft):
            raise Broken(called, f"TTFT of {name}: {_number(pair[0])}", _number(ttft))
        if not itls:
            continue
        if len(pair[1]) != len(gaps):
            words = f"{len(gaps)}: one between each two tokens"
            raise Broken(called, f"{len(pair[1])} ITLs of {name}", words)
        for number, (mine, right) in enumerate(zip(pair[1], gaps, strict=True), 1):
            if not _same(mine, right):
                raise Broken(called, f"ITL {number} of {name}: {_number(mine)}", _number(right))


def _same(got: Any, want: float | None) -> bool:
    return got is None if want is None else is_number(got) and abs(got - want) < 1e-9


def _number(value: Any) -> str:
    return f"{value:g} s" if is_number(value) else show(value)


@rules.add("A request waits from its arrival to the end of the first step that gives it a token.")
def ttft_runs_from_arrival_to_the_first_token(part, rng):
    _check(part, {"A": 0.5}, [(1.0, 1.25, "A")], itls=False)
    _check(part, {"A": 0.0, "B": 0.5}, [(0.0, 1.0, "A"), (1.0, 3.0, "B")], itls=False)


@rules.add("n tokens have n − 1 gaps: each token's time less that of the one before it.")
def itls_lie_between_neighbouring_tokens(part, rng):
    _check(part, {"A": 0.0}, [(0.0, 1.0, "A"), (1.0, 1.5, "A"), (1.5, 3.5, "A")])
    _check(part, {"A": 0.25}, [(0.5, 1.0, "A"), (1.0, 1.5, "A")])


@rules.add("A user feels the time between two tokens, not the length of a step: end to end, pauses included.")
def time_between_steps_counts(part, rng):
    _check(part, {"A": 0.0}, [(0.25, 0.5, "A"), (2.0, 2.25, "A"), (4.0, 4.5, "A")])


@rules.add("Look at step.sampled: a step that computes a piece of a prompt gives its request no token.")
def a_chunk_is_no_token(part, rng):
    steps = [(0.0, 1.0, "A"), (1.0, 3.0, "A"), (3.0, 4.0, "AB"), (4.0, 4.5, "B")]
    _check(part, {"A": 0.0, "B": 0.5}, steps, chunks="B")


@rules.add("The gap of a request that is left out of some steps goes on until its next token.")
def a_request_left_out_has_a_longer_gap(part, rng):
    steps = [(0.0, 1.0, "AB"), (1.0, 2.0, "A"), (2.0, 3.0, "A"), (3.0, 4.0, "AB")]
    _check(part, {"A": 0.0, "B": 0.0}, steps)


@rules.add("Everybody in trace.requests is in the answer; (None, []) for who has no token yet.")
def no_token_yet_is_none(part, rng):
    _check(part, {"A": 0.0, "B": 0.5}, [(0.0, 1.0, "A"), (1.0, 2.0, "")])
    _check(part, {"A": 0.0}, [])


@rules.add("Times begin anywhere: they are seconds of a clock that was started long before.")
def only_differences_matter(part, rng):
    for zero in (1024.0, 65536.0):
        _check(part, {"A": zero}, [(zero, zero + 1, "A"), (zero + 1, zero + 1.5, "A")])


@rules.add("One pass over the steps: keep the time of each request's last token while you go.")
def the_steps_are_gone_through_once(part, rng):
    names = [f"r{i}" for i in range(40)]
    made = trace(dict.fromkeys(names, 0.0), [])
    records = [
        SimpleNamespace(index=i, time_start=i / 4, time_end=(i + 1) / 4, sampled=names) for i in range(10)
    ]
    made.steps = Steps(records)
    part(made)
    if made.steps.num_reads > 30:
        called = "latencies(trace) with 40 requests and 10 steps"
        raise Broken(called, f"{made.steps.num_reads} reads of a step", "one for each step, or nearly")


@rules.add("Keep nothing between calls.")
def two_traces_do_not_mix(part, rng):
    for _ in range(2):
        _check(part, {"A": 0.0}, [(0.0, 1.0, "A"), (1.0, 2.0, "A")])


@rules.add("Play the steps through by hand, with the moments of each request's tokens beside them.")
def any_trace_is_followed(part, rng):
    for _ in range(12):
        _check(part, *_random(rng))


def _random(rng: random.Random) -> tuple[dict[str, float], list, str]:
    now, steps, arrivals = rng.randint(0, 9) / 4, [], {}
    for letter in "ABCDE"[: rng.randint(1, 5)]:
        arrivals[letter] = rng.randint(0, 12) / 4
    for _ in range(rng.randint(1, 15)):
        start = now + rng.choice([0, 0, 0.25])
        now = start + rng.randint(1, 8) / 4
        here = [letter for letter, arrival in arrivals.items() if arrival <= start]
        steps.append((start, now, "".join(letter for letter in here if rng.random() < 0.7)))
    return arrivals, steps, rng.choice(["", "A"])
