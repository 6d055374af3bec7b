"""The scheduler timeline: a row a request, what it did in every step, and the token budget below.

A row has its request's colour, as in every picture; prompt chunks, decode steps and recomputation differ in
tint, height and hatching, so that a grey print says the same. A thin line is waiting, a hollow bar parked
(blocks held, nothing computed), a dashed line swapped out. A triangle marks the first token (TTFT), a
bracket the longest gap between tokens (ITL) if it is a stall, a cross a preemption, a bar the end.
`compare` puts several runs on one time axis.
"""

from __future__ import annotations

from typing import Any

from ..trace import Trace
from . import style
from .identity import Identity
from .segments import KINDS, Segment, request_times, segments, split_tokens

# From this many segments on, neighbouring steps of one kind are drawn as one bar.
MOST_SEPARATE = 4_000
MOST_LETTERS = 40
HEIGHTS = {"waiting": 0.14, "parked": 0.34, "swapped": 0.0, "prefill": 0.84, "recompute": 0.84, "decode": 0.5}
TINTS = {"prefill": 1.0, "recompute": 0.8, "decode": 0.55}  # of the request's colour
HATCHES = {"recompute": "/////"}
WAITING, PROMPT_TOKENS, DECODE_TOKENS = "#B9C2CC", "#5F6B7A", "#B4BFCB"
DASHES = (0, (3, 2))
WORDS = {
    "waiting": "waiting", "parked": "parked (holds blocks)", "swapped": "swapped out",
    "prefill": "prompt chunk", "recompute": "recomputed", "decode": "decode",
}  # fmt: skip


class TimelineView:
    """Timeline of a `trace` (of an `LLM`: `llm.trace`)."""

    def __init__(self, trace: Trace, title: str = "") -> None:
        if not trace.steps:
            raise ValueError("the trace has no step yet; run the engine first")
        self.trace = trace
        self.title = title
        self.identity = Identity(trace)
        self.times = request_times(trace)
        num_scheduled = sum(len(step.num_scheduled_tokens) for step in trace.steps)
        self.segments = segments(trace, merged=num_scheduled > MOST_SEPARATE)
        served = {s.request_id for s in self.segments}
        self.rows = self.identity.in_order(r for r in self.times if r in served)

    @property
    def duration(self) -> float:
        """Seconds from the first kept step to the end of the last."""
        return self.trace.steps[-1].time_end - self.trace.steps[0].time_start

    def table(self) -> str:
        """The picture in words: a line a request, then the steps in sum."""
        lines = [f"{'':>4}  {'TTFT':>9}  {'longest ITL':>11}  {'end':>9}  preempted"]
        for request_id in self.rows:
            times = self.times[request_id]
            ttft, end = _ms(times.time_to_first_token), _ms(times.finished)
            gap = _ms(times.longest_gap if len(times.token_times) > 1 else None)
            letter = self.identity.letter(request_id)
            lines.append(f"{letter:>4}  {ttft:>9}  {gap:>11}  {end:>9}  {len(times.preemptions)}")
        totals = [split_tokens(self.trace, step) for step in self.trace.steps]
        decode, prompt = (sum(column) for column in zip(*totals, strict=True))
        lines.append(f"{len(totals)} steps: {decode} decode tokens, {prompt} prompt and recomputed tokens")
        return "\n".join(lines)

    def alt(self) -> str:
        return "Scheduler timeline. " + " ".join(self.table().replace("\n", "; ").split())

    def figure(self, highlight: str | None = None) -> Any:
        """matplotlib Figure: the rows, and the tokens of each step below."""
        return compare([self], highlight=highlight)

    def show(self) -> None:
        style.show(self.figure(), self.alt())

    def widget(self) -> Any:
        """The picture with a choice of request, whose row then stands out. Needs ipywidgets."""
        from .player import chooser

        choices = [(self.identity.letter(r), r) for r in self.rows]
        return chooser(choices, self.figure, self.table)

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        from .player import bundle

        return bundle(self.widget, self.figure, self.alt())

    def draw_rows(self, axes: Any, highlight: str | None = None) -> None:
        """Draw the requests' rows on matplotlib axes; one collection a kind, its gid the kind's name."""

        row_of = {request_id: row for row, request_id in enumerate(self.rows)}
        for kind in KINDS:
            of_kind = [s for s in self.segments if s.kind == kind]
            boxes = [_box(s, row_of[s.request_id]) for s in of_kind]
            colours = [self.identity.colour(s.request_id) for s in of_kind]
            alphas = [1.0 if s.request_id == highlight else 0.2 for s in of_kind] if highlight else None
            bars = _bars_of(kind, boxes, colours, alphas or None)
            axes.add_collection(style.lightened(bars, len(boxes)))
        self._draw_marks(axes, highlight)
        axes.set(ylim=(len(self.rows) + 0.12, 0), ylabel="request")
        every = max(1, len(self.rows) // MOST_LETTERS)
        axes.set_yticks([row + 0.5 for row in range(0, len(self.rows), every)])
        axes.set_yticklabels([self.identity.letter(r) for r in self.rows[::every]], fontsize=8)
        for label, request_id in zip(axes.get_yticklabels(), self.rows[::every], strict=True):
            colour = self.identity.colour(request_id)
            label.set(color=style.text_on(colour))
            label.set_bbox({"facecolor": colour, "edgecolor": "none", "pad": 1.5})
        counts = f"{_count(len(self.rows), 'request')}, {_count(len(self.trace.steps), 'step')}"
        axes.set_title(self.title or counts)
        axes.grid(axis="y", visible=False)

    def draw_budget(self, axes: Any) -> None:
        """Draw each step's tokens, decodes below and prompts above, and the budget as a line."""
        zero = self.trace.steps[0].time_start
        starts = [1e3 * (step.time_start - zero) for step in self.trace.steps]
        widths = [1e3 * (step.time_end - step.time_start) for step in self.trace.steps]
        counts = [split_tokens(self.trace, step) for step in self.trace.steps]
        decode, prompt = [c[0] for c in counts], [c[1] for c in counts]
        _bars(axes, starts, widths, [0] * len(starts), decode, DECODE_TOKENS, "decode-tokens")
        _bars(axes, starts, widths, decode, prompt, PROMPT_TOKENS, "prompt-tokens")
        highest = max(d + p for d, p in counts)
        if self.trace.token_budget and self.trace.token_budget <= 4 * highest:
            axes.axhline(self.trace.token_budget, color="black", linestyle="--", linewidth=1)
            axes.text(0, self.trace.token_budget, " budget", va="bottom", fontsize=8)
            highest = self.trace.token_budget * 1.15
        axes.set(ylim=(0, max(highest, 1) * 1.1), ylabel="tokens a step")

    def _draw_marks(self, axes: Any, highlight: str | None) -> None:
        """First tokens, stalls, preemptions and ends, of one request or of all; one drawing operation each,
        however many there are (few for stalls)."""
        marked = [(row, r) for row, r in enumerate(self.rows) if highlight in (None, r)]
        marks = [(row + 0.5, self.times[request_id]) for row, request_id in marked]
        first = [(1e3 * t.first_token, y) for y, t in marks if t.first_token is not None]
        preempted = [(1e3 * moment, y) for y, t in marks for moment in t.preemptions]
        for points, look in (
            (first, {"marker": ">", "c": "black", "edgecolors": "white", "linewidths": 0.6, "s": 26}),
            (preempted, {"marker": "x", "c": style.RED, "linewidths": 1.6, "s": 24}),
        ):
            if points:
                axes.scatter(*zip(*points, strict=True), zorder=3, **look)
        ends = [(1e3 * t.finished, y) for y, t in marks if t.finished is not None]
        if ends:
            xs, ys = zip(*ends, strict=True)
            axes.vlines(xs, [y - 0.35 for y in ys], [y + 0.35 for y in ys], colors="black", linewidth=1.5)
        stalls = (
            [(y + 0.44, t.stall) for y, t in marks if t.stall]
            if len(self.rows) <= MOST_LETTERS or highlight
            else []
        )
        for y, (start, end) in stalls:
            xs = [1e3 * start, 1e3 * start, 1e3 * end, 1e3 * end]
            axes.plot(xs, [y - 0.14, y, y, y - 0.14], color="black", linewidth=0.9, gid="stall")


def compare(views: list[TimelineView], highlight: str | None = None) -> Any:
    """Several runs on one time axis, each with its token bars. Returns a matplotlib Figure."""
    from matplotlib.figure import Figure

    style.use()
    heights = [x for view in views for x in (max(1.2, min(6.0, 0.24 * len(view.rows) + 0.5)), 0.9)]
    figure = Figure(figsize=(9, sum(heights) + 0.8), layout="constrained", facecolor="white")
    axes = figure.subplots(2 * len(views), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for view, rows, budget in zip(views, axes[::2], axes[1::2], strict=True):
        view.draw_rows(rows, highlight)
        view.draw_budget(budget)
    axes[-1].set(
        xlabel="ms since the first step", xlim=(0, 1e3 * max(view.duration for view in views) * 1.01)
    )
    figure.legend(handles=_legend(), loc="outside upper right", ncols=6, fontsize=8)
    return figure


def _box(segment: Segment, row: int) -> list[tuple[float, float]]:
    left, right = 1e3 * segment.start, 1e3 * segment.end
    low, high = row + 0.5 - HEIGHTS[segment.kind] / 2, row + 0.5 + HEIGHTS[segment.kind] / 2
    return [(left, low), (left, high), (right, high), (right, low)]


def _bars(axes: Any, lefts: list, widths: list, bottoms: list, heights: list, colour: str, gid: str) -> None:
    from matplotlib.collections import PolyCollection

    boxes = [
        [(x, y), (x, y + h), (x + w, y + h), (x + w, y)]
        for x, w, y, h in zip(lefts, widths, bottoms, heights, strict=True)
    ]
    bars = PolyCollection(boxes, facecolors=colour, edgecolors="white", linewidths=0.2, gid=gid)
    axes.add_collection(style.lightened(bars, len(boxes)))


def _bars_of(kind: str, boxes: list, colours: list[str], alphas: list[float] | None) -> Any:
    """One collection of all segments of a kind."""
    from matplotlib.collections import LineCollection, PolyCollection

    if kind == "swapped":
        lines = [[box[0], box[2]] for box in boxes]
        return LineCollection(lines, colors=PROMPT_TOKENS, linestyles=[DASHES], alpha=alphas, gid=kind)
    faces, edges = [WAITING] * len(boxes), "white"
    if kind == "parked":
        faces, edges = ["white"] * len(boxes), colours
    elif kind in TINTS:
        faces = [style.tint(colour, TINTS[kind]) for colour in colours]
    width = 1.0 if kind == "parked" else 0.4
    hatch = HATCHES.get(kind)
    return PolyCollection(
        boxes, facecolors=faces, edgecolors=edges, linewidths=width, hatch=hatch, alpha=alphas, gid=kind
    )


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    sample = style.PALETTE[0]
    handles: list[Any] = [
        Line2D([], [], color=WAITING, linewidth=2.5, label=WORDS["waiting"]),
        Patch(facecolor="white", edgecolor=sample, label=WORDS["parked"]),
        Line2D([], [], color=PROMPT_TOKENS, linestyle=DASHES, label=WORDS["swapped"]),
    ]
    for kind, amount in TINTS.items():
        colour = style.tint(sample, amount)
        handles.append(Patch(facecolor=colour, hatch=HATCHES.get(kind), edgecolor="white", label=WORDS[kind]))
    for name, marker, colour in (
        ("first token (TTFT)", ">", "black"), ("longest gap (ITL), if a stall", "$⊔$", "black"),
        ("preempted", "x", style.RED), ("end", "|", "black"),
    ):  # fmt: skip
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle="none", label=name))
    handles += [
        Patch(color=DECODE_TOKENS, label="decode tokens"),
        Patch(color=PROMPT_TOKENS, label="prompt tokens"),
    ]
    return handles


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:.1f} ms"
