"""KV memory over time: how many blocks are used, how many only cached, how many free.

The records count blocks in every step, so nothing has to be played back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..trace import Trace
from . import style


@dataclass(frozen=True)
class Usage:
    """Numbers of blocks in one step; they add up to the pool."""

    index: int
    time: float  # seconds since the first kept step
    used: int
    cached: int
    free: int


class MemoryView:
    """KV memory of a `trace` (of an `LLM`: `llm.trace`)."""

    def __init__(self, trace: Trace) -> None:
        if not trace.steps:
            raise ValueError("the trace has no step yet; run the engine first")
        self.trace = trace
        self.usage = measure_usage(trace)

    def table(self) -> str:
        """The picture in words, at ten steps of the run."""
        every = max(1, len(self.usage) // 10)
        lines = [f"{'step':>6} {'used':>6} {'cached':>6} {'free':>6}"]
        lines += [f"{u.index:>6} {u.used:>6} {u.cached:>6} {u.free:>6}" for u in self.usage[::every]]
        most = max(self.usage, key=lambda u: u.used)
        lines.append(f"most in use: {most.used} of {self.trace.num_blocks} blocks, in step {most.index}")
        return "\n".join(lines)

    def alt(self) -> str:
        return "KV memory over time. " + " ".join(self.table().replace("\n", "; ").split())

    def figure(self) -> Any:
        """matplotlib Figure: stacked steps of used, cached and free blocks over milliseconds."""
        figure, axes = style.figure(width=9, height=2.8)
        times = [1e3 * u.time for u in self.usage]
        end = 1e3 * (self.trace.steps[-1].time_end - self.trace.steps[0].time_start)
        layers = list(zip(*((u.used, u.cached, u.free) for u in self.usage), strict=True))
        drawn = axes.stackplot(
            [*times, end],
            *[[*layer, layer[-1]] for layer in layers],
            step="post",
            colors=[style.PALETTE[0], style.PALETTE[4], style.EMPTY],
            labels=["used", "cached, unused", "free"],
        )
        for patch, hatch in zip(drawn, (None, "////", None), strict=True):
            patch.set(hatch=hatch, edgecolor="white", linewidth=0)
        axes.set(
            xlim=(0, end), ylim=(0, self.trace.num_blocks), xlabel="ms since the first step", ylabel="blocks"
        )
        figure.legend(loc="outside upper right", ncols=3)
        return figure

    def show(self) -> None:
        style.show(self.figure(), self.alt())


def measure_usage(trace: Trace) -> list[Usage]:
    """One `Usage` a step. What nobody uses but the prefix cache holds counts as free in the records."""
    if not trace.steps:
        return []
    zero = trace.steps[0].time_start
    return [
        Usage(
            step.index,
            step.time_start - zero,
            used=trace.num_blocks - step.num_free_blocks,
            cached=step.num_evictable_blocks,
            free=step.num_free_blocks - step.num_evictable_blocks,
        )
        for step in trace.steps
    ]
