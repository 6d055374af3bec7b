"""A figure is a measured number and the range that theory gives it; a claim is a handful of them.

Ranges are carried as such: a quantity that theory knows only between two ends stays a `Range` through
sums and quotients, so that what comes out says how much the theory knows. The range of a count is one
number. A claim passes when all its figures lie within their ranges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Range(NamedTuple):
    """All numbers from `low` to `high`, both included."""

    low: float
    high: float

    def over(self, other: Range) -> Range:
        """Every quotient of a number here and one there; all are positive."""
        return Range(self.low / other.high, self.high / other.low)

    def plus(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)


def exactly(value: float) -> Range:
    return Range(value, value)


def total(ranges: Iterable[Range]) -> Range:
    ranges = list(ranges)
    return Range(sum(r.low for r in ranges), sum(r.high for r in ranges))


@dataclass(frozen=True)
class Figure:
    """`name` says what was measured, and on what."""

    name: str
    measured: float
    expected: Range

    @property
    def passes(self) -> bool:
        return self.expected.low <= self.measured <= self.expected.high

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "measured": self.measured,
            "expected_low": self.expected.low,
            "expected_high": self.expected.high,
            "verdict": _verdict(self.passes),
        }


@dataclass
class Claim:
    """What was found for one claim; the first figure stands for it. `rows` are measurements beside the
    figures, such as seconds, of which nothing is expected; `why` explains where the range comes from, and
    when a number that people repeat does not hold."""

    id: str
    what: str
    varied: str
    figures: list[Figure]
    why: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        main = self.figures[0].as_dict()
        return {
            "id": self.id,
            "what": self.what,
            "varied": self.varied,
            **main,
            "verdict": _verdict(all(figure.passes for figure in self.figures)),
            "figures": [figure.as_dict() for figure in self.figures],
            "why": self.why,
            "rows": self.rows,
        }


def _verdict(passes: bool) -> str:
    return "pass" if passes else "fail"
