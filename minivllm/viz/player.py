"""A picture that moves: slider, play and pause, and a choice of request around any view of steps.

A view gives two functions, one that draws a step and one that says it in words; this file knows nothing
of what they show. Where ipywidgets or a front end for it is missing, the static picture takes its place.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .main_thread import in_main_thread

PIXELS = 150  # an inch, of what is drawn as pixels
WIDGET = "application/vnd.jupyter.widget-view+json"


def player(
    steps: range,
    choices: list[tuple[str, str]],
    figure: Callable[[int, str | None], Any],
    table: Callable[[int], str],
) -> Any:
    """An ipywidgets box. `choices` are (label, request id); the slider takes the arrow keys."""
    import ipywidgets as widgets

    ends = {"value": steps[0], "min": steps[0], "max": steps[-1]}
    slider = widgets.IntSlider(description="step", layout=widgets.Layout(width="420px"), **ends)
    play = widgets.Play(interval=400, description="play", **ends)
    widgets.jslink((play, "value"), (slider, "value"))
    return _around(
        [play, slider],
        choices,
        lambda choice: (figure(slider.value, choice), table(slider.value), f"step {slider.value}"),
        slider,
    )


def chooser(choices: list[tuple[str, str]], figure: Callable[..., Any], table: Callable[[], str]) -> Any:
    """An ipywidgets box for a picture of a whole run: only the choice of request."""
    return _around([], choices, lambda choice: (figure(choice), table(), "whole run"))


def _around(controls: list[Any], choices: list[tuple[str, str]], draw: Callable, slider: Any = None) -> Any:
    """Controls, the picture as SVG, and the same in words under a fold. `draw` takes the chosen request
    and gives (figure, words, label)."""
    import ipywidgets as widgets

    choice = widgets.Dropdown(options=[("all requests", ""), *choices], description="request")
    choice.layout.width = "240px"
    picture, words = widgets.HTML(), widgets.HTML()
    fold = widgets.Accordion(children=[words], titles=("the same in words",), selected_index=None)

    def redraw(_: Any = None) -> None:
        figure, text, label = draw(choice.value or None)
        picture.value = svg(figure, label)
        words.value = f"<pre>{_escaped(text)}</pre>"

    for control in (choice, slider):
        if control is not None:
            control.observe(in_main_thread(redraw), names="value")
    redraw()
    return widgets.VBox([widgets.HBox([*controls, choice, *_neighbours(choice)]), picture, fold])


def _neighbours(choice: Any) -> list[Any]:
    """Buttons for the request before and after: JupyterLab takes a list's arrow keys and letters for
    itself (b would insert a cell), but leaves Tab and Enter to a button."""
    import ipywidgets as widgets

    def button(icon: str, words: str, by: int) -> Any:
        made = widgets.Button(icon=icon, tooltip=words, layout=widgets.Layout(width="36px"))
        made.on_click(lambda _: setattr(choice, "index", (choice.index + by) % len(choice.options)))
        return made

    return [button("chevron-left", "previous request", -1), button("chevron-right", "next request", 1)]


def svg(figure: Any, label: str) -> str:
    """The figure as inline SVG, with a label for screen readers."""
    data = io.StringIO()
    figure.savefig(data, format="svg", dpi=PIXELS)
    drawing = data.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    look = 'style="max-width:100%;height:auto"'  # as wide as the notebook lets it be
    return drawing.replace("<svg", f'<svg role="img" aria-label="{_escaped(label)}" {look}', 1)


def bundle(
    widget: Callable[[], Any], figure: Callable[[], Any], alt: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(data, metadata) that a notebook shows for a view: the widget, and a PNG with alternative text
    for where no widget can be shown."""
    from .style import DPI

    data = io.BytesIO()
    figure().savefig(data, format="png", dpi=DPI)
    content: dict[str, Any] = {
        "image/png": base64.b64encode(data.getvalue()).decode(),
        "text/plain": alt,
    }
    with suppress(ImportError):  # without ipywidgets the static form is all there is
        content[WIDGET] = widget()._repr_mimebundle_()[WIDGET]
    return content, {"image/png": {"alt": alt}}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
