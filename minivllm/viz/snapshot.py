"""The KV cache at one step, as the trace tells it: what the block table picture draws, and nothing else.

Pictures and their text forms both read a `Snapshot`, so they cannot say different things.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..trace import Trace


@dataclass(frozen=True)
class Cell:
    """A physical block. `owners` are the requests whose tables hold it; `cached` says that the prefix
    cache does; `event` is what happened to it in this step: "", "taken", "shared", "hit", "copy" or
    "evicted"."""

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
    state = trace.state_after(index)
    step = trace.steps[index - trace.steps[0].index]
    owners: dict[int, list[str]] = {}
    for request_id, blocks in state.by_request.items():
        for block in blocks:
            owners.setdefault(block, []).append(request_id)
    events: dict[int, str] = {}
    for kind, _, what in step.changes:
        if kind == "append":
            for block in what:
                events.setdefault(block, "taken" if len(owners.get(block, ())) < 2 else "shared")
        elif kind == "hit":
            events.update(dict.fromkeys(what, "hit"))
        elif kind == "replace":  # by a copy, or by the cached block of the same content
            events[what[1]] = "hit" if what[1] in state.cached else "copy"
        elif kind == "evict":  # and taken by somebody else, mostly
            events.update(dict.fromkeys(what, "evicted"))
    cells = [
        Cell(block, tuple(owners.get(block, ())), block in state.cached, events.get(block, ""))
        for block in range(trace.num_blocks)
    ]
    tables = state.tables()
    return Snapshot(index, trace.block_size, cells, tables, _num_tokens(trace, index, tables))


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
