"""Waiting, parked and swapped out: the timeline tells them apart as the engine's own tables do."""

import random
from dataclasses import replace

import pytest

from minivllm.viz.block_table import BlockTableView
from minivllm.viz.segments import IDLE, RequestTimes, request_times, segments
from minivllm.viz.snapshot import take_snapshot
from minivllm.viz.timeline import TimelineView
from tests.sim import Sim


def swapping_run(seed, mode):
    """A run in too small a pool, and for each step what the engine held: {request id: kind of not being
    served}, (blocks whose contents went to the host, blocks filled from there)."""
    rng = random.Random(seed)
    sim = Sim(
        num_blocks=rng.choice([7, 9]), block_size=2, num_host_blocks=10, max_model_len=18,
        max_num_batched_tokens=rng.choice([3, 8]), preemption_mode=mode,
        enable_prefix_caching=rng.random() < 0.5,
    )  # fmt: skip
    truth, moves = [], []
    for _ in range(8):
        sim.add([1] * rng.randint(0, 4) + [rng.randint(2, 4)], rng.randint(4, 9), arrival_time=len(sim.plans))
        for _ in range(rng.randint(0, 4)):
            step(sim, truth, moves)
    while sim.scheduler.running or sim.scheduler.waiting:
        step(sim, truth, moves)
    return sim, truth, moves


def step(sim, truth, moves):
    idle = {}

    def look(plan):  # when the plan is made and nothing of it has run
        served = {chunk.request.request_id for chunk in plan.chunks}
        for request in [*sim.scheduler.running, *sim.scheduler.waiting]:
            key = request.request_id
            if key not in served:
                on_host = key in sim.kv.swap.tables
                idle[key] = "parked" if key in sim.kv.tables else "swapped" if on_host else "waiting"
        moves.append(({source for source, _ in plan.swap_out}, {target for _, target in plan.swap_in}))
        Sim.execute(sim, plan)

    sim.execute = look
    sim.step()
    truth.append(idle)


RUNS = pytest.mark.parametrize("mode", ["swap", "recompute"])


@RUNS
@pytest.mark.parametrize("seed", range(8))
def test_idle_segments_are_what_the_engine_kept_the_request_from(seed, mode):
    sim, truth, _ = swapping_run(seed, mode)
    zero, found = sim.trace.steps[0].time_start, {}
    for segment in segments(sim.trace):
        for record in sim.trace.steps:
            inside = segment.start <= record.time_start - zero and record.time_end - zero <= segment.end
            if segment.kind in IDLE and inside:
                found[segment.request_id, record.index] = segment.kind
    expected = {(key, i): kind for i, idle in enumerate(truth) for key, kind in idle.items()}
    assert found == expected


def test_all_three_kinds_are_among_these_runs():
    kinds = {"swap": set(), "recompute": set()}
    for mode, of_mode in kinds.items():
        for seed in range(8):
            of_mode |= {s.kind for s in segments(swapping_run(seed, mode)[0].trace) if s.kind in IDLE}
    assert kinds == {"swap": set(IDLE), "recompute": {"waiting", "parked"}}


@pytest.mark.parametrize("seed", range(8))
def test_blocks_are_marked_when_they_go_to_the_host_and_come_back(seed):
    sim, _, moves = swapping_run(seed, "swap")
    num_marked = 0
    for index, (out, back) in enumerate(moves):
        snap = take_snapshot(sim.trace, index)
        marked = {
            what: {c.block for c in snap.cells if c.event == what} for what in ("swapped out", "swapped in")
        }
        assert marked["swapped out"] <= out and marked["swapped in"] <= back
        if sim.kv.prefix_cache is None:  # else some are evicted, shared or still cached as well
            assert marked["swapped out"] == out and marked["swapped in"] == back - out
        num_marked += len(marked["swapped out"]) + len(marked["swapped in"])
        if marked["swapped out"]:
            named = " ".join(str(block) for block in sorted(marked["swapped out"]))
            assert f"swapped out: {named}\n" in BlockTableView(sim.trace).table(index) + "\n"
    assert num_marked > 2 or not any(out for out, _ in moves)


def test_rows_have_their_requests_colour_and_kinds_differ_in_more():
    sim, _, _ = swapping_run(1, "swap")
    view = TimelineView(sim.trace)
    rows, _ = view.figure().axes
    bars = {c.get_gid(): c for c in rows.collections if c.get_gid()}
    assert set(bars) >= {*IDLE, "prefill", "decode"}
    for kind in ("prefill", "parked"):
        colours = bars[kind].get_facecolor() if kind == "prefill" else bars[kind].get_edgecolor()
        for path, colour in zip(bars[kind].get_paths(), colours, strict=True):
            row = view.rows[int(path.vertices[:4, 1].mean())]
            wanted = view.identity.colour(row)
            assert "#{:02X}{:02X}{:02X}".format(*(round(255 * part) for part in colour[:3])) == wanted


def test_a_stall_is_the_longest_gap_if_it_is_long():
    steady = RequestTimes(0.0, token_times=(1.0, 2.0, 3.0, 4.2))
    assert steady.stall is None and steady.longest_gap == pytest.approx(1.2)
    assert replace(steady, token_times=(1.0, 2.0, 3.0, 6.0, 7.0)).stall == (3.0, 6.0)
    assert replace(steady, token_times=(1.0,)).stall is None
    sim, _, _ = swapping_run(1, "swap")
    preempted = {r for r, times in request_times(sim.trace).items() if times.preemptions and times.stall}
    drawn = [line for line in TimelineView(sim.trace).figure().axes[0].lines if line.get_gid() == "stall"]
    assert preempted and len(drawn) == sum(t.stall is not None for t in request_times(sim.trace).values())
