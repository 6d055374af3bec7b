"""What happened in every step, kept small: the one source of all pictures.

A step is a `StepRecord`. Block tables would be the bulk of it (a thousand ids a request), so a
record holds only what changed in them, and `block_tables` plays the changes back when somebody
asks. Records live in a bounded ring; what falls out of it is folded into the starting tables.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from .request import Request
from .scheduler.base import StepPlan

# What `KVManager` notes: ("append", request id, blocks); ("hit", request id, blocks), the cached blocks
# that a new table begins with; ("replace", request id, (position, block)); ("drop", request id, None);
# ("cache", request id, blocks), now in the prefix cache; ("evict", None, blocks).
Change = tuple[str, "str | None", Any]


@dataclass(slots=True)
class RequestRecord:
    """What is known of a request from the start. A completion after the first (n > 1) has its own."""

    request_id: str
    num_prompt_tokens: int
    arrival_time: float
    arrival_step: int  # index of the first step that it could have been in


@dataclass(slots=True)
class StepRecord:
    """One step. Times are seconds of `time.perf_counter()`; swapped and copied are numbers of blocks;
    `num_lost_tokens` are computed tokens that preemption threw away. `starts` has the position of each
    request's first scheduled token, `sampled` who got a new token. Of the free blocks,
    `num_evictable_blocks` are still cached."""

    index: int
    time_start: float
    time_end: float
    num_scheduled_tokens: dict[str, int]
    starts: dict[str, int]
    sampled: list[str]
    preempted: list[str]
    num_lost_tokens: int
    finished: list[str]
    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_evictable_blocks: int
    num_swapped_out: int
    num_copied: int
    num_swapped_in: int
    changes: list[Change] = field(repr=False)
    _trace: Trace = field(repr=False, compare=False)

    @property
    def block_tables(self) -> dict[str, list[int]]:
        """{request id: block ids} as they stood when the step had run, before finished requests
        gave theirs back in the next record."""
        return self._trace.state_after(self.index).tables()

    @property
    def cached_blocks(self) -> set[int]:
        """Blocks that the prefix cache held then, used or not."""
        return set(self._trace.state_after(self.index).cached)


class KVState:
    """Block tables and cached blocks at one moment; `apply` moves it on by some changes."""

    def __init__(self) -> None:
        self.by_request: dict[str, list[int]] = {}
        self.cached: dict[int, int | None] = {}  # block → the block before it in its prefix
        self.hits: dict[int, int] = {}  # cached block → how many requests began with it

    def apply(self, changes: list[Change]) -> None:
        for kind, request_id, what in changes:
            if kind == "append":
                self.by_request.setdefault(request_id, []).extend(what)
            elif kind == "hit":
                self.by_request[request_id] = list(what)
                for block in what:
                    self.hits[block] = self.hits.get(block, 0) + 1
            elif kind == "replace":
                position, block = what
                self.by_request[request_id][position] = block
            elif kind == "drop":
                self.by_request.pop(request_id, None)
            elif kind == "cache":
                table = self.by_request[request_id]
                first = table.index(what[0])
                before = [None, *table][first : first + len(table)]
                parents = dict(zip(table[first:], before, strict=False))
                self.cached.update((block, parents[block]) for block in what)
            else:
                for block in what:
                    self.cached.pop(block, None)
                    self.hits.pop(block, None)

    def tables(self) -> dict[str, list[int]]:
        return {request_id: list(blocks) for request_id, blocks in self.by_request.items()}

    def copy(self) -> KVState:
        other = KVState()
        other.by_request, other.cached, other.hits = self.tables(), dict(self.cached), dict(self.hits)
        return other


class Trace:
    """The last `capacity` steps of an engine, in `steps`, and in `requests` whoever was in them. The
    three sizes are the engine's: blocks in the pool, tokens in a block, tokens in a step."""

    def __init__(
        self, capacity: int = 10_000, num_blocks: int = 0, block_size: int = 1, token_budget: int = 0
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.token_budget = token_budget
        self.steps: deque[StepRecord] = deque(maxlen=capacity)
        self.requests: dict[str, RequestRecord] = {}
        self.num_steps = 0
        self._base = KVState()  # before the first record that is kept
        self._memo: tuple[int, KVState] | None = None  # (steps applied, state): reading on is cheap

    def add_request(self, request: Request) -> None:
        """Note that a request has arrived."""
        self.requests[request.request_id] = RequestRecord(
            request.request_id, request.num_prompt_tokens, request.arrival_time, self.num_steps
        )

    def record(
        self,
        plan: StepPlan,
        outputs: list[tuple[Request, int]],
        *,
        time_start: float,
        time_end: float,
        num_running: int,
        num_waiting: int,
        num_free_blocks: int,
        num_evictable_blocks: int,
        changes: list[Change],
    ) -> StepRecord:
        """Append one step: its plan and what `update()` returned. `changes` are those that the KV
        manager noted up to the end of `schedule()`; later ones belong to the next step."""
        if len(self.steps) == self.steps.maxlen:
            self._forget(self.steps[0])
        sampled = []
        for request, _ in outputs:
            sampled.append(request.request_id)
            if request.index and request.request_id not in self.requests:
                self.add_request(request)
        step = StepRecord(
            index=self.num_steps,
            time_start=time_start,
            time_end=time_end,
            num_scheduled_tokens={c.request.request_id: c.num_tokens for c in plan.chunks},
            starts={c.request.request_id: c.start for c in plan.chunks},
            sampled=sampled,
            preempted=plan.preempted,
            num_lost_tokens=plan.num_lost_tokens,
            finished=[request.request_id for request, _ in outputs if request.is_finished],
            num_running=num_running,
            num_waiting=num_waiting,
            num_free_blocks=num_free_blocks,
            num_evictable_blocks=num_evictable_blocks,
            num_swapped_out=len(plan.swap_out),
            num_copied=len(plan.copies),
            num_swapped_in=len(plan.swap_in),
            changes=changes,
            _trace=self,
        )
        self.num_steps += 1
        self.steps.append(step)
        return step

    def _forget(self, step: StepRecord) -> None:
        self._base.apply(step.changes)
        for request_id in step.finished:
            self.requests.pop(request_id, None)

    def state_after(self, index: int) -> KVState:
        """Tables and cached blocks after step `index`, played back from the changes; do not change it.
        Reading steps in order costs one step's changes each."""
        first = self.steps[0].index if self.steps else 0
        if not self.steps or not first <= index < self.num_steps:
            raise ValueError(f"step {index} is not kept; the trace holds {first} to {self.num_steps - 1}")
        if self._memo is None or not first <= self._memo[0] <= index + 1:
            self._memo = (first, self._base.copy())
        position, state = self._memo
        for step in islice(self.steps, position - first, index + 1 - first):
            state.apply(step.changes)
        self._memo = (index + 1, state)
        return state

    def to_perfetto(self, path: str) -> None:
        """Write the steps as a Chrome trace (JSON), which trace viewers such as Perfetto open: one
        row a request, one slice a step that served it, and the counters below."""
        rows: dict[str, int] = {}
        events: list[dict[str, Any]] = []
        for step in self.steps:
            start, length = step.time_start * 1e6, (step.time_end - step.time_start) * 1e6
            for request_id, n in step.num_scheduled_tokens.items():
                row = rows.setdefault(request_id, len(rows) + 1)
                name = "decode" if n == 1 else f"{n} tokens"
                args = {"step": step.index, "tokens": n}
                events.append(
                    {"name": name, "ph": "X", "ts": start, "dur": length, "pid": 1, "tid": row, "args": args}
                )
            counters = {
                "running": step.num_running,
                "waiting": step.num_waiting,
                "free blocks": step.num_free_blocks,
                "scheduled tokens": sum(step.num_scheduled_tokens.values()),
            }
            for name, value in counters.items():
                events.append({"name": name, "ph": "C", "ts": start, "pid": 1, "args": {name: value}})
        for request_id, row in rows.items():
            label = {"name": f"request {request_id}"}
            events.append({"name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": label})
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)
