"""What each request did when, as the trace tells it: the data of the timeline picture.

A segment is one request in one step, or a run of steps in which it did the same (`merged`); waiting
fills the time in which it was there and got nothing. Times are seconds since the first kept step.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..trace import StepRecord, Trace

KINDS = ("waiting", "prefill", "recompute", "decode")


@dataclass(slots=True)
class Segment:
    """`kind` is one of KINDS: "prefill" computes prompt tokens for the first time, "recompute" what
    preemption had thrown away, "decode" one new token. `num_tokens` in steps first_step … last_step."""

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
        pairs = zip(self.token_times, self.token_times[1:], strict=False)
        return max((b - a for a, b in pairs), default=0.0)


def segments(trace: Trace, merged: bool = False) -> list[Segment]:
    """All segments, waiting included, in the order in which they end."""
    if not trace.steps:
        return []
    zero = trace.steps[0].time_start
    found: list[Segment] = []
    open_runs: dict[str, Segment] = {}  # the last segment of each request that has not ended
    reached: dict[str, int] = {}  # tokens that were computed once, so that a second time is seen
    seen_until = {r.request_id: max(0.0, r.arrival_time - zero) for r in trace.requests.values()}
    for step in trace.steps:
        start, end = step.time_start - zero, step.time_end - zero
        for request_id, n in step.num_scheduled_tokens.items():
            kind = _kind(trace, step, request_id, n, reached)
            reached[request_id] = max(reached.get(request_id, 0), step.starts[request_id] + n)
            last = open_runs.get(request_id)
            if last is not None and merged and last.kind == kind and last.last_step == step.index - 1:
                last.end, last.last_step = end, step.index
                last.num_tokens += n
            else:
                since = last.end if last is not None else seen_until.get(request_id, start)
                skipped = last is not None and last.last_step < step.index - 1
                if start - since > 1e-9 and (last is None or skipped):
                    found.append(Segment(request_id, "waiting", since, start, 0, step.index, step.index))
                last = Segment(request_id, kind, start, end, n, step.index, step.index)
                found.append(last)
                open_runs[request_id] = last
    return found


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
