"""One HTML page that plays a trace: timeline and block table, without a kernel, a server or a network.

`page_data` says everything the page needs as plain numbers, and is the only place where the trace is
read. Tables travel as the trace's own changes and are played back in the browser; neighbouring chunks of
one kind travel as one run; times are whole microseconds since the first kept step. `write_page` puts
these numbers, the drawing (web/*.js, hand-written, no library) and the styles into one file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from ..trace import KVState, StepRecord, Trace
from .identity import Identity
from .segments import IDLE, KINDS, request_times, segments
from .style import text_on

COUNTS = (
    "num_running", "num_waiting", "num_free_blocks", "num_lost_tokens",
    "num_swapped_out", "num_copied", "num_swapped_in",
)  # fmt: skip
CHANGES = ("append", "hit", "replace", "drop", "cache", "evict")
# In the order in which they are put into the page.
SCRIPTS = (
    "trace", "pane", "marks", "cells", "legend", "axis", "timeline", "blocks", "words", "pointer", "main",
)  # fmt: skip


def write_page(trace: Trace, path: str, title: str = "") -> None:
    """Write the page to `path`; any browser opens it from disk. `ValueError` for a trace without steps."""
    web = files(__package__) / "web"
    script = "\n".join((web / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    data = json.dumps(page_data(trace, title), separators=(",", ":"), ensure_ascii=False)
    parts = {
        "title": escape(title or "minivllm trace"),
        "css": (web / "page.css").read_text(encoding="utf-8"),
        "data": data.replace("<", "\\u003c"),  # no request id can end the element that holds it
        "script": script,
    }
    page = (web / "page.html").read_text(encoding="utf-8")
    with open(path, "w", encoding="utf-8") as file:
        file.write(re.sub("<!--(title|css|data|script)-->", lambda found: parts[found[1]], page))


def page_data(trace: Trace, title: str = "") -> dict[str, Any]:
    """What the page shows, ready for JSON. Requests are numbered by row, steps by position in the
    trace (`first_step` is the index of position 0).

    `runs` are [row, kind, first step, first token, n]: n is a list of tokens a step, or the number of
    steps if each computed one. `waits` are [row, kind, from, to]. `changes` holds for each step
    [kind, row, …] as the trace noted them; `start` is what was there before."""
    if not trace.steps:
        raise ValueError("the trace has no step yet; run the engine first")
    steps = list(trace.steps)
    start, changes = _changes(trace, steps)
    identity = Identity(trace)
    rows = {r: row for row, r in enumerate(identity.in_order(sorted(_request_ids(steps, start, changes))))}
    runs, waits = _runs_and_waits(trace, steps, rows)
    return {
        "title": title,
        "num_blocks": trace.num_blocks,
        "block_size": trace.block_size,
        "token_budget": trace.token_budget,
        "first_step": steps[0].index,
        "requests": _requests(trace, steps, rows, identity),
        "steps": _columns(steps),
        "kinds": list(KINDS),
        "runs": runs,
        "waits": waits,
        "start": {
            "tables": [[rows[r], *blocks] for r, blocks in start.by_request.items()],
            "cached": list(start.cached),
        },
        "change_kinds": list(CHANGES),
        "changes": [[_flat(change, rows) for change in of_step] for of_step in changes],
    }


def _changes(trace: Trace, steps: list[StepRecord]) -> tuple[KVState, list[list]]:
    """The state before the first kept step, and the changes of each. Where earlier steps have fallen out
    of the trace, the state after the first kept step is the first that is known."""
    changes = [step.changes for step in steps]
    if steps[0].index == 0:
        return KVState(), changes
    return trace.state_after(steps[0].index).copy(), [[], *changes[1:]]


def _request_ids(steps: list[StepRecord], start: KVState, changes: list[list]) -> set[str]:
    """Everybody who was served or had a table."""
    ids = set(start.by_request)
    for step, of_step in zip(steps, changes, strict=True):
        ids.update(step.num_scheduled_tokens, step.sampled)
        ids.update(request_id for _, request_id, _ in of_step if request_id is not None)
    return ids


@dataclass(slots=True)
class _Run:
    """Steps without a gap in which a request did the same, from token to token."""

    row: int
    kind: str
    first_step: int
    first_token: int
    counts: list[int]

    def goes_on(self, kind: str, step: int, token: int) -> bool:
        at_end = step == self.first_step + len(self.counts) and token == self.first_token + sum(self.counts)
        return at_end and kind == self.kind

    def packed(self) -> list:
        n = len(self.counts) if all(n == 1 for n in self.counts) else self.counts
        return [self.row, KINDS.index(self.kind), self.first_step, self.first_token, n]


def _runs_and_waits(trace: Trace, steps: list[StepRecord], rows: dict[str, int]) -> tuple[list, list]:
    runs: list[_Run] = []
    waits: list[list[int]] = []
    last: dict[str, _Run] = {}
    for segment in segments(trace):
        request_id = segment.request_id
        if segment.kind in IDLE:
            kind = KINDS.index(segment.kind)
            waits.append([rows[request_id], kind, _us(segment.start), _us(segment.end)])
            continue
        position = segment.first_step - steps[0].index
        token = steps[position].starts[request_id]
        if request_id in last and last[request_id].goes_on(segment.kind, position, token):
            last[request_id].counts.append(segment.num_tokens)
        else:
            last[request_id] = _Run(rows[request_id], segment.kind, position, token, [segment.num_tokens])
            runs.append(last[request_id])
    return [run.packed() for run in runs], waits


def _requests(trace: Trace, steps: list[StepRecord], rows: dict[str, int], identity: Identity) -> list[dict]:
    """One entry a row: who it is, and in which steps it got tokens, lost its blocks, ended."""
    times = request_times(trace)
    happened = {name: {r: [] for r in rows} for name in ("sampled", "preempted", "finished")}
    for position, step in enumerate(steps):
        for name, of_request in happened.items():
            for request_id in getattr(step, name):
                if request_id in of_request:
                    of_request[request_id].append(position)
    entries = []
    for request_id in rows:
        record = trace.requests.get(request_id)
        colour = identity.colour(request_id)
        entries.append(
            {
                "id": request_id,
                "letter": identity.letter(request_id),
                "colour": colour,
                "ink": text_on(colour),
                "num_prompt_tokens": record.num_prompt_tokens if record else None,
                "arrival": _us(times[request_id].arrival) if record else None,
                # Of one that came before the first kept step, the first token may be among what is lost.
                "is_whole": record is not None and record.arrival_step >= steps[0].index,
                "tokens": _ranges(happened["sampled"][request_id]),
                "preempted": happened["preempted"][request_id],
                "finished": (happened["finished"][request_id] or [None])[-1],
            }
        )
    return entries


def _columns(steps: list[StepRecord]) -> dict[str, list[int]]:
    zero = steps[0].time_start
    columns = {name: [getattr(step, name) for step in steps] for name in COUNTS}
    times = {
        "start": [_us(step.time_start - zero) for step in steps],
        "end": [_us(step.time_end - zero) for step in steps],
    }
    return times | columns


def _flat(change: tuple, rows: dict[str, int]) -> list[int]:
    """("append", "r0", [4, 5]) → [0, row of r0, 4, 5]; nobody is row −1."""
    kind, request_id, what = change
    return [CHANGES.index(kind), -1 if request_id is None else rows[request_id], *(what or ())]


def _ranges(positions: list[int]) -> list[list[int]]:
    """[3, 4, 5, 9] → [[3, 5], [9, 9]]."""
    found: list[list[int]] = []
    for position in positions:
        if found and found[-1][1] == position - 1:
            found[-1][1] = position
        else:
            found.append([position, position])
    return found


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
