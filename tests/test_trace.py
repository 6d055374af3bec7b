"""The trace against tables that were copied in full in every step."""

import json

import pytest

from tests.sim import Sim


def busy_sim(capacity=1000, **settings):
    sim = Sim(num_blocks=7, block_size=2, max_num_batched_tokens=5, trace_capacity=capacity, **settings)
    for i in range(7):
        sim.add(1 + i, 7 - i, n=1 + i % 2)
    return sim


def run(sim):
    """Step to the end; {step index: full copy of the tables in that step}."""
    truth = {}
    while sim.scheduler.running or sim.scheduler.waiting:
        index = sim.trace.num_steps
        sim.step()
        truth[index] = sim.tables
    return truth


@pytest.mark.parametrize("capacity", [1000, 5, 1])
@pytest.mark.parametrize("cache", [None, "hash", "radix"])
def test_tables_played_back_from_the_changes_equal_full_copies(capacity, cache):
    sim = busy_sim(capacity, enable_prefix_caching=cache is not None, prefix_cache=cache or "hash")
    truth = run(sim)
    assert len(sim.trace.steps) == min(capacity, len(truth))
    for step in list(sim.trace.steps) + list(reversed(sim.trace.steps)):
        assert step.block_tables == truth[step.index]


def test_cached_blocks_played_back_equal_those_of_the_cache():
    sim = busy_sim(enable_prefix_caching=True)
    while sim.scheduler.running or sim.scheduler.waiting:
        sim.step()
        cached = set(sim.kv.prefix_cache.cached_blocks())
        before = sim.trace.steps[-1].cached_blocks
        noted = {b for kind, _, blocks in sim.kv.changes if kind == "cache" for b in blocks}
        assert before | noted == cached, "what was cached since belongs to the next step"


def test_what_has_fallen_out_of_the_ring_is_refused_by_number_and_requests_are_forgotten():
    sim = busy_sim(3)
    run(sim)
    with pytest.raises(ValueError, match="step 0 is not kept"):
        sim.trace.state_after(0)
    kept = {i for step in sim.trace.steps for i in step.num_scheduled_tokens}
    assert kept <= set(sim.trace.requests) and len(sim.trace.requests) < 10


def test_reading_a_trace_while_it_grows():
    sim = busy_sim(4)
    while sim.scheduler.running or sim.scheduler.waiting:
        sim.step()
        assert sim.trace.steps[-1].block_tables == sim.tables


def test_a_step_says_who_got_tokens_from_where_and_who_arrived_when():
    sim = Sim(max_num_batched_tokens=4)
    sim.add(6, 2)
    sim.step()
    sim.add(1, 1)
    sim.step()
    first, second = sim.trace.steps
    assert (first.num_scheduled_tokens, first.starts, first.sampled) == ({"r0": 4}, {"r0": 0}, [])
    assert second.starts == {"r0": 4, "r1": 0} and sorted(second.sampled) == ["r0", "r1"]
    assert second.finished == ["r1"]
    assert [(r.num_prompt_tokens, r.arrival_step) for r in sim.trace.requests.values()] == [(6, 0), (1, 1)]


def test_perfetto_file_has_a_slice_for_every_scheduled_request(tmp_path):
    sim = busy_sim()
    run(sim)
    sim.trace.to_perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == sum(len(step.num_scheduled_tokens) for step in sim.trace.steps)
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {f"request {i}" for i in sim.requests}
