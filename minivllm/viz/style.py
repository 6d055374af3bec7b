"""How the course's pictures look: one palette, one size, and words for who cannot see them.

The colours are Okabe and Ito's (2008), which colour-blind readers can tell apart; they come with markers
and line styles, so that a picture printed grey says the same. `show` puts a figure into a notebook as
one small PNG with alternative text.
"""

from __future__ import annotations

import io

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":", "-.")
EMPTY = "#E5E5E5"
DPI = 100


def figure(columns: int = 1, width: float = 8.0, height: float = 3.4):
    """(figure, axes) of one row; axes is a single one for one column. Sizes in inches."""
    import matplotlib
    from matplotlib.figure import Figure

    settings = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": EMPTY,
        "axes.axisbelow": True,
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "legend.frameon": False,
    }
    with matplotlib.rc_context(settings):
        made = Figure(figsize=(width, height), layout="constrained", facecolor="white")
        return made, made.subplots(1, columns)


def line(axes, x, y, number: int, label: str, **more) -> None:
    """The `number`-th series of a picture, with its colour, marker and line style."""
    axes.plot(
        x,
        y,
        color=PALETTE[number % len(PALETTE)],
        marker=MARKERS[number % len(MARKERS)],
        linestyle=LINES[number % len(LINES)],
        markersize=4,
        label=label,
        **more,
    )


def bar(axes, x: str, height: float, number: int, empty: bool = False) -> None:
    """One bar of the `number`-th series; an empty one is grey, for what is reserved and not used."""
    axes.bar(x, height, color=EMPTY if empty else PALETTE[number % len(PALETTE)], width=0.6)


def cell(column: int, row: int, colour: str):
    """A square of a matrix picture, for `axes.add_patch`."""
    from matplotlib.patches import Rectangle

    return Rectangle((column, row), 1, 1, facecolor=colour, edgecolor="white")


def show(made, alt: str) -> None:
    """Display a figure in a notebook; `alt` says in words what it shows."""
    from IPython.display import Image, display

    data = io.BytesIO()
    made.savefig(data, format="png", dpi=DPI)
    width = int(made.get_figwidth() * DPI)
    display(Image(data.getvalue(), format="png", width=width, alt=alt, metadata={"alt": alt}))
