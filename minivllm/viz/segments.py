"""What each request did when, as the trace tells it: the data of the timeline picture.

A segment is one request in one step, or a run of steps in which it did the same (`merged`); the time in
which it was there and got nothing is filled by what it was kept from: waiting (it has no blocks), parked
(it holds blocks and is not served), swapped (its blocks are on the host). Times are seconds since the
first kept step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..trace import StepRecord, Trace

IDLE = ("waiting", "parked", "swapped")
KINDS = (*IDLE, "prefill", "recompute", "decode")
STALL = 1.5  # times the median inter-token latency
TINY = 1e-9  # seconds; shorter gaps are rounding


@dataclass(slots=True)
class Segment:
    """`kind` is one of KINDS: "prefill" computes prompt tokens for the first time, "recompute" what
    preemption had thrown away, "decode" one new token. `num_tokens` in steps first_step … last_step; those
    of an idle one are the step that ended it."""

    request_id: str
    kind: str
    start: float
    end: float
    num_tokens: int
    first_step: int
    last_step: int


@dataclass
class RequestTimes:
    """Marks of one request, in seconds since the first kept step; None where it has not happened (or
    has fallen out of the trace)."""

    arrival: float
    first_token: float | None = None
    finished: float | None = None
    preemptions: tuple[float, ...] = ()
    token_times: tuple[float, ...] = ()

    @property
    def time_to_first_token(self) -> float | None:
        return None if self.first_token is None else self.first_token - self.arrival

    @property
    def longest_gap(self) -> float:
        """Largest inter-token latency."""
        return max((b - a for a, b in self._pairs()), default=0.0)

    @property
    def stall(self) -> tuple[float, float] | None:
        """The longest time between two tokens, (from, to), if it is much longer than the median one."""
        gaps = sorted(b - a for a, b in self._pairs())
        if not gaps or gaps[-1] <= STALL * gaps[(len(gaps) - 1) // 2]:
            return None
        return max(self._pairs(), key=lambda pair: pair[1] - pair[0])

    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.token_times, self.token_times[1:], strict=False))


def segments(trace: Trace, merged: bool = False) -> list[Segment]:
    """All segments, idle ones included, in the order in which they end."""
    if not trace.steps:
        return []
    zero = trace.steps[0].time_start
    found: list[Segment] = []
    open_runs: dict[str, Segment] = {}  # the last segment of each request that has not ended
    reached: dict[str, int] = {}  # tokens that were computed once, so that a second time is seen
    moves: dict[str, list[tuple[float, str]]] = {}  # of its table, since it was last served
    seen_until = {r.request_id: max(0.0, r.arrival_time - zero) for r in trace.requests.values()}
    for step in trace.steps:
        start, end = step.time_start - zero, step.time_end - zero
        for change, request_id, _ in step.changes:
            if change in ("append", "hit", "drop"):
                moves.setdefault(request_id, []).append((start, change))
        for request_id, n in step.num_scheduled_tokens.items():
            kind = _kind(trace, step, request_id, n, reached)
            moved = moves.pop(request_id, [])
            last = open_runs.get(request_id)
            if last is not None and merged and last.kind == kind and last.last_step == step.index - 1:
                last.end, last.last_step = end, step.index
                last.num_tokens += n
            else:
                if last is None or last.last_step < step.index - 1:
                    since = last.end if last is not None else seen_until.get(request_id, start)
                    comes_back = request_id in reached and step.starts[request_id] > 0
                    found += _idle(request_id, since, start, last is not None, moved, comes_back, step.index)
                last = Segment(request_id, kind, start, end, n, step.index, step.index)
                found.append(last)
                open_runs[request_id] = last
            reached[request_id] = max(reached.get(request_id, 0), step.starts[request_id] + n)
        for request_id in step.finished:
            open_runs.pop(request_id, None)
    return found + _still_there(trace, open_runs, moves, zero)


def _still_there(trace: Trace, open_runs: dict, moves: dict, zero: float) -> list[Segment]:
    """Whoever is parked, or preempted, when the trace ends; not who was aborted."""
    found, last_step = [], trace.steps[-1]
    preempted_in = {r: step.index for step in trace.steps for r in step.preempted}
    for request_id, last in open_runs.items():
        moved = moves.get(request_id, [])
        lost = any(change == "drop" for _, change in moved)
        if not lost or preempted_in.get(request_id, -1) > last.last_step:
            until = last_step.time_end - zero
            found += _idle(request_id, last.end, until, True, moved, False, last_step.index)
    return found


def _idle(
    request_id: str,
    since: float,
    until: float,
    holds: bool,
    moves: list[tuple[float, str]],
    comes_back: bool,
    step: int,
) -> Iterator[Segment]:
    """The parts of a time in which the request was not served. `holds`: it has blocks when that begins.
    With `comes_back` it goes on where it was; a table that was lost and is new without a hit in the prefix
    cache then came from the host."""
    lost = max((i for i, (_, change) in enumerate(moves) if change == "drop"), default=None)
    back = None if lost is None else next((change for _, change in moves[lost + 1 :]), None)
    without = "swapped" if comes_back and back == "append" else "waiting"
    for moment, change in [*moves, (until, "")]:
        if moment - since > TINY:
            yield Segment(request_id, "parked" if holds else without, since, moment, 0, step, step)
            since = moment
        holds = change != "drop"


def request_times(trace: Trace) -> dict[str, RequestTimes]:
    """{request id: marks}, in order of arrival, for everybody in the trace."""
    if not trace.steps:
        return {}
    zero = trace.steps[0].time_start
    tokens: dict[str, list[float]] = {}
    preempted: dict[str, list[float]] = {}
    finished: dict[str, float] = {}
    for step in trace.steps:
        for request_id in step.preempted:
            preempted.setdefault(request_id, []).append(step.time_start - zero)
        for request_id in step.sampled:
            tokens.setdefault(request_id, []).append(step.time_end - zero)
        for request_id in step.finished:
            finished[request_id] = step.time_end - zero
    first = trace.steps[0].index  # who came before has perhaps had tokens that are not kept
    return {
        r.request_id: RequestTimes(
            arrival=r.arrival_time - zero,
            first_token=tokens[r.request_id][0]
            if r.request_id in tokens and r.arrival_step >= first
            else None,
            finished=finished.get(r.request_id),
            preemptions=tuple(preempted.get(r.request_id, ())),
            token_times=tuple(tokens.get(r.request_id, ())),
        )
        for r in trace.requests.values()
    }


def split_tokens(trace: Trace, step: StepRecord) -> tuple[int, int]:
    """(decode tokens, prompt and recomputed tokens) of a step."""
    decodes = sum(
        1
        for request_id, n in step.num_scheduled_tokens.items()
        if n == 1 and step.starts[request_id] >= _prompt_length(trace, request_id)
    )
    return decodes, sum(step.num_scheduled_tokens.values()) - decodes


def _kind(trace: Trace, step: StepRecord, request_id: str, n: int, reached: dict[str, int]) -> str:
    start = step.starts[request_id]
    if start < reached.get(request_id, 0):  # with the newest token, if it catches up in this step
        return "recompute"
    return "decode" if n == 1 and start >= _prompt_length(trace, request_id) else "prefill"


def _prompt_length(trace: Trace, request_id: str) -> int:
    record = trace.requests.get(request_id)
    return record.num_prompt_tokens if record is not None else 0
