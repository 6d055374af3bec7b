"""Drawn data equals the trace: every rectangle and cell, for random runs of the real scheduler."""

import random
import time

import pytest

from minivllm.trace import Trace
from minivllm.viz.block_table import BlockTableView
from minivllm.viz.debugger import Explorer
from minivllm.viz.identity import Identity, letters
from minivllm.viz.memory import MemoryView
from minivllm.viz.player import svg
from minivllm.viz.prefix_tree import PrefixTreeView, _walk
from minivllm.viz.segments import request_times, segments, split_tokens
from minivllm.viz.snapshot import take_snapshot
from minivllm.viz.timeline import HEIGHTS, TimelineView, compare
from tests.sim import Sim

SEEDS = pytest.mark.parametrize("seed", range(8))


def random_run(seed, num_requests=9):
    """A run with shared prefixes, forks, preemption, swapping; and what the live engine held in each step."""
    rng = random.Random(seed)
    sim = Sim(
        num_blocks=rng.choice([9, 14]), block_size=rng.choice([2, 3]), num_host_blocks=12,
        max_num_batched_tokens=rng.choice([3, 7, 20]), enable_prefix_caching=rng.random() < 0.8,
        prefix_cache=rng.choice(["hash", "radix"]), preemption_mode=rng.choice(["recompute", "swap"]),
        max_model_len=18,
    )  # fmt: skip
    truth = []
    while num_requests or sim.scheduler.running or sim.scheduler.waiting:
        if num_requests and rng.random() < 0.6:
            prompt = [1] * rng.randint(0, 6) + [rng.randint(2, 4) for _ in range(rng.randint(1, 5))]
            sim.add(prompt, rng.randint(1, 6), n=rng.choice([1, 1, 2]), arrival_time=len(sim.plans))
            num_requests -= 1
        cached = set(sim.kv.prefix_cache.cached_blocks()) if sim.kv.prefix_cache else set()
        before = {b for kind, _, blocks in sim.kv.changes if kind == "evict" for b in blocks}
        sim.step()
        truth.append((sim.tables, cached, before, sim.plans[-1]))
    return sim, truth


@SEEDS
def test_cells_and_entries_are_those_of_the_engine(seed):
    sim, truth = random_run(seed)
    view = BlockTableView(sim.trace)
    for index, (tables, _, _, plan) in enumerate(truth):
        snap = take_snapshot(sim.trace, index)
        assert snap.tables == tables
        for cell in snap.cells:
            owners = {r for r, blocks in tables.items() if cell.block in blocks}
            assert set(cell.owners) == owners
            assert (cell.state in ("used", "shared")) == bool(owners)
            assert (cell.state == "shared") == (len(owners) > 1)
        for chunk in plan.chunks:
            assert snap.num_tokens[chunk.request.request_id] == chunk.start + chunk.num_tokens
        if index % 5 == 0:
            grid, logical = view.figure(index).axes
            drawn = {p.get_gid() for p in grid.patches if p.get_gid()}
            first = {c.block: (c.owners[0] if c.owners else "") for c in snap.cells}
            assert drawn == {f"cell-{first[c.block]}-{c.block}-{c.state}" for c in snap.cells}
            entries = [p.get_gid().split("-")[1:3] for p in logical.patches if p.get_gid()]
            assert sorted(entries) == sorted([r, str(b)] for r, blocks in tables.items() for b in blocks)


@SEEDS
def test_timeline_rectangles_are_the_scheduled_chunks(seed):
    sim, _ = random_run(seed)
    view = TimelineView(sim.trace)
    rows, _ = view.figure().axes
    drawn = []
    for bars in rows.collections:
        if bars.get_gid() not in ("prefill", "recompute", "decode"):
            continue
        for path in bars.get_paths():
            x, y = path.vertices[:4, 0], path.vertices[:4, 1]
            row = view.rows[int((min(y) + max(y)) / 2)]
            drawn.append((row, round(min(x)), round(max(x)), bars.get_gid()))
            assert max(y) - min(y) == pytest.approx(HEIGHTS[bars.get_gid()])
    zero = sim.trace.steps[0].time_start
    expected = [
        (request_id, round(1e3 * (step.time_start - zero)), round(1e3 * (step.time_end - zero)))
        for step in sim.trace.steps
        for request_id in step.num_scheduled_tokens
    ]
    assert sorted(d[:3] for d in drawn) == sorted(expected)


@SEEDS
def test_merged_segments_cover_the_same_time_and_tokens(seed):
    sim, _ = random_run(seed)
    fine, merged = segments(sim.trace), segments(sim.trace, merged=True)
    assert len(merged) <= len(fine)
    for kind in ("prefill", "recompute", "decode"):
        count = {r: 0 for r in sim.requests}
        for s in fine:
            count[s.request_id] += s.num_tokens if s.kind == kind else 0
        for s in merged:
            count[s.request_id] -= s.num_tokens if s.kind == kind else 0
        assert not any(count.values())


@SEEDS
def test_marks_are_first_tokens_ends_and_preemptions(seed):
    sim, truth = random_run(seed)
    times = request_times(sim.trace)
    for request_id, request in sim.requests.items():
        marks = times[request_id]
        assert len(marks.token_times) == request.num_output_tokens
        assert marks.finished == max(marks.token_times)
        assert len(marks.preemptions) == request.num_preemptions
    decodes = sum(split_tokens(sim.trace, step)[0] for step in sim.trace.steps)
    assert decodes <= sum(r.num_output_tokens for r in sim.requests.values()) + sum(
        step.num_lost_tokens for step in sim.trace.steps
    )


@SEEDS
def test_prefix_tree_holds_exactly_the_cached_blocks_below_their_parents(seed):
    sim, truth = random_run(seed)
    view = PrefixTreeView(sim.trace)
    for index in range(0, len(truth), 4):
        nodes = _walk(view.roots(index))
        assert sorted(n.block for n in nodes) == sorted(sim.trace.state_after(index).cached)
        assert len({(n.row, n.depth) for n in nodes}) == len(nodes), "two blocks in one place"
        for node in nodes:
            assert all(child.depth == node.depth + 1 for child in node.children)
    for node in _walk(view.roots(len(truth) - 1)):
        for child in node.children:
            content = [sim.device[b] for b in (node.block, child.block)]
            assert None not in content[0] and None not in content[1]
    view.figure(len(truth) - 1)


@SEEDS
def test_memory_adds_up_to_the_pool_in_every_step(seed):
    sim, truth = random_run(seed)
    usage = MemoryView(sim.trace).usage
    for u, (tables, *_) in zip(usage, truth, strict=True):
        assert u.used + u.cached + u.free == sim.kv.num_blocks
        assert u.used >= len({b for blocks in tables.values() for b in blocks})
    MemoryView(sim.trace).figure()


def test_words_and_pictures_name_the_same_requests():
    sim, _ = random_run(3)
    view = BlockTableView(sim.trace)
    step = max(view.steps, key=lambda i: len(sim.trace.state_after(i).by_request))
    words = view.table(step)
    identity = Identity(sim.trace)
    for request_id, blocks in sim.trace.state_after(step).tables().items():
        (line,) = [x for x in words.splitlines() if x.split()[:1] == [identity.letter(request_id)]]
        assert [x.split("×")[0] for x in line.split(" in  ")[1].split()] == list(map(str, blocks))
    assert "blocks:" in words and view.alt(step).startswith("Block table.")


def test_letters_go_on_after_z():
    assert [letters(i) for i in (0, 25, 26, 51, 52, 701, 702)] == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]


def test_completions_of_a_prompt_share_letter_and_colour_and_stand_together():
    sim = Sim(num_blocks=40)
    for n in (1, 3, 1):
        sim.add(4, 3, n=n)
    sim.run()
    identity = Identity(sim.trace)
    order = identity.in_order(sim.requests)
    assert [identity.letter(r) for r in order] == ["A", "B", "B1", "B2", "C"]
    assert identity.colour("r1") == identity.colour("r1#2") != identity.colour("r0")


def big_trace(num_requests=1000, num_steps=5000):
    """A long run of the real scheduler."""
    rng = random.Random(0)
    sim = Sim(num_blocks=2048, block_size=16, max_num_seqs=24, max_num_batched_tokens=128, max_model_len=2048)
    sim.check = sim.check_wait = sim.execute = lambda *_: None  # its checks are quadratic
    waiting = num_requests
    while sim.trace.num_steps < num_steps:
        if waiting and len(sim.scheduler.waiting) < 8:
            sim.add(rng.randint(5, 80), rng.randint(20, 190), arrival_time=float(len(sim.plans)))
            waiting -= 1
        sim.step()
    return sim.trace


def test_a_thousand_requests_and_five_thousand_steps_stay_usable():
    """Sizes are asserted, times are printed: run with -s to read them."""
    trace = big_trace()
    assert len(trace.steps) == 5000 and len(trace.requests) > 800
    view = BlockTableView(trace)
    grid = view.figure(4000).axes[0]
    sizes = {c.get_gid(): len(c.get_paths()) for c in grid.collections}
    snap = take_snapshot(trace, 4000)
    assert sizes == {state: snap.count(state) for state in ("free", "cached", "used", "shared")}
    for name, draw in (
        ("block table", lambda: view.figure(4000)),
        ("timeline", lambda: TimelineView(trace).figure()),
        ("memory", lambda: MemoryView(trace).figure()),
    ):
        start = time.perf_counter()
        figure = draw()
        made = time.perf_counter() - start
        svg(figure, name)
        print(f"{name}: {made:.2f} s to make, {time.perf_counter() - start:.2f} s with its SVG")
    assert len(TimelineView(trace).segments) < 10_000


def test_a_trace_without_steps_is_refused_by_name():
    for view in (BlockTableView, TimelineView, PrefixTreeView, MemoryView):
        with pytest.raises(ValueError, match="no step yet"):
            view(Trace())


def test_comparison_puts_all_runs_on_one_time_axis():
    views = [TimelineView(random_run(seed)[0].trace, f"run {seed}") for seed in (1, 2)]
    axes = compare(views).axes
    assert len(axes) == 4 and axes[0].get_shared_x_axes().joined(axes[0], axes[3])
    assert [axes[0].get_title(loc="left"), axes[2].get_title(loc="left")] == ["run 1", "run 2"]


@pytest.mark.parametrize("view", [BlockTableView, TimelineView, PrefixTreeView])
def test_a_notebook_gets_a_picture_with_alternative_text_and_a_widget(view):
    shown, about = view(random_run(2)[0].trace)._repr_mimebundle_()
    assert shown["image/png"] and about["image/png"]["alt"] == shown["text/plain"]
    assert len(shown["text/plain"]) > 20
    assert "application/vnd.jupyter.widget-view+json" in shown


@pytest.mark.parametrize("view", [BlockTableView, TimelineView, PrefixTreeView])
def test_without_ipywidgets_the_static_form_is_left(view, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ipywidgets", None)
    shown, _ = view(random_run(2)[0].trace)._repr_mimebundle_()
    assert set(shown) == {"image/png", "text/plain"}


def test_the_widget_redraws_when_the_slider_or_the_choice_moves():
    sim, _ = random_run(4)
    box = BlockTableView(sim.trace).widget()
    controls, picture, _ = box.children
    _, slider, choice, _, following = controls.children
    before = picture.value
    slider.value = 6
    assert "step 6" in picture.value and picture.value != before
    before = picture.value
    choice.value = "r0"
    assert picture.value != before
    before = picture.value
    following.click()
    assert choice.index == 2 and picture.value != before


def test_the_debugger_steps_a_live_engine_and_says_what_it_sees(checkpoints):
    from minivllm import LLM
    from minivllm.viz import explore

    llm = LLM(checkpoints["llama"], skip_tokenizer_init=True, num_gpu_blocks_override=12, block_size=4)
    explorer = Explorer(llm)
    assert explorer.plan() == "no step yet" and explorer.requests() == "no requests"
    explorer.add([1, 2, 3, 4, 5], max_tokens=3)
    explorer.set_budget(3)
    explorer.step()
    assert "positions 0 to 2" in explorer.plan() and "running" in explorer.requests()
    assert "token_ids     [3]" in explorer.shapes() and "logits" not in explorer.shapes()
    explorer.step()
    assert (
        "positions 3 to 4, samples a token" in explorer.plan()
        and "logits        [1, 160]" in explorer.shapes()
    )
    assert explorer.step(50) == 2
    explorer.add([1], max_tokens=2)
    explorer.set_pool(5)
    assert llm.stats()["num_blocks"] == llm.stats()["num_free_blocks"] == 5
    with pytest.raises(ValueError, match="there is memory for 12"):
        explorer.set_pool(13)
    box = explore(llm)
    (_, _, add), (one, *_) = (row.children for row in box.children[:2])
    box.children[0].children[0].value = "text"
    add.click()
    assert "needs a tokenizer" in box.children[2].value
    box.children[0].children[0].value = "1 2"
    add.click()
    one.click()
    assert "1 step" in box.children[2].value and "<svg" in box.children[4].value
