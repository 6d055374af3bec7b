"""Every lab in JupyterLab: opening it asks no question, its first cells run; and in lab 02 the reader's own
widget does what its controls say, after all the cells before it have run."""

import re

import nbformat
import pytest

from minivllm.course.catalogue import LABS
from tests.browser.jupyter import ROOT, OpenNotebook, until

# The drawn picture of the block table: its label, and (letter of the row, blocks) of every table.
TABLES = """(svg) => [svg.getAttribute("aria-label"),
    [...svg.querySelectorAll("[id^=entry-]")].map((e) => e.id.split("-").slice(1, 3).join(" "))]"""
WORDS = re.compile(r"^ *([A-Z]+\d*) +\d+ tokens in  (.*)$", re.M)


@pytest.mark.parametrize("number", LABS)
def test_opening_a_lab_asks_no_question_and_its_first_cells_run(number, page, lab, screenshot):
    notebook = OpenNotebook(page, lab(f"{LABS[number]}.ipynb"))
    assert page.locator(".jp-Dialog").count() == 0, "JupyterLab asks something"
    notebook.run(0)
    notebook.run(1)
    for cell in (0, 1):
        output = notebook.cell(cell).locator(".jp-OutputArea").first
        assert "Traceback" not in output.inner_text()
    assert page.locator(".jp-Dialog").count() == 0
    screenshot()


@pytest.fixture(scope="module")
def up_to_the_widget(lab_folder):
    """Lab 02 as a student opens it, up to its widget; (name, number of the widget's code cell)."""
    notebook = nbformat.read(ROOT / "labs" / f"{LABS[2]}.ipynb", as_version=4)
    end = next(i for i, cell in enumerate(notebook.cells) if "view.widget()" in cell.source)
    notebook.cells = notebook.cells[: end + 1]
    nbformat.write(notebook, lab_folder / "notebooks" / "02_up_to_the_widget.ipynb")
    return "02_up_to_the_widget.ipynb", sum(cell.cell_type == "code" for cell in notebook.cells) - 1


def test_lab_02_runs_to_its_widget_whose_controls_work(page, lab, up_to_the_widget, screenshot):
    name, last = up_to_the_widget
    notebook = OpenNotebook(page, lab(name))
    notebook.run_all(last, seconds=150)
    assert page.get_by_text("Traceback (most recent call last)").count() == 0
    output = notebook.cell(last).locator(".jp-OutputArea").first
    output.scroll_into_view_if_needed()
    picture = output.locator("svg[role=img]").first
    picture.wait_for()
    output.get_by_text("the same in words").click()
    words = output.locator("pre").last
    screenshot("first")

    def step():
        return int(re.search(r"\d+", picture.evaluate(TABLES)[0])[0])

    def agrees():
        """The tables that are drawn are those of the words below, and of the same step."""
        _, entries = picture.evaluate(TABLES)
        listed = {letter: blocks.split() for letter, blocks in WORDS.findall(words.inner_text())}
        said = sorted(block.split("×")[0] for blocks in listed.values() for block in blocks)
        same_step = words.inner_text().startswith(f"step {step()}\n")
        return same_step and bool(said) and said == sorted(entry.split()[1] for entry in entries)

    until(page, agrees, "picture and words of the first step")
    output.locator(".noUi-handle").focus()
    before = step()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    until(page, lambda: step() == before + 3 and agrees(), "three steps by key")
    output.locator(".widget-play button").first.click()
    until(page, lambda: step() > before + 5, "play")
    output.locator(".widget-play button").first.click()
    until(page, agrees, "picture and words after play")
    plain = picture.inner_html()
    output.locator("select").select_option(label="B1")
    until(page, lambda: picture.inner_html() != plain, "the highlight")
    screenshot("B1")
