"""The prefix cache as a picture: which cached block follows which, who uses it, how often it was hit.

A hash chain and a radix tree hold the same thing, prefixes that share their beginnings, so both are
drawn as a tree: a column is one block further into the prompt. A box has the block's id, how many requests
found it in the cache, and the letters of those that use it now; hatched, nobody does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..trace import Trace
from . import style
from .identity import Identity
from .snapshot import take_snapshot


@dataclass
class Node:
    """A cached block; `row` and `depth` are its place in the picture."""

    block: int
    depth: int
    hits: int
    owners: tuple[str, ...]
    children: list[Node] = field(default_factory=list)
    row: int = 0


class PrefixTreeView:
    """Pictures of the prefix cache of a `trace` (of an `LLM`: `llm.trace`)."""

    MOST_ROWS = 40

    def __init__(self, trace: Trace) -> None:
        if not trace.steps:
            raise ValueError("the trace has no step yet; run the engine first")
        self.trace = trace
        self.identity = Identity(trace)

    @property
    def steps(self) -> range:
        return range(self.trace.steps[0].index, self.trace.num_steps)

    def roots(self, step: int) -> list[Node]:
        """The trees of one step: a root is the first block of a prefix, or one whose head was evicted."""
        state = self.trace.state_after(step)
        snap = take_snapshot(self.trace, step)
        nodes = {b: Node(b, 0, state.hits.get(b, 0), snap.cells[b].owners) for b in state.cached}
        roots = []
        for block, parent in state.cached.items():
            (nodes[parent].children if parent in nodes else roots).append(nodes[block])
        row = 0
        for root in roots:
            row = _place(root, row)
        return roots

    def table(self, step: int) -> str:
        """The picture in words: a line a block, indented by depth."""
        lines = [f"step {step}"]
        for node in _walk(self.roots(step)):
            users = " ".join(self.identity.letter(r) for r in node.owners) or "nobody"
            lines.append(f"{'  ' * node.depth}block {node.block}: {node.hits} hits, used by {users}")
        if len(lines) == 1:
            lines.append("nothing is cached")
        return "\n".join(lines)

    def alt(self, step: int) -> str:
        return "Prefix tree. " + " ".join(self.table(step).replace("\n", "; ").split())

    def figure(self, step: int, highlight: str | None = None) -> Any:
        """matplotlib Figure of one step; `highlight` is a request id whose path stands out."""
        from matplotlib.figure import Figure

        style.use()
        nodes = _walk(self.roots(step))
        shown = [node for node in nodes if node.row < self.MOST_ROWS]
        rows = 1 + max((node.row for node in shown), default=0)
        depth = 1 + max((node.depth for node in shown), default=0)
        size = (min(14.0, 1.0 + 0.95 * depth), min(14.0, 1.0 + 0.36 * rows))
        figure = Figure(figsize=(max(size[0], 4.5), size[1]), layout="constrained", facecolor="white")
        axes = figure.subplots()
        for node in shown:
            self._draw(axes, node, highlight)
        hidden = len(nodes) - len(shown)
        title = f"step {step}: {len(nodes)} cached blocks" + (f", {hidden} not shown" if hidden else "")
        axes.set(xlim=(-0.1, depth), ylim=(rows, -0.1), title=title, yticks=[])
        axes.set_xticks([d + 0.4 for d in range(depth)])
        axes.set_xticklabels([str((d + 1) * self.trace.block_size) for d in range(depth)])
        axes.set_xlabel(
            "tokens from the beginning of the prompt\nblock id · hits, and who uses it; hatched: nobody"
        )
        axes.grid(False)
        axes.spines["left"].set_visible(False)
        return figure

    def show(self, step: int) -> None:
        style.show(self.figure(step), self.alt(step))

    def widget(self) -> Any:
        from .player import player

        choices = [(self.identity.letter(r), r) for r in self.trace.requests]
        return player(self.steps, choices, self.figure, self.table)

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        from .player import bundle

        last = self.steps[-1]
        return bundle(self.widget, lambda: self.figure(last), self.alt(last))

    def _draw(self, axes: Any, node: Node, highlight: str | None) -> None:
        from matplotlib.patches import Rectangle

        used = bool(node.owners)
        strong = highlight is None or highlight in node.owners
        colour = self.identity.colour(node.owners[0]) if used else "#F2F2F2"
        axes.add_patch(
            Rectangle(
                (node.depth, node.row + 0.12), 0.8, 0.76, facecolor=colour, alpha=1 if strong else 0.25,
                edgecolor="#888888", hatch=None if used else "////", lw=0.6, gid=f"node-{node.block}",
            )
        )  # fmt: skip
        letters = [self.identity.letter(r) for r in self.identity.in_order(node.owners)]
        users = " ".join(letters if len(letters) < 5 else [*letters[:3], f"+{len(letters) - 3}"])
        hits = f"{node.hits} {'hit' if node.hits == 1 else 'hits'}" if node.hits else ""
        text = f"{node.block}" + (f" · {hits}" if hits else "") + (f"\n{users}" if users else "")
        box = None if used else {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        ink = style.text_on(colour) if used and strong else "#333333"
        axes.text(
            node.depth + 0.4, node.row + 0.5, text, ha="center", va="center", fontsize=7, color=ink, bbox=box
        )
        for child in node.children:
            if child.row < self.MOST_ROWS:
                bend = node.depth + 0.9
                xs, ys = (
                    (node.depth + 0.8, bend, bend, child.depth),
                    (node.row, node.row, child.row, child.row),
                )
                axes.plot(xs, [y + 0.5 for y in ys], color="#888888", linewidth=0.8, zorder=0)


def _place(root: Node, row: int) -> int:
    """Give a tree its places, the first child on its parent's row; returns the next free row."""
    stack = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        node.row, node.depth = row, depth
        stack.extend((child, depth + 1) for child in reversed(node.children))
        if not node.children:
            row += 1
    return row


def _walk(roots: list[Node]) -> list[Node]:
    found, stack = [], list(reversed(roots))
    while stack:
        node = stack.pop()
        found.append(node)
        stack.extend(reversed(node.children))
    return found
