"""The widgets in JupyterLab: what the reader's slider, play button and list of requests do to the picture."""

import re
import shutil
import time

import pytest

from minivllm.viz.snapshot import take_snapshot
from tests.browser.jupyter import ROOT, OpenNotebook, jupyterlab, write_notebook

RUN = """
from minivllm import LLM, SamplingParams
from minivllm.viz.block_table import BlockTableView

small = dict(block_size=4, num_gpu_blocks_override=20, max_num_batched_tokens=12)
llm = LLM({path!r}, skip_tokenizer_init=True, **small)
prompts = [{{"prompt_token_ids": [5, 6, 7, 8, *range(20 + i, 22 + 3 * i)]}} for i in range(4)]
params = [SamplingParams(max_tokens=6 + i, temperature=0, ignore_eos=True) for i in range(4)]
llm.generate(prompts, params, use_tqdm=False);
"""
SHOW = "BlockTableView(llm.trace)"


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory, checkpoints):
    folder = tmp_path_factory.mktemp("jupyterlab")
    write_notebook(
        folder / "notebooks" / "small.ipynb", [RUN.format(path=str(checkpoints["llama"])).strip(), SHOW]
    )
    shutil.copy(ROOT / "labs" / "01_naive_kv_cache.ipynb", folder / "notebooks")
    with jupyterlab(folder) as address:
        yield address


@pytest.fixture(scope="module")
def trace(checkpoints):
    """What the notebook's first cell makes, made here."""
    names = {}
    exec(RUN.format(path=str(checkpoints["llama"])), names)
    return names["llm"].trace


def shown(page):
    """(step, ids of the cells and table entries drawn) of the SVG picture in the notebook."""
    label, ids = page.evaluate(
        """() => {
            const svg = document.querySelector(".jp-OutputArea-output svg[role=img]");
            return [svg.getAttribute("aria-label"), [...svg.querySelectorAll("[id]")].map((e) => e.id)];
        }"""
    )
    return int(re.search(r"\d+", label)[0]), {i for i in ids if i.startswith(("cell-", "entry-"))}


def expected(trace, step):
    snap = take_snapshot(trace, step)
    cells = {f"cell-{c.owners[0] if c.owners else ''}-{c.block}-{c.state}" for c in snap.cells}
    state = {c.block: c.state for c in snap.cells}
    return cells | {f"entry-{r}-{b}-{state[b]}" for r, blocks in snap.tables.items() for b in blocks}


def until(page, condition, what):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        page.wait_for_timeout(50)


def test_slider_play_and_choice_of_request_change_the_picture_as_the_trace_says(page, lab, trace, screenshot):
    notebook = OpenNotebook(page, lab("small.ipynb"))
    notebook.run(0)
    notebook.run(1)
    output = notebook.cell(1).locator(".jp-OutputArea")
    output.locator("svg[role=img]").wait_for()
    assert shown(page) == (0, expected(trace, 0))
    screenshot("first")

    output.locator(".noUi-handle").focus()
    for step in (1, 2, 3):
        page.keyboard.press("ArrowRight")
        until(page, lambda step=step: shown(page)[0] == step, f"step {step}")
        assert shown(page)[1] == expected(trace, step)
    assert len({frozenset(expected(trace, step)) for step in range(4)}) > 2, "the picture had to change"

    plain = output.locator("svg[role=img]").inner_html()
    output.locator("select").select_option(label="B")
    until(page, lambda: output.locator("svg[role=img]").inner_html() != plain, "the highlight")
    assert shown(page) == (3, expected(trace, 3))
    screenshot("selected")
    output.locator("select").select_option(label="all requests")

    output.locator(".widget-play button").first.click()
    until(page, lambda: shown(page)[0] >= 5, "play")
    output.locator(".widget-play button").first.click()
    page.wait_for_timeout(500)
    step, ids = shown(page)
    assert ids == expected(trace, step)
    page.wait_for_timeout(900)
    assert shown(page)[0] == step, "pause holds the step"

    output.get_by_text("the same in words").click()
    output.locator("pre").filter(has_text="slots taken and empty").wait_for()
    assert f"step {step}" in output.locator("pre").last.inner_text()
    screenshot("words")


def test_opening_a_lab_asks_no_question_and_its_first_cells_run(page, lab, screenshot):
    notebook = OpenNotebook(page, lab("01_naive_kv_cache.ipynb"))
    assert page.locator(".jp-Dialog").count() == 0, "JupyterLab asks something"
    notebook.run(0)
    notebook.run(1)
    for number in (0, 1):
        output = notebook.cell(number).locator(".jp-OutputArea")
        assert "Traceback" not in output.inner_text()
    assert page.locator(".jp-Dialog").count() == 0
    screenshot()
