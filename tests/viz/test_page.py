"""The page's numbers, played back here as the page does it, against the trace they come from."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minivllm.trace import Trace
from minivllm.viz import page
from minivllm.viz.identity import Identity
from minivllm.viz.page import page_data, write_page
from minivllm.viz.segments import IDLE, request_times, segments
from tests.sim import Sim

# Prompt length, most tokens, completions, steps until the next one comes.
requests = st.tuples(st.integers(1, 14), st.integers(1, 10), st.integers(1, 3), st.integers(0, 6))


@st.composite
def traces(draw):
    """Traces of runs with preemption by both ways, forks, both prefix caches, chunks, and a ring that may
    be too short. Not every request ends."""
    cache = draw(st.sampled_from([None, "hash", "radix"]))
    sim = Sim(
        num_blocks=draw(st.integers(12, 20)),
        block_size=draw(st.sampled_from([2, 3])),
        num_host_blocks=draw(st.sampled_from([0, 8])),
        trace_capacity=draw(st.sampled_from([3, 1000])),
        max_num_batched_tokens=draw(st.integers(4, 12)),
        enable_prefix_caching=cache is not None,
        prefix_cache=cache or "hash",
        preemption_mode=draw(st.sampled_from(["recompute", "swap"])),
    )
    for prompt, max_tokens, n, num_steps in draw(st.lists(requests, min_size=1, max_size=8)):
        sim.add([1 + i % 3 for i in range(prompt)], max_tokens, n=n)
        for _ in range(num_steps):
            sim.step()
    sim.step()
    for _ in range(draw(st.integers(0, 60))):
        if sim.scheduler.running or sim.scheduler.waiting:
            sim.step()
    return sim.trace


def expanded(data):
    """[(request id, kind, step, first token, number of tokens)] of all runs."""
    chunks = []
    for row, kind, first, token, n in data["runs"]:
        for i, count in enumerate(n if isinstance(n, list) else [1] * n):
            request_id = data["requests"][row]["id"]
            chunks.append((request_id, data["kinds"][kind], first + i, token, count))
            token += count
    return chunks


@settings(max_examples=60, deadline=None)
@given(traces())
def test_tables_and_cached_blocks_played_back_from_the_page_are_the_traces(trace):
    data = json.loads(json.dumps(page_data(trace)))
    ids = [request["id"] for request in data["requests"]]
    tables = {ids[row]: blocks for row, *blocks in data["start"]["tables"]}
    cached = set(data["start"]["cached"])
    for step, changes in zip(trace.steps, data["changes"], strict=True):
        for code, row, *what in changes:
            kind = data["change_kinds"][code]
            if kind in ("append", "hit"):
                tables.setdefault(ids[row], []).extend(what)
            elif kind == "replace":
                tables[ids[row]][what[0]] = what[1]
            elif kind == "drop":
                tables.pop(ids[row], None)
            elif kind == "cache":
                cached.update(what)
            else:
                cached.difference_update(what)
        assert tables == step.block_tables
        assert cached == step.cached_blocks


@settings(max_examples=60, deadline=None)
@given(traces())
def test_runs_and_waits_are_the_segments_of_the_timeline(trace):
    data = page_data(trace)
    first = trace.steps[0].index
    found = segments(trace)
    assert sorted(expanded(data)) == sorted(
        (s.request_id, s.kind, s.first_step - first, step.starts[s.request_id], s.num_tokens)
        for s in found
        if s.kind not in IDLE
        for step in [trace.steps[s.first_step - first]]
    )
    waits = [
        (data["requests"][row]["id"], data["kinds"][kind], a / 1e6, b / 1e6)
        for row, kind, a, b in data["waits"]
    ]
    assert waits == [(s.request_id, s.kind, s.start, s.end) for s in found if s.kind in IDLE]
    scheduled = sum(n for step in trace.steps for n in step.num_scheduled_tokens.values())
    assert sum(n for *_, n in expanded(data)) == scheduled


@settings(max_examples=60, deadline=None)
@given(traces())
def test_marks_and_counts_of_a_request_are_the_traces(trace):
    data = page_data(trace)
    times, identity, steps = request_times(trace), Identity(trace), list(trace.steps)
    for request in data["requests"]:
        request_id = request["id"]
        assert (request["letter"], request["colour"]) == (
            identity.letter(request_id),
            identity.colour(request_id),
        )
        got = [p for a, b in request["tokens"] for p in range(a, b + 1)]
        assert got == [p for p, step in enumerate(steps) if request_id in step.sampled]
        assert request["preempted"] == [p for p, step in enumerate(steps) if request_id in step.preempted]
        ended = [p for p, step in enumerate(steps) if request_id in step.finished]
        assert request["finished"] == (ended[0] if ended else None)
        if request["is_whole"] and got:
            assert data["steps"]["end"][got[0]] / 1e6 == times[request_id].first_token
    for name, column in data["steps"].items():
        if name not in ("start", "end"):
            assert column == [getattr(step, name) for step in steps]


def test_rows_stand_in_order_of_letters_and_a_first_token_that_may_be_lost_is_not_claimed():
    sim = Sim(trace_capacity=2)
    sim.add(3, 8)
    for _ in range(4):
        sim.step()
    sim.add(3, 2, n=2)
    sim.step()
    data = page_data(sim.trace)
    assert [(r["letter"], r["is_whole"]) for r in data["requests"]] == [
        ("A", False),
        ("B", True),
        ("B1", True),
    ]
    assert data["first_step"] == 3


def test_a_long_decode_costs_a_run_and_not_an_entry_a_step():
    sim = Sim(num_blocks=64, block_size=4, max_model_len=256)
    sim.add(6, 200)
    sim.run()
    data = page_data(sim.trace)
    assert len(data["runs"]) == 2 and data["requests"][0]["tokens"] == [[0, 199]]


def written(tmp_path, trace, title=""):
    write_page(trace, tmp_path / "page.html", title)
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def small_trace(**fields):
    sim = Sim(enable_prefix_caching=True)
    sim.add(9, 3, n=2, **fields)
    sim.add(9, 3)
    sim.run()
    return sim.trace


def test_the_page_is_one_file_that_names_nothing_outside_itself(tmp_path):
    text = written(tmp_path, small_trace())
    assert not re.search(r"https?:|src=|@import|url\(|<!--", text)
    assert re.findall('href="(.*?)"', text) == ["data:,"]
    assert "default-src 'none'" in text  # the browser itself holds the page to it


def test_titles_and_request_ids_cannot_break_out_of_their_places(tmp_path):
    trace = small_trace(request_id="</script><b>\u2028")
    text = written(tmp_path, trace, "a<b> & <!--data-->")
    assert text.count("a&lt;b&gt; &amp; &lt;!--data--&gt;") == 2 and text.count("</script>") == 2
    data = re.search('<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
    assert json.loads(data) == page_data(trace, "a<b> & <!--data-->")


def test_a_trace_without_steps_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no step yet"):
        write_page(Trace(), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_every_script_is_put_into_the_page_and_is_short():
    web = Path(page.__file__).parent / "web"
    assert sorted(path.stem for path in web.glob("*.js")) == sorted(page.SCRIPTS)
    for path in web.iterdir():
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 300
