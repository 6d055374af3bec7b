"""The page of a trace in a real browser: what is drawn is read out of it and held against the trace."""

import time

import pytest

from minivllm.viz.identity import Identity
from minivllm.viz.page import write_page
from minivllm.viz.segments import IDLE, request_times, segments, split_tokens
from minivllm.viz.style import PALETTE
from tests.sim import Sim

# What the page has drawn last, after a paint that does not wait for the next frame.
DRAWN = """() => {
    const {timeline, blocks} = app;
    for (const pane of [timeline.rows, timeline.budget, blocks.grid, blocks.tables]) pane.paint();
    const id = (row) => app.trace.rows[row].id;
    return {
        step: app.trace.first_step + app.step,
        selected: app.selected === null ? null : id(app.selected),
        cells: blocks.grid.boxes.map((b) => ({...b, owners: b.owners.map(id)})),
        tables: blocks.tables.boxes.filter((b) => "block" in b).map((b) => ({...b, request: id(b.row)})),
        marks: timeline.rows.boxes.filter((b) => b.mark).map((b) => [b.mark, id(b.row), b.time / 1e6]),
        bars: timeline.rows.boxes.filter((b) => b.kind).map((b) => (
            {...b, request: id(b.row), from: timeline.time(b.x) / 1e6, to: timeline.time(b.x + b.w) / 1e6})),
        budget: timeline.budget.boxes,
    }
}"""


@pytest.fixture(scope="module")
def trace():
    """A run with chunks, prefix hits, forks with copies, preemption by recomputation, and evictions."""
    sim = Sim(num_blocks=14, block_size=4, max_num_batched_tokens=12, enable_prefix_caching=True)
    shared = [7, 8, 9, 3, 2, 7, 5, 6]
    sim.add([*shared, 1, 2, 3, 4, 5, 6, 7], 12)
    sim.add([*shared, 9, 9], 9, n=3)
    for _ in range(4):
        sim.step()
    sim.add([*shared, 4, 4, 4, 1, 1], 14)
    sim.add([1, 2, 3], 6)
    sim.run()
    kinds = {change[0] for step in sim.trace.steps for change in step.changes}
    assert kinds == {"append", "hit", "replace", "drop", "cache", "evict"}
    assert any(step.preempted for step in sim.trace.steps)
    return sim.trace


@pytest.fixture
def opened(page, trace, tmp_path):
    write_page(trace, tmp_path / "page.html", "a trace")
    page.goto(f"file://{tmp_path / 'page.html'}")
    return page


def drawn(page):
    return page.evaluate(DRAWN)


def until(page, condition, seconds=10):
    """Wait for a condition. Playwright's own way needs `eval`, which the page's policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"{condition} did not come true"
        page.wait_for_timeout(20)


def move_to(page, step):
    page.locator("#step").fill(str(step))


def check_blocks(picture, trace, index):
    """Every cell, every table and what happened to the blocks, as the trace has them after a step."""
    state, owners = trace.state_after(index), {b: [] for b in range(trace.num_blocks)}
    for request_id, blocks in state.by_request.items():
        for block in blocks:
            owners[block].append(request_id)
    for cell in picture["cells"]:
        block, mine = cell["block"], owners.pop(cell["block"])
        idle = "cached" if block in state.cached else "free"
        assert sorted(cell["owners"]) == sorted(mine)
        assert cell["cached"] == (block in state.cached)
        assert cell["state"] == (("used" if len(mine) == 1 else "shared") if mine else idle)
    assert not owners, "every block is drawn"
    changes = trace.steps[index - trace.steps[0].index].changes
    for name, kind in (("evicted", "evict"), ("hit", "hit")):
        noted = {b for k, _, what in changes if k == kind for b in what}
        assert {c["block"] for c in picture["cells"] if name in c["events"]} == noted


def test_in_every_step_cells_and_tables_are_those_of_the_trace(opened, trace, screenshot):
    for step in trace.steps:
        move_to(opened, step.index)
        picture, tables = drawn(opened), {}
        check_blocks(picture, trace, step.index)
        for entry in picture["tables"]:
            tables.setdefault(entry["request"], []).append(entry["block"])
        assert tables == {r: blocks for r, blocks in step.block_tables.items() if blocks}
    screenshot()


def test_last_blocks_are_filled_as_far_as_they_hold_tokens(opened, trace):
    seen = set()
    for step in trace.steps:
        move_to(opened, step.index)
        entries = {(e["request"], e["position"]): e["fill"] for e in drawn(opened)["tables"]}
        for request_id, n in step.num_scheduled_tokens.items():
            tokens = step.starts[request_id] + n
            for position in range(len(step.block_tables[request_id])):
                expected = min(max(tokens / trace.block_size - position, 0), 1)
                assert entries[request_id, position] == expected
                seen.add(expected)
    assert len(seen) > 3, "partly filled blocks were among them"


def test_bars_lie_where_the_segments_of_the_trace_lie(opened, trace, screenshot):
    chunks, waits = set(), []
    for segment in segments(trace):
        if segment.kind in IDLE:
            waits.append((segment.request_id, segment.kind, segment.start, segment.end))
        else:
            chunks.add((segment.request_id, segment.kind, segment.first_step))
    bars, pixel = drawn(opened)["bars"], opened.evaluate("app.timeline.time(1) - app.timeline.time(0)") / 1e6
    for bar in bars:
        request_id, kind, place = bar["request"], bar["kind"], (bar["from"], bar["to"])
        if kind in IDLE:
            mine = (w for w in waits if w[:2] == (request_id, kind))
            waits.remove(next(w for w in mine if w[2:] == pytest.approx(place, abs=pixel)))
        else:
            first, last = trace.steps[bar["first"]], trace.steps[bar["last"]]
            assert place == pytest.approx((first.time_start, last.time_end), abs=pixel)
            chunks -= {(request_id, kind, step) for step in range(bar["first"], bar["last"] + 1)}
    assert not chunks and not waits, "everything is drawn, and once"
    heights = {bar["kind"]: bar["drawn"] for bar in bars}
    assert heights["waiting"] < heights["parked"] < heights["decode"] < heights["prefill"], (
        "kinds differ in more than colour"
    )
    screenshot()


def test_first_tokens_preemptions_and_ends_are_marked_where_they_happened(opened, trace):
    expected = []
    for request_id, times in request_times(trace).items():
        moments = [("first", times.first_token), ("finished", times.finished)]
        moments += [("preempted", moment) for moment in times.preemptions]
        moments += [("stall", times.stall[0])] if times.stall else []
        expected += [[name, request_id, moment] for name, moment in moments]
    assert sorted(drawn(opened)["marks"]) == sorted(expected)


def test_token_bars_are_as_high_as_the_tokens_of_their_steps(opened, trace):
    boxes = drawn(opened)["budget"]
    scale = (boxes[0]["decode"] + boxes[0]["prompt"]) / sum(trace.steps[0].num_scheduled_tokens.values())
    for box, step in zip(boxes, trace.steps, strict=True):
        decode, prompt = split_tokens(trace, step)
        assert (box["decode"], box["prompt"]) == pytest.approx((decode * scale, prompt * scale))


def test_pixels_of_a_block_have_its_requests_colour_as_far_as_it_is_filled(opened, trace):
    identity, seen, num_partial = Identity(trace), set(), 0
    for step in list(trace.steps)[:12]:
        move_to(opened, step.index)
        for cell in drawn(opened)["cells"]:
            left, right = opened.evaluate(
                """({x, y, w, h}) => [[x + 3, y + 5], [x + w - 4, y + h - 4]].map((place) => {
                    const [left, top] = place.map((at) => at * devicePixelRatio);
                    return [...app.blocks.grid.canvas.getContext("2d").getImageData(left, top, 1, 1).data];
                })""",
                cell,
            )
            if cell["state"] == "free":
                assert left == right == [255, 255, 255, 255]
            elif cell["state"] == "used" and cell["fill"] > 0.2:
                colour = identity.colour(cell["owners"][0])
                assert "#{:02X}{:02X}{:02X}".format(*left) == colour
                assert ("#{:02X}{:02X}{:02X}".format(*right) == colour) == (cell["fill"] == 1)
                seen.add(colour)
                num_partial += cell["fill"] < 1
    assert len(seen) > 2 and seen <= set(PALETTE) and num_partial > 3


def test_play_runs_to_the_end_pauses_there_and_starts_anew(opened, trace):
    last = trace.num_steps - 1
    opened.locator("#speed").select_option("300")
    opened.keyboard.press("Home")
    opened.locator("#play").click()
    until(opened, f"app.step === {last} && !app.playing")
    assert "play" in opened.locator("#play").inner_text()
    opened.locator("#speed").select_option("10")
    opened.locator("#play").click()
    assert "pause" in opened.locator("#play").inner_text()
    until(opened, "app.step > 0 && app.step < 10")
    opened.locator("#play").click()
    assert drawn(opened)["step"] < last and opened.evaluate("app.playing") is None


def test_keys_step_select_zoom_and_play(opened, trace):
    def after(*keys):
        for key in keys:
            opened.keyboard.press(key)
        picture = drawn(opened)
        return picture["step"], picture["selected"]

    last = trace.num_steps - 1
    assert after("Home") == (0, None)
    assert after("ArrowRight", "ArrowRight", "ArrowLeft") == (1, None)
    opened.locator("#step").focus()
    assert after("ArrowRight") == (2, None), "the focused slider takes one step, not two"
    assert after("Shift+ArrowRight") == (12, None)
    assert after("End", "ArrowRight") == (last, None)
    assert after("ArrowDown", "ArrowDown") == (last, "r1")
    assert after("ArrowUp") == (last, "r0")
    assert after("Escape") == (last, None)
    opened.keyboard.press("+")
    assert opened.evaluate("app.timeline.view[1] - app.timeline.view[0]") < opened.evaluate(
        "app.trace.duration"
    )
    opened.keyboard.press("0")
    assert opened.evaluate("app.timeline.view") == [0, opened.evaluate("app.trace.duration")]
    opened.keyboard.press("Space")
    assert opened.evaluate("app.playing") is not None
    opened.keyboard.press("Space")
    assert opened.evaluate("app.playing") is None


def test_an_address_can_name_a_step(opened):
    opened.goto(opened.url + "#3")
    opened.reload()
    assert drawn(opened)["step"] == 3


def test_a_request_is_selected_from_the_list_by_its_row_and_by_its_block(opened, trace, screenshot):
    move_to(opened, 6)
    opened.locator("#request").select_option(label="B2 (r1#2)")
    picture = drawn(opened)
    assert picture["selected"] == "r1#2"
    lit = {cell["block"] for cell in picture["cells"] if not cell["faded"]}
    assert lit == set(trace.steps[6].block_tables["r1#2"])
    assert {e["request"] for e in picture["tables"] if not e["faded"]} == {"r1#2"}
    facts, times = opened.locator("#request-facts").inner_text(), request_times(trace)["r1#2"]
    assert f"first token after {times.time_to_first_token:.3f} s (TTFT)" in facts
    assert f"longest gap between tokens {times.longest_gap:.3f} s (ITL)" in facts
    screenshot()
    rows = opened.locator("#rows canvas")
    rows.click(position={"x": 20, "y": 14})
    assert drawn(opened)["selected"] == "r0"
    rows.click(position={"x": 20, "y": 14})
    assert drawn(opened)["selected"] is None, "a second click lets go"
    cell = next(c for c in drawn(opened)["cells"] if c["state"] == "used")
    opened.locator("#grid canvas").click(position={"x": cell["x"] + 9, "y": cell["y"] + 9})
    assert drawn(opened)["selected"] == cell["owners"][0]


def test_pointing_and_focus_tell_the_facts(opened, trace):
    tooltip = opened.locator("#tooltip")
    assert tooltip.is_hidden()
    bar = next(b for b in drawn(opened)["bars"] if b["request"] == "r0" and b["kind"] == "prefill")
    opened.locator("#rows canvas").hover(position={"x": bar["x"] + 3, "y": bar["y"] + 9})
    assert "computes prompt tokens 0–11" in tooltip.inner_text()
    move_to(opened, 6)
    cell = next(c for c in drawn(opened)["cells"] if c["state"] == "shared")
    opened.locator("#grid canvas").hover(position={"x": cell["x"] + 9, "y": cell["y"] + 9})
    assert f"block {cell['block']}" in tooltip.inner_text() and "shared by" in tooltip.inner_text()
    opened.mouse.move(640, 8)
    assert tooltip.is_hidden()
    opened.locator("#request").select_option(label="A (r0)")
    opened.locator("#rows canvas").focus()
    assert "decodes token" in tooltip.inner_text() and "(TTFT)" in tooltip.inner_text()


def test_words_say_what_the_picture_shows(opened, trace, screenshot):
    opened.locator("summary").click()
    for index in (0, 6, next(s.index for s in trace.steps if s.preempted)):
        move_to(opened, index)
        step, words = trace.steps[index], opened.locator("#words").inner_text()
        for request_id, blocks in step.block_tables.items():
            letter = Identity(trace).letter(request_id)
            line = next(line for line in words.splitlines() if line.startswith(f"{letter}: "))
            listed = line.split("tokens in blocks ")[1].rstrip(".").split()
            assert [int(b.split("×")[0]) for b in listed] == blocks
        assert ("preempted: lost its blocks" in words) == bool(step.preempted)
        counts = opened.locator("#counts").inner_text()
        assert f"{step.num_running} running" in counts and f"{step.num_waiting} waiting" in counts
        assert f"{sum(step.num_scheduled_tokens.values())} of 12 tokens" in counts
    assert opened.locator("#counts").get_attribute("aria-live") == "polite"
    screenshot()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(opened, width, screenshot):
    opened.set_viewport_size({"width": width, "height": 800})
    until(opened, f"app.blocks.grid.width < {width}")
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    for box in drawn(opened)["cells"] + drawn(opened)["tables"]:
        assert box["x"] + box["w"] <= width
    screenshot()


def test_a_thousand_requests_in_five_thousand_steps_are_drawn_within_a_second(
    page, tmp_path, monkeypatch, screenshot
):
    for name in ("check", "check_plan", "execute"):  # what the simulation proves elsewhere, and slowly
        monkeypatch.setattr(Sim, name, lambda *_: None)
    sizes = {"num_blocks": 1200, "block_size": 16, "max_model_len": 1024}
    sim = Sim(**sizes, max_num_seqs=36, max_num_batched_tokens=256, enable_prefix_caching=True)
    for i in range(1000):
        sim.add(20 + i * 37 % 400, 60 + i * 53 % 300)
    while sim.trace.num_steps < 5000:
        sim.step()
    write_page(sim.trace, tmp_path / "long.html")
    page.goto(f"file://{tmp_path / 'long.html'}")
    page.keyboard.press("0")
    seconds = page.evaluate(
        f"""() => [4990, 10, 2500].map((step) => {{
            const start = performance.now();
            app.goTo(step);
            ({DRAWN})();
            return (performance.now() - start) / 1000;
        }})"""
    )
    assert max(seconds) < 1
    for index in (4990, 10, 2500):
        move_to(page, index)
        check_blocks(drawn(page), sim.trace, index)
    rows = {bar["request"] for bar in drawn(page)["bars"]}
    assert set(sim.trace.steps[2500].num_scheduled_tokens) & rows, "rows that are served are in view"
    screenshot()
