"""The trace against tables that were copied in full after every step."""

import json

import pytest

from minivllm.trace import Trace
from tests.sim import Sim


def run_with_trace(sim, trace):
    """Step the simulation to its end; returns {step index: full copy of the tables}."""
    truth = {}
    while sim.scheduler.running or sim.scheduler.waiting:
        plan = sim.scheduler.schedule()
        changes, sim.kv.changes = sim.kv.changes, []
        truth[trace.num_steps] = {key: list(table.blocks) for key, table in sim.kv.tables.items()}
        sampled = {c.request.request_id: [1] for c in plan.chunks if c.samples}
        sim.scheduler.update(plan, sampled)
        trace.record(
            time_start=trace.num_steps,
            time_end=trace.num_steps + 0.5,
            num_scheduled_tokens={c.request.request_id: c.num_tokens for c in plan.chunks},
            preempted=plan.preempted,
            num_lost_tokens=plan.num_lost_tokens,
            finished=[],
            num_running=len(sim.scheduler.running),
            num_waiting=len(sim.scheduler.waiting),
            num_free_blocks=sim.kv.num_free_blocks,
            num_swapped_out=len(plan.swap_out),
            num_copied=len(plan.copies),
            num_swapped_in=len(plan.swap_in),
            changes=changes,
        )
    return truth


def busy_sim():
    sim = Sim(num_blocks=7, block_size=2, max_num_batched_tokens=5)
    for i in range(7):
        sim.add(prompt=1 + i, max_tokens=7 - i)
    return sim


@pytest.mark.parametrize("capacity", [1000, 5, 1])
def test_tables_played_back_from_the_changes_equal_full_copies(capacity):
    trace = Trace(capacity)
    truth = run_with_trace(busy_sim(), trace)
    assert len(trace.steps) == min(capacity, len(truth))
    for step in list(trace.steps) + list(reversed(trace.steps)):
        assert step.block_tables == truth[step.index]


def test_what_has_fallen_out_of_the_ring_is_refused_by_number():
    trace = Trace(3)
    run_with_trace(busy_sim(), trace)
    with pytest.raises(ValueError, match="step 0 is not kept"):
        trace.state_after(0)


def test_reading_a_trace_while_it_grows():
    sim, trace = busy_sim(), Trace(4)
    while sim.scheduler.running or sim.scheduler.waiting:
        plan = sim.scheduler.schedule()
        changes, sim.kv.changes = sim.kv.changes, []
        truth = {key: list(table.blocks) for key, table in sim.kv.tables.items()}
        sim.scheduler.update(plan, {c.request.request_id: [1] for c in plan.chunks if c.samples})
        step = trace.record(
            time_start=0,
            time_end=0,
            num_scheduled_tokens={},
            preempted=[],
            num_lost_tokens=0,
            finished=[],
            num_running=0,
            num_waiting=0,
            num_free_blocks=0,
            num_swapped_out=0,
            num_copied=0,
            num_swapped_in=0,
            changes=changes,
        )
        assert step.block_tables == truth


def test_perfetto_file_has_a_slice_for_every_scheduled_request(tmp_path):
    trace = Trace()
    run_with_trace(busy_sim(), trace)
    trace.to_perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == sum(len(step.num_scheduled_tokens) for step in trace.steps)
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {f"request r{i}" for i in range(7)}
