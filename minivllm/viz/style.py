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
SHARED = "#555555"
RED = "#B00020"  # what is lost: preempted, evicted, swapped out
DPI = 100
MOST_SHAPES = 1_000


SETTINGS = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "grid.color": EMPTY,
    "font.size": 10,
    "legend.frameon": False,
}


def figure(columns: int = 1, width: float = 8.0, height: float = 3.4):
    """(figure, axes) of one row; axes is a single one for one column. Sizes in inches. Sets
    matplotlib's defaults to the course's, since titles and legends look theirs up when they are made."""
    from matplotlib.figure import Figure

    use()
    made = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    return made, made.subplots(1, columns)


def use() -> None:
    """Make the course's settings matplotlib's defaults."""
    import matplotlib

    matplotlib.rcParams.update(SETTINGS)


def text_on(colour: str) -> str:
    """Black or white, whichever reads better on `colour` (#RRGGBB)."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "white"


def tint(colour: str, amount: float) -> str:
    """`amount` of a colour (#RRGGBB) on white."""
    mixed = (round(255 - (255 - int(colour[i : i + 2], 16)) * amount) for i in (1, 3, 5))
    return "#" + "".join(f"{part:02X}" for part in mixed)


def lightened(collection, num_shapes: int):
    """The collection, as pixels instead of shapes in an SVG that would otherwise be slow to draw."""
    collection.set_rasterized(num_shapes > MOST_SHAPES)
    return collection


def halo():
    """A white rim around text that lies on two colours."""
    from matplotlib.patheffects import withStroke

    return withStroke(linewidth=2, foreground="white")


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


def cell(axes, column: int, row: int, colour: str) -> None:
    """A square of a matrix picture; rows and columns count from 1, row 1 is on top."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="white"))


def matrix(axes, columns: int, rows: int) -> None:
    """Set axes up for `cell`s."""
    axes.set(xlim=(0.5, columns + 0.5), ylim=(rows + 0.5, 0.5), aspect="equal")
    axes.set(xticks=range(1, columns + 1), yticks=range(1, rows + 1))
    axes.grid(False)


def show(made, alt: str) -> None:
    """Display a figure in a notebook; `alt` says in words what it shows."""
    from IPython.display import Image, display

    data = io.BytesIO()
    made.savefig(data, format="png", dpi=DPI)
    width = int(made.get_figwidth() * DPI)
    display(Image(data.getvalue(), format="png", width=width, alt=alt, metadata={"alt": alt}))
