"""The widgets in JupyterLab: what the reader's slider, play button, lists and keys do to the pictures."""

import re

import pytest

from minivllm.viz.identity import Identity
from minivllm.viz.segments import segments
from minivllm.viz.snapshot import take_snapshot
from tests.browser.jupyter import OpenNotebook, until
from tests.browser.small import BLOCKS, STATIC, THREADS, TIMELINE, TREE, trace_of_views

SHOWN = """(svg) => [svg.getAttribute("aria-label"), [...svg.querySelectorAll("[id]")].map((e) => e.id)]"""
# Of each collection of bars: how many are plain, and how many faded.
BARS = """(svg) => Object.fromEntries(["prefill", "decode", "parked", "waiting"].map((kind) => {
    const bars = [...svg.querySelectorAll(`#${kind} path[style*="fill"], #${kind} use[style*="fill"]`)];
    const faded = bars.filter((bar) => /opacity: 0.2/.test(bar.getAttribute("style")));
    return [kind, [bars.length - faded.length, faded.length]];
}))"""


@pytest.fixture(scope="module")
def trace(checkpoints):
    return trace_of_views(str(checkpoints["llama"]))


@pytest.fixture
def opened(page, lab):
    """Opens the notebook of views, runs its engine and one of its views, and gives that view's output."""

    def run(cell):
        notebook = run.notebook = OpenNotebook(page, lab("views.ipynb"))
        notebook.run(0)
        notebook.run(cell)
        output = notebook.cell(cell).locator(".jp-OutputArea").first
        output.scroll_into_view_if_needed()
        return output

    return run


def picture(output):
    output.locator("svg[role=img]").first.wait_for()
    return output.locator("svg[role=img]").first


def shown(output, *kinds):
    """(step, ids of the drawn things whose id begins with one of the kinds)."""
    label, ids = picture(output).evaluate(SHOWN)
    number = re.search(r"\d+", label)
    return int(number[0]) if number else None, {i for i in ids if i.startswith(kinds)}


def blocks_shown(output):
    return shown(output, "cell-", "entry-")


def blocks_at_rest(page, output):
    """What is shown when it no longer changes."""
    before, now = None, blocks_shown(output)
    while now != before:
        page.wait_for_timeout(1000)
        before, now = now, blocks_shown(output)
    return now


def blocks_expected(trace, step):
    snap = take_snapshot(trace, step)
    cells = {f"cell-{c.owners[0] if c.owners else ''}-{c.block}-{c.state}" for c in snap.cells}
    state = {c.block: c.state for c in snap.cells}
    return cells | {f"entry-{r}-{b}-{state[b]}" for r, blocks in snap.tables.items() for b in blocks}


def test_slider_play_and_choice_of_request_change_the_picture_as_the_trace_says(
    page, opened, trace, screenshot
):
    output = opened(BLOCKS)
    assert blocks_shown(output) == (0, blocks_expected(trace, 0))
    screenshot("first")

    output.locator(".noUi-handle").focus()
    for step in (1, 2, 3):
        page.keyboard.press("ArrowRight")
        until(page, lambda step=step: blocks_shown(output)[0] == step, f"step {step}")
        assert blocks_shown(output)[1] == blocks_expected(trace, step)
    assert len({frozenset(blocks_expected(trace, step)) for step in range(4)}) > 2, (
        "the picture had to change"
    )

    plain = picture(output).inner_html()
    output.locator("select").select_option(label="B")
    until(page, lambda: picture(output).inner_html() != plain, "the highlight")
    assert blocks_shown(output) == (3, blocks_expected(trace, 3))
    screenshot("selected")
    output.locator("select").select_option(label="all requests")

    output.locator(".widget-play button").first.click()
    until(page, lambda: blocks_shown(output)[0] >= 5, "play")
    output.locator(".widget-play button").first.click()
    step, ids = blocks_at_rest(page, output)
    assert ids == blocks_expected(trace, step) and step < trace.num_steps - 1, "pause holds the step"

    output.get_by_text("the same in words").click()
    output.locator("pre").filter(has_text="slots taken and empty").wait_for()
    assert f"step {step}" in output.locator("pre").last.inner_text()
    screenshot("words")


def test_pictures_are_drawn_by_the_thread_that_runs_the_cells(page, opened):
    output = opened(BLOCKS)
    output.locator(".noUi-handle").focus()
    for step in (1, 2, 3):  # JupyterLab may send each of them to a thread of its own
        page.keyboard.press("ArrowRight")
        until(page, lambda step=step: blocks_shown(output)[0] == step, f"step {step}")
    notebook = opened.notebook
    notebook.run(THREADS)
    words = notebook.cell(THREADS).locator(".jp-OutputArea-output")
    until(page, lambda: words.inner_text().strip() == "{'MainThread'}", "drawing by MainThread alone")


def test_the_block_table_can_be_played_and_a_request_chosen_from_the_keyboard(page, opened, trace):
    output = opened(BLOCKS)
    output.locator(".widget-play button").first.focus()
    page.keyboard.press("Enter")
    until(page, lambda: blocks_shown(output)[0] >= 2, "play by key")
    page.keyboard.press("Enter")
    step, _ = blocks_at_rest(page, output)
    plain = picture(output).inner_html()
    output.get_by_title("next request").focus()
    page.keyboard.press("Enter")
    until(page, lambda: picture(output).inner_html() != plain, "the choice by key")
    assert blocks_shown(output) == (step, blocks_expected(trace, step))


def test_the_timeline_lights_the_row_that_is_chosen(page, opened, trace, screenshot):
    output = opened(TIMELINE)
    found, identity = segments(trace), Identity(trace)

    def expected(request_id):
        count = {kind: [0, 0] for kind in ("prefill", "decode", "parked", "waiting")}
        for segment in found:
            if segment.kind in count:
                count[segment.kind][request_id is not None and segment.request_id != request_id] += 1
        return count

    assert picture(output).evaluate(BARS) == expected(None)
    screenshot("all")
    output.locator("select").select_option(label="C")
    chosen = next(r for r in trace.requests if identity.letter(r) == "C")
    until(page, lambda: picture(output).evaluate(BARS) == expected(chosen), "the chosen row")
    screenshot("C")
    output.get_by_title("next request").focus()
    page.keyboard.press("Enter")
    chosen = next(r for r in trace.requests if identity.letter(r) == "D")
    until(page, lambda: picture(output).evaluate(BARS) == expected(chosen), "the next one by key")
    output.get_by_text("the same in words").click()
    output.locator("pre").filter(has_text="longest ITL").wait_for()


def test_the_prefix_tree_shows_what_is_cached_in_each_step(page, opened, trace, screenshot):
    output = opened(TREE)

    def expected(step):
        return step, {f"node-{block}" for block in trace.state_after(step).cached}

    assert shown(output, "node-") == expected(0)
    output.locator(".noUi-handle").focus()
    for step in (1, 2, 3, 4):
        page.keyboard.press("ArrowRight")
        until(page, lambda step=step: shown(output, "node-")[0] == step, f"step {step}")
        assert shown(output, "node-") == expected(step)
    assert len(expected(4)[1]) > len(expected(0)[1]), "the tree had to grow"
    plain = picture(output).inner_html()
    output.locator("select").select_option(label="A")
    until(page, lambda: picture(output).inner_html() != plain, "the highlight")
    assert shown(output, "node-") == expected(4)
    screenshot()


def test_memory_and_roofline_are_shown_as_pictures(opened, screenshot):
    output = opened(STATIC)
    pictures = output.locator("img")
    assert pictures.count() == 2
    for number in range(2):
        assert pictures.nth(number).evaluate("(image) => image.complete && image.naturalWidth") > 600
    screenshot()


def test_the_debugger_steps_a_live_engine(page, lab, screenshot):
    notebook = OpenNotebook(page, lab("explore.ipynb"))
    notebook.run(0)
    notebook.run(1)
    output = notebook.cell(1).locator(".jp-OutputArea").first
    stages = {name: output.locator(f"div:has(> b:text-is('{name}')) > pre") for name in STAGES}
    said = {name: stage.inner_text for name, stage in stages.items()}
    number = {name: output.get_by_label(name, exact=True) for name in ("max_tokens", "budget", "blocks")}

    def button_named(words):
        return output.locator("button", has_text=re.compile(rf"^\s*{words}$"))

    def press(button):
        button_named(button).click()

    def shows(name, words):
        until(page, lambda: words in said[name](), f"{words!r} under {name}")

    shows("requests", "no requests")
    output.get_by_label("prompt", exact=True).fill("5 6 7 8 9 10 11 12 13 14")
    press("add request")
    shows("requests", "waiting")
    press("step")
    shows("plan", "A positions 0 to 7")
    shows("tensors", "token_ids     [8]")
    assert blocks_shown(output)[0] == 0 and "entry-0-0-used" in blocks_shown(output)[1]
    screenshot("first")

    number["budget"].fill("3")
    page.keyboard.press("Enter")
    press("add request")
    press("step")
    shows("plan", "A positions 8 to 9, samples a token")
    shows("plan", "B positions 8 to 8")  # its first two blocks are cached
    shows("tensors", "token_ids     [3]")
    until(page, lambda: blocks_shown(output)[0] == 1, "the block table of step 1")

    # By keyboard alone: ten steps, then a smaller pool.
    button_named("10 steps").focus()
    page.keyboard.press("Enter")
    until(page, lambda: blocks_shown(output)[0] == 11, "ten steps by key")
    screenshot("eleven")
    number["blocks"].fill("8")
    page.keyboard.press("Tab")
    shows("requests", "no requests")
    press("add request")
    press("step")
    until(page, lambda: sum(i.startswith("cell-") for i in blocks_shown(output)[1]) == 8, "eight blocks")
    output.get_by_label("prompt", exact=True).fill(" ".join(["7"] * 40))
    press("add request")
    output.get_by_text("that takes 14 KV blocks of 4, the pool has 8").wait_for()
    screenshot("refused")


STAGES = ("requests", "plan", "tensors")
