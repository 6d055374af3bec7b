"""The block table picture: physical blocks as a grid, and each request's table as a row of blocks.

A block carries the letter and colour of its request; a shared one the number of its owners, one that only
the prefix cache holds is hatched, a free one is empty. What happened in the step has a thick border and a
sign, which the legend explains. `table()` says the same in words.
"""

from __future__ import annotations

from typing import Any

from ..trace import Trace
from . import style
from .identity import Identity
from .snapshot import Cell, Snapshot, take_snapshot

COLUMNS = 16
# Above this many blocks a letter in each would be unreadable: colours only, in longer rows.
MOST_LABELLED = 320
MANY_COLUMNS = 64
MOST_ROWS = 24
MOST_BLOCKS_IN_A_ROW = 24
SIGNS = {
    "taken": "+", "hit": "✓", "shared": "=", "copy": "→", "evicted": "×",
    "swapped out": "↑", "swapped in": "↓",
}  # fmt: skip
WORDS = {
    "taken": "taken now",
    "hit": "found in the prefix cache",
    "shared": "shared now",
    "copy": "copied into",
}
LOST = ("evicted", "swapped out")


class BlockTableView:
    """Pictures of the KV cache of a `trace` (of an `LLM`: `llm.trace`)."""

    def __init__(self, trace: Trace, num_blocks: int | None = None, block_size: int | None = None) -> None:
        self.trace = trace
        trace.num_blocks = num_blocks or trace.num_blocks
        trace.block_size = block_size or trace.block_size
        if not trace.steps:
            raise ValueError("the trace has no step yet; run the engine first")
        self.identity = Identity(trace)

    @property
    def steps(self) -> range:
        """Indices of the steps that can be drawn."""
        return range(self.trace.steps[0].index, self.trace.num_steps)

    def snapshot(self, step: int) -> Snapshot:
        return take_snapshot(self.trace, step)

    def table(self, step: int) -> str:
        """The picture in words: one line a request, then the totals."""
        snap = self.snapshot(step)
        shared = {cell.block: len(cell.owners) for cell in snap.cells if len(cell.owners) > 1}
        lines = [f"step {step}"]
        for request_id in self.identity.in_order(snap.tables):
            blocks = snap.tables[request_id]
            names = [f"{block}×{shared[block]}" if block in shared else str(block) for block in blocks]
            tokens = snap.num_tokens.get(request_id, 0)
            lines.append(f"{self.identity.letter(request_id):>4}  {tokens:>4} tokens in  {' '.join(names)}")
        counts = ", ".join(f"{snap.count(s)} {s}" for s in ("used", "shared", "cached", "free"))
        lines.append(f"{len(snap.cells)} blocks: {counts}; {snap.num_wasted_slots} slots taken and empty")
        for event in SIGNS:
            blocks = [str(cell.block) for cell in snap.cells if cell.event == event]
            if blocks:
                lines.append(f"{WORDS.get(event, event)}: {' '.join(blocks)}")
        return "\n".join(lines)

    def alt(self, step: int) -> str:
        return "Block table. " + " ".join(self.table(step).replace("\n", "; ").split())

    def figure(self, step: int, highlight: str | None = None) -> Any:
        """matplotlib Figure of one step; `highlight` is a request id whose blocks stand out."""
        from matplotlib.figure import Figure

        style.use()
        snap = self.snapshot(step)
        num_rows = -(-len(snap.cells) // COLUMNS) if len(snap.cells) <= MOST_LABELLED else 12
        num_tables = min(len(snap.tables), MOST_ROWS)
        height = min(9.0, max(1.9, 0.3 * max(num_rows, num_tables) + 1.0))
        figure = Figure(figsize=(9, height), layout="constrained", facecolor="white")
        left, right = figure.subplots(1, 2)
        self._draw_grid(left, snap, highlight)
        self._draw_tables(right, snap, highlight)
        if len(snap.cells) <= MOST_LABELLED:  # one scale for both, so that a block is a block
            widest = max(axes.get_xlim()[1] for axes in (left, right))
            for axes in (left, right):
                axes.set_xlim(-0.1, widest)
            events = {cell.event for cell in snap.cells}
            figure.legend(handles=_legend(events), loc="outside lower left", ncols=7, fontsize=8)
        return figure

    def show(self, step: int, highlight: str | None = None) -> None:
        """Display the static picture in a notebook, with alternative text."""
        style.show(self.figure(step, highlight), self.alt(step))

    def widget(self) -> Any:
        """The picture with a step slider, play/pause, and a choice of request. Needs ipywidgets."""
        from .player import player

        served = {request_id for step in self.trace.steps for request_id in step.starts}
        choices = [(self.identity.letter(r), r) for r in self.identity.in_order(served)]
        return player(self.steps, choices, self.figure, self.table)

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        """In a notebook: the widget where a front end shows widgets, else the busiest step."""
        from .player import bundle

        busiest = min(self.trace.steps, key=lambda s: (s.num_free_blocks, s.index)).index
        return bundle(self.widget, lambda: self.figure(busiest), self.alt(busiest))

    def _draw_grid(self, axes: Any, snap: Snapshot, highlight: str | None) -> None:
        labelled = len(snap.cells) <= MOST_LABELLED
        width = COLUMNS if labelled else MANY_COLUMNS
        columns, num_rows = min(width, len(snap.cells)), -(-len(snap.cells) // width)
        if labelled:
            for cell in snap.cells:
                row, column = divmod(cell.block, width)
                self._square(axes, column, row, cell, highlight)
        else:
            self._draw_many(axes, snap, highlight)
        axes.set(xlim=(-0.1, columns + 0.1), ylim=(num_rows + 0.1, -0.1), aspect="equal")
        axes.set_title(
            f"step {snap.index}: physical blocks, {snap.count('free') + snap.count('cached')} free"
        )
        axes.set_yticks([r + 0.5 for r in range(num_rows)][:: max(1, num_rows // 12)])
        axes.set_yticklabels([str(r * width) for r in range(num_rows)][:: max(1, num_rows // 12)])
        axes.set_ylabel("block id")
        _bare(axes)

    def _draw_many(self, axes: Any, snap: Snapshot, highlight: str | None) -> None:
        """A large pool: one collection of small squares a state, without letters."""
        from matplotlib.collections import PolyCollection

        for state in ("free", "cached", "used", "shared"):
            cells = [cell for cell in snap.cells if cell.state == state]
            colours = [self._plain_colour(cell, highlight) for cell in cells]
            boxes = []
            for cell in cells:
                y, x = divmod(cell.block, MANY_COLUMNS)
                boxes.append([(x, y), (x, y + 0.85), (x + 0.85, y + 0.85), (x + 0.85, y)])
            hatch = "////" if state == "cached" else None
            squares = PolyCollection(
                boxes, facecolors=colours, edgecolors="#BBBBBB", lw=0.2, hatch=hatch, gid=state
            )
            axes.add_collection(style.lightened(squares, len(boxes)))

    def _plain_colour(self, cell: Cell, highlight: str | None) -> str:
        if not cell.owners:
            return "#F2F2F2" if cell.cached else "white"
        if highlight is not None and highlight not in cell.owners:
            return style.EMPTY
        return style.SHARED if len(cell.owners) > 1 else self.identity.colour(cell.owners[0])

    def _draw_tables(self, axes: Any, snap: Snapshot, highlight: str | None) -> None:
        cells = {cell.block: cell for cell in snap.cells}
        rows = [(r, snap.tables[r]) for r in self.identity.in_order(snap.tables)][:MOST_ROWS]
        widest = min(max((len(blocks) for _, blocks in rows), default=1), MOST_BLOCKS_IN_A_ROW)
        labels = []
        for row, (request_id, blocks) in enumerate(rows):
            labels.append(f"{self.identity.letter(request_id)}  {snap.num_tokens.get(request_id, 0)} tokens")
            shown = blocks[:MOST_BLOCKS_IN_A_ROW]
            last_fill = snap.num_tokens.get(request_id, 0) - (len(blocks) - 1) * snap.block_size
            for column, block in enumerate(shown):
                fill = last_fill / snap.block_size if column == len(blocks) - 1 else 1.0
                self._square(
                    axes, column, row, cells[block], highlight, fill=fill, name=str(block), of=request_id
                )
            if len(blocks) > len(shown):
                axes.text(len(shown) + 0.2, row + 0.5, f"… {len(blocks) - len(shown)} more", va="center")
        hidden = len(snap.tables) - len(rows)
        axes.set(
            xlim=(-0.1, max(widest, 6) + (2 if any(len(b) > widest for _, b in rows) else 0.1)),
            ylim=(max(len(rows), 1) + 0.1, -0.1),
            aspect="equal",
        )
        axes.set_title("block tables" + (f" (first {MOST_ROWS}, {hidden} more)" if hidden else ""))
        axes.set_yticks([r + 0.5 for r in range(len(rows))])
        axes.set_yticklabels(labels)
        _bare(axes)

    def _square(
        self,
        axes: Any,
        column: int,
        row: int,
        cell: Cell,
        highlight: str | None,
        fill: float = 1.0,
        name: str | None = None,
        of: str | None = None,
    ) -> None:
        from matplotlib.patches import Rectangle

        owner = of or (cell.owners[0] if cell.owners else None)
        faded = highlight is not None and highlight not in cell.owners
        strength = 0.25 if faded else 1.0
        box = {"xy": (column + 0.05, row + 0.05), "height": 0.9}
        gid = f"{'cell' if name is None else 'entry'}-{owner or ''}-{cell.block}-{cell.state}"
        back = "#F2F2F2" if cell.state == "cached" else "white"
        hatch = "////" if cell.state == "cached" else None
        axes.add_patch(
            Rectangle(width=0.9, facecolor=back, edgecolor="#BBBBBB", hatch=hatch, lw=0.6, **box, gid=gid)
        )
        if owner is not None:
            shared = len(cell.owners) > 1 and of is None
            colour = style.SHARED if shared else self.identity.colour(owner)
            axes.add_patch(Rectangle(width=0.9 * fill, facecolor=colour, alpha=strength, lw=0, **box))
        if cell.event or (highlight is not None and not faded):
            edge = style.RED if cell.event in LOST else "black"
            axes.add_patch(Rectangle(width=0.9, fill=False, edgecolor=edge, lw=0.8 if faded else 1.8, **box))
            if cell.event and of is None:
                disc = {"boxstyle": "circle,pad=0.12", "facecolor": edge, "edgecolor": "white", "lw": 0.6}
                sign = axes.text(column + 0.9, row + 0.12, SIGNS[cell.event], color="white", bbox=disc)
                sign.set(ha="center", va="center", fontsize=6, fontweight="bold", zorder=4)
        text = name or self._label(cell)
        if text:
            dark = owner is not None and fill > 0.5 and strength == 1.0
            colour = style.text_on(colour) if dark else "#333333"
            label = axes.text(column + 0.5, row + 0.52, text, ha="center", va="center", color=colour)
            label.set_fontsize(7 if len(text) < 4 else 5.5)
            if of is not None and len(cell.owners) > 1:
                owners = axes.text(column + 0.5, row + 0.82, f"×{len(cell.owners)}", ha="center", va="center")
                owners.set(fontsize=4.5, color=label.get_color())
            if 0 < fill < 1:  # half on colour, half on white
                label.set(color="black", path_effects=[style.halo()])

    def _label(self, cell: Cell) -> str:
        if len(cell.owners) > 1:
            return f"×{len(cell.owners)}"
        return self.identity.letter(cell.owners[0]) if cell.owners else ""


def _legend(events: set[str]) -> list[Any]:
    """The states, and of the events those that the picture has."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(facecolor=style.PALETTE[0], label="used (letter: whose)"),
        Patch(facecolor=style.SHARED, label="×n: n owners"),
        Patch(facecolor="#F2F2F2", hatch="////", edgecolor="#BBBBBB", label="only cached"),
        Patch(facecolor="white", edgecolor="#BBBBBB", label="free"),
    ]
    for event in (event for event in SIGNS if event in events):
        colour, label = style.RED if event in LOST else "black", WORDS.get(event, event)
        look = {"marker": f"${SIGNS[event]}$", "color": colour, "markersize": 6, "linestyle": "none"}
        handles.append(Line2D([], [], label=label, **look))
    return handles


def _bare(axes: Any) -> None:
    axes.set_anchor("NW")
    axes.set_xticks([])
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
