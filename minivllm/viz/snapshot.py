"""The KV cache at one step, as the trace tells it: what the block table picture draws, and nothing else.

Pictures and their text forms both read a `Snapshot`, so they cannot say different things.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice

from ..trace import KVState, StepRecord, Trace


@dataclass(frozen=True)
class Cell:
    """A physical block. `owners` are the requests whose tables hold it; `cached` says that the prefix
    cache does; `event` is what happened to it in this step: "", "taken", "shared", "hit", "copy",
    "evicted", "swapped out" (to the host, and given back) or "swapped in"."""

    block: int
    owners: tuple[str, ...]
    cached: bool
    event: str = ""

    @property
    def state(self) -> str:
        """ "free", "used", "shared" (by several requests) or "cached" (by nobody else)."""
        if self.owners:
            return "used" if len(self.owners) == 1 else "shared"
        return "cached" if self.cached else "free"


@dataclass(frozen=True)
class Snapshot:
    """`cells` in order of block id; `tables` {request id: block ids}; `num_tokens` {request id: tokens
    whose keys and values are in its blocks when the step has run}."""

    index: int
    block_size: int
    cells: list[Cell]
    tables: dict[str, list[int]]
    num_tokens: dict[str, int]

    def count(self, state: str) -> int:
        return sum(cell.state == state for cell in self.cells)

    @property
    def num_wasted_slots(self) -> int:
        """Slots that are taken and hold nothing: internal fragmentation. Of a shared block, its fullest
        owner counts."""
        filled: dict[int, int] = {}
        for request_id, blocks in self.tables.items():
            for i, block in enumerate(blocks):
                here = min(self.block_size, self.num_tokens.get(request_id, 0) - i * self.block_size)
                filled[block] = max(filled.get(block, 0), here)
        return sum(self.block_size - count for count in filled.values())


def take_snapshot(trace: Trace, index: int) -> Snapshot:
    """The state in step `index`, while it ran. `ValueError` for a step that the trace does not hold."""
    state, before = trace.state_after(index), {}
    step = trace.steps[index - trace.steps[0].index]
    if (step.num_swapped_out or step.num_swapped_in) and index > trace.steps[0].index:
        before = _filled_blocks(trace, index - 1)
        state = trace.state_after(index)
    to_host = [r for r in step.preempted if step.num_swapped_out and _comes_back(trace, r, index)]
    owners: dict[int, list[str]] = {}
    for request_id, blocks in state.by_request.items():
        for block in blocks:
            owners.setdefault(block, []).append(request_id)
    cells = [
        Cell(block, tuple(owners.get(block, ())), block in state.cached, event)
        for block, event in enumerate(_events(step, state, before, to_host, owners, trace.num_blocks))
    ]
    tables = state.tables()
    return Snapshot(index, trace.block_size, cells, tables, _num_tokens(trace, index, tables))


def _events(
    step: StepRecord,
    state: KVState,
    before: dict[str, list[int]],
    to_host: list[str],
    owners: dict[int, list[str]],
    num_blocks: int,
) -> list[str]:
    """What happened to each block. `before` are the filled blocks before a step that swaps, `to_host` whose
    blocks go to the host."""
    events: dict[int, str] = {}
    has_table = set(before)
    for kind, request_id, what in step.changes:
        if kind == "append":
            is_new = request_id not in has_table
            has_table.add(request_id)
            returns = is_new and step.num_swapped_in and step.starts.get(request_id, 1) > 0
            for block in what:
                shared = len(owners.get(block, ())) > 1
                events.setdefault(block, "shared" if shared else "swapped in" if returns else "taken")
        elif kind == "hit":
            events.update(dict.fromkeys(what, "hit"))
        elif kind == "replace":  # by a copy, or by the cached block of the same content
            position, block = what
            events[block] = "hit" if block in state.cached else "copy"
            before.get(request_id, [])[position : position + 1] = [block]
        elif kind == "drop" and request_id in to_host:
            held = Counter(block for blocks in before.values() for block in blocks)
            gone = [block for block in before.get(request_id, ()) if held[block] == 1]
            events.update(dict.fromkeys(gone, "swapped out"))
        elif kind == "evict":  # and taken by somebody else, mostly
            events = dict.fromkeys(what, "evicted") | events
    return [events.get(block, "") for block in range(num_blocks)]


def _comes_back(trace: Trace, request_id: str, index: int) -> bool:
    """Whether a preempted request goes on, later, where it was: then its blocks were on the host."""
    first_change = ""
    for step in islice(trace.steps, index + 1 - trace.steps[0].index, None):
        mine = [kind for kind, r, _ in step.changes if r == request_id]
        first_change = first_change or next(iter(mine), "")
        if request_id in step.starts:
            return first_change == "append" and step.starts[request_id] > 0
    return False


def _filled_blocks(trace: Trace, index: int) -> dict[str, list[int]]:
    """The tables after a step, without blocks that are taken and hold nothing yet."""
    tables = trace.state_after(index).tables()
    num_tokens = _num_tokens(trace, index, tables)
    return {r: blocks[: -(-num_tokens.get(r, 0) // trace.block_size)] for r, blocks in tables.items()}


def _num_tokens(trace: Trace, index: int, tables: dict[str, list[int]]) -> dict[str, int]:
    """Read back from the last step that served each request (mostly this one)."""
    found: dict[str, int] = {}
    position = index - trace.steps[0].index
    while position >= 0 and len(found) < len(tables):
        step = trace.steps[position]
        for request_id, start in step.starts.items():
            if request_id in tables and request_id not in found:
                found[request_id] = start + step.num_scheduled_tokens[request_id]
        position -= 1
    return found
