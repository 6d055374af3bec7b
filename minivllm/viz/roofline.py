"""The roofline (Williams, Waterman and Patterson, 2009): what a machine allows, and what work reaches.

Left of a machine's ridge the roof slopes: bytes arrive too slowly for the arithmetic, and more FLOPs a
byte help. Right of it the roof is flat. A point that was measured is filled and may lie anywhere under
its machine's roof; one that is only counted is hollow and lies on it. `table` says the same in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..executor.hardware import Hardware
from . import style


@dataclass(frozen=True)
class Point:
    """Work of `intensity` FLOPs a byte on a machine. `flops`: FLOP/s that were measured, or None for
    work that is only counted and drawn on the roof."""

    label: str
    machine: Hardware
    intensity: float
    flops: float | None = None

    @property
    def height(self) -> float:
        return self.machine.attainable(self.intensity) if self.flops is None else self.flops


class Roofline:
    """Roofs of some machines, and points under them. A point's machine need not be among the first."""

    def __init__(self, machines: Sequence[Hardware], points: Sequence[Point] = ()) -> None:
        self.points = list(points)
        self.machines = list(dict.fromkeys([*machines, *(point.machine for point in points)]))

    def figure(self, width: float = 8.0, height: float = 4.4):
        """The picture, both axes logarithmic. Colour, line style and marker go by machine."""
        made, axes = style.figure(width=width, height=height)
        axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity, FLOPs a byte", ylabel="FLOP/s")
        left, right = self._range()
        for number, machine in enumerate(self.machines):
            self._roof(axes, machine, number, left, right)
        for point in self.points:
            self._point(axes, point)
        axes.set(xlim=(left, right), ylim=(self._bottom(left), None))
        axes.legend(loc="upper left", fontsize=9)
        return made

    def table(self) -> str:
        """The same as text: a line a machine, then a line a point."""
        lines = [f"{'machine':<16} {'peak FLOP/s':>12} {'bytes/s':>9} {'ridge, FLOPs a byte':>20}"]
        for machine in self.machines:
            speeds = f"{_short(machine.flops):>12} {_short(machine.bandwidth):>9} {machine.ridge:>20.1f}"
            lines.append(f"{machine.name:<16} {speeds}")
        if self.points:
            lines += ["", f"{'point':<24} {'machine':<16} {'FLOPs a byte':>12} {'FLOP/s':>8}  bound by"]
        for point in self.points:
            bound = "compute" if point.intensity >= point.machine.ridge else "memory"
            reached = point.height / point.machine.attainable(point.intensity)
            share = "" if point.flops is None else f", {reached:.0%} of the roof reached"
            head = f"{point.label:<24} {point.machine.name:<16} {point.intensity:>12.2f}"
            lines.append(f"{head} {_short(point.height):>8}  {bound}{share}")
        return "\n".join(lines)

    def alt(self) -> str:
        """A sentence for who cannot see the picture."""
        names = ", ".join(f"{m.name} (ridge {m.ridge:.0f})" for m in self.machines)
        return f"Roofline, both axes logarithmic: the roofs of {names}, with {len(self.points)} points."

    def show(self) -> None:
        style.show(self.figure(), self.alt())

    def _range(self) -> tuple[float, float]:
        seen = [point.intensity for point in self.points] + [machine.ridge for machine in self.machines]
        return min(0.5, min(seen) / 2), max(1000.0, max(seen) * 4)

    def _bottom(self, left: float) -> float:
        roofs = [machine.attainable(left) for machine in self.machines]
        return min(roofs + [point.height for point in self.points]) / 2

    def _roof(self, axes, machine: Hardware, number: int, left: float, right: float) -> None:
        colour, ridge = style.PALETTE[number % len(style.PALETTE)], machine.ridge
        axes.plot(
            [left, ridge, right],
            [machine.attainable(left), machine.flops, machine.flops],
            color=colour,
            linestyle=style.LINES[number % len(style.LINES)],
            linewidth=2,
            label=f"{machine.name}, ridge {ridge:.0f}",
        )
        axes.vlines(ridge, self._bottom(left), machine.flops, color=colour, linewidth=0.8, linestyle=":")

    def _point(self, axes, point: Point) -> None:
        number = self.machines.index(point.machine)
        colour = style.PALETTE[number % len(style.PALETTE)]
        axes.plot(
            point.intensity,
            point.height,
            marker=style.MARKERS[number % len(style.MARKERS)],
            color=colour,
            markerfacecolor="white" if point.flops is None else colour,
            linestyle="none",
            markersize=6,
            zorder=3,
        )
        axes.annotate(
            point.label,
            (point.intensity, point.height),
            xytext=(7, -8),
            textcoords="offset points",
            fontsize=8,
        )


def _short(value: float) -> str:
    """1.3e12 → 1.3 T."""
    for factor, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {letter}"
    return f"{value:.3g}"
