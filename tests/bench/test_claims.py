"""Claims: workloads have the promised shape, predictions are those made by hand, and a wrong number fails.

Counts are asserted, seconds never: the whole command runs on a tiny checkpoint, where every exact figure must
pass and timed ones only be there.
"""

import json
from importlib import import_module
from types import SimpleNamespace

import pytest

from minivllm.__main__ import main
from minivllm.bench.claims import CLAIMS, c1_cache, c5_chunked, c7_pool, measure, table
from minivllm.bench.claims.figure import Claim, Figure, Range, exactly, total
from minivllm.bench.claims.machine import Machine
from minivllm.bench.claims.play import Run, interleaved, play, undisturbed
from minivllm.bench.claims.slot_model import slot_model
from minivllm.bench.claims.step_times import StepTimes
from minivllm.bench.workloads import (
    Job,
    equal_lengths,
    long_tailed_lengths,
    make_jobs,
    varied_lengths,
    with_shared_prefix,
)
from tests.bench import virtual_machine
from tests.checkpoints import make_checkpoint
from tests.sim import Sim


def step(served, sampled=(), starts=None, **more):
    """A step's record, as far as measurements read it."""
    record = dict(
        num_scheduled_tokens=dict(served),
        starts=starts or dict.fromkeys(served, 0),
        sampled=list(sampled),
        num_lost_tokens=0,
        preempted=[],
        num_swapped_out=0,
        num_swapped_in=0,
        block_tables={},
    )
    return SimpleNamespace(**{**record, **more})


def hand_made_run() -> Run:
    """A: a prompt of 3, then two decodes. B arrives at step 1, is preempted in step 2, and comes back."""
    steps = [
        step({"A": 3}, ["A"], block_tables={"A": [0]}),
        step({"A": 1, "B": 2}, ["A", "B"], {"A": 3, "B": 0}, block_tables={"A": [0], "B": [1]}),
        step({"A": 1}, ["A"], {"A": 4}, preempted=["B"], num_lost_tokens=2, block_tables={"A": [0, 1]}),
        step({"B": 3}, ["B"], {"B": 0}, num_swapped_in=2, num_swapped_out=1),
    ]
    return Run(steps, [1.0, 2.0, 4.0, 8.0], {"A": 0, "B": 1}, {}, {}, {})


def claim_module(name):
    return import_module(f"minivllm.bench.claims.{CLAIMS[name]}")


# workloads


def test_varied_lengths_are_seeded_and_reach_both_ends():
    lengths = varied_lengths(500, prompt=(3, 6), output=(1, 4), seed=5)
    assert lengths == varied_lengths(500, prompt=(3, 6), output=(1, 4), seed=5)
    assert lengths != varied_lengths(500, prompt=(3, 6), output=(1, 4), seed=6)
    assert {p for p, _ in lengths} == {3, 4, 5, 6} and {o for _, o in lengths} == {1, 2, 3, 4}


def test_long_tail_has_half_of_its_outputs_below_twice_the_shortest_and_some_at_the_longest():
    outputs = sorted(o for _, o in long_tailed_lengths(1000, prompt=(4, 4), output=(8, 96)))
    assert outputs[0] == 8 and outputs[-1] == 96
    assert 14 <= outputs[500] <= 18
    assert 40 <= outputs.count(96) <= 130  # 1 in 12 reaches it


def test_jobs_with_a_shared_prefix_differ_only_behind_it():
    jobs = with_shared_prefix(make_jobs(equal_lengths(3, 20, 2), vocab_size=100), 10, vocab_size=100)
    assert len({job.prompt[:10] for job in jobs}) == 1 and len({job.prompt[10:] for job in jobs}) == 3
    assert all(len(job.prompt) == 30 and all(0 <= t < 100 for t in job.prompt) for job in jobs)


# predictions


def test_static_batches_take_their_longest_and_continuous_ones_refill():
    lengths = [(4, 6), (4, 2), (4, 3), (4, 1)]
    assert len(slot_model(lengths, 2, static=True)) == 6 + 3
    steps = slot_model(lengths, 2)
    assert len(steps) == 6  # 2, 3 and 1 tokens follow each other in the second slot
    assert [s.finished for s in steps] == [[], [1], [], [], [2], [0, 3]]
    assert steps[2].chunks == [(1, 6), (4, 4)]


def test_slot_model_preempts_the_latest_and_counts_what_is_lost():
    # Blocks of 4: both prompts take two, and the fifth goes to the first request at its token 9. The second
    # keeps its blocks and misses turns, until the first needs one more at its token 13.
    steps = slot_model([(8, 6), (8, 6)], 2, num_blocks=5, block_size=4)
    assert [len(s.chunks) for s in steps[:6]] == [2, 1, 1, 1, 1, 1]
    assert [s.num_preempted for s in steps[:6]] == [0, 0, 0, 0, 0, 1]
    steps = slot_model([(8, 8), (8, 8)], 2, num_blocks=4, block_size=4)
    assert steps[1].num_preempted == 1 and steps[1].lost == 8
    assert sum(len(s.finished) for s in steps) == 2
    swapped = slot_model([(8, 8), (8, 8)], 2, num_blocks=4, block_size=4, swap=True)
    assert sum(s.lost for s in swapped) == 0 and sum(s.moved for s in swapped) == 4


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("swap", [False, True])
def test_slot_model_agrees_with_the_scheduler_step_for_step(seed, swap):
    lengths = varied_lengths(14, prompt=(1, 20), output=(1, 30), seed=seed)
    predicted = slot_model(lengths, 6, num_blocks=20, block_size=4, swap=swap)
    sim = Sim(
        num_blocks=20,
        num_host_blocks=40,
        max_num_seqs=6,
        max_num_batched_tokens=1000,
        preemption_mode="swap" if swap else "recompute",
    )
    for prompt, output in lengths:
        sim.add(prompt, output)
    sim.run()
    plans = [sorted((c.num_tokens, c.start + c.num_tokens) for c in plan.chunks) for plan in sim.plans]
    assert plans == [sorted(s.chunks) for s in predicted]
    assert [len(plan.preempted) for plan in sim.plans] == [s.num_preempted for s in predicted]
    assert [plan.num_lost_tokens for plan in sim.plans] == [s.lost for s in predicted]
    assert [len(p.swap_out) + len(p.swap_in) for p in sim.plans] == [s.moved for s in predicted]


def test_recompute_forwards_are_those_of_the_sum():
    for n in (1, 5, 32):
        assert c1_cache.recompute_forwards(n) == sum(c1_cache.PROMPT + i for i in range(n))


def test_chunks_fill_the_budget_and_end_with_the_prompt():
    assert (c5_chunked.RUNNING, c5_chunked.LONG_PROMPT) == (8, 768)
    steps = c5_chunked.predicted_steps(64, 256)
    chunks = [chunk for shape in steps for chunk in shape if len(shape) > c5_chunked.RUNNING]
    long = [(n, context) for n, context in chunks if n > 1]
    assert [n for n, _ in long] == [248, 248, 248, 24] and long[-1][1] == 768
    whole = c5_chunked.predicted_steps(64, None)
    assert [shape[-1] for shape in whole if len(shape) > c5_chunked.RUNNING] == [(768, 768)]
    assert len(steps) == len(whole) == 64


def test_calculator_and_blocks_agree_on_who_fits():
    config = SimpleNamespace(num_layers=2, num_kv_heads=3, head_dim=4)
    assert c7_pool.BLOCKS_EACH == 5  # for 48 + 32 − 1 tokens
    assert [c7_pool.fitting(pool, config) for pool in (60, 59, 30, 4)] == [12, 11, 6, 0]


def test_ratio_of_ranges_has_the_widest_ends():
    assert Range(2, 3).over(Range(1, 4)) == (0.5, 3)
    assert total([Range(1, 2), Range(3, 5)]) == (4, 7)


def timed(steps, seconds_of) -> StepTimes:
    """Step times whose samples come from `seconds_of(kind, size, context)` instead of an engine."""
    times = StepTimes(None, None, steps)
    times._model_config = SimpleNamespace(
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=1,
        hidden_size=1,
        intermediate_size=1,
        vocab_size=1,
    )
    for context in times._contexts:
        for rows in times._rows:
            times._note("decode", rows, context, seconds_of("decode", rows, context))
    for tokens in times._prompts:
        times._note("prompt", tokens, 0, seconds_of("prompt", tokens, 0))
    return times


def test_a_step_lies_between_its_parts_and_their_sum():
    def seconds_of(kind, size, context):
        return [10.0 + size + context / 10] if kind == "decode" else [20.0 + size]

    steps = [[(1, 100)] * 4, [(1, 200)] * 8, [(1, 200)] * 6 + [(50, 50)]]
    times = timed(steps, seconds_of)
    assert times.step([(1, 100)] * 4) == (24, 24)
    assert times.step([(1, 100), (1, 200)] * 3) == (10 + 6 + 15, 10 + 6 + 20)  # mean context, longest
    assert times.step([(1, 200)] * 6 + [(50, 50)]) == (76, 70 + 36)
    assert times.run(steps[:2]) == (24 + 38, 24 + 38)


def test_samples_give_the_fastest_and_what_nine_in_ten_do_not_exceed():
    times = timed([[(1, 10)]], lambda *_: [5.0, 2.0, *[3.0] * 6, 4.0, 100.0])
    assert times.step([(1, 10)]) == (2.0, 5.0)


# measurements


def test_counts_of_a_hand_made_run():
    run = hand_made_run()
    assert measure.computed_tokens(run) == 10 and measure.output_tokens(run) == 5
    assert measure.attention_pairs(run) == 6 + (4 + 3) + 5 + 6
    assert measure.preemptions(run) == 1 and measure.lost_tokens(run) == 2
    assert measure.swapped_blocks(run) == 3
    assert measure.served_at_once(run) == 5 / 4 and measure.occupancy(run, 2) == 5 / 8
    assert measure.unused_slots(run, 4) == [1, 0, 2, 3]


def test_times_of_a_hand_made_run():
    run = hand_made_run()
    assert measure.token_times(run) == {"A": [1, 3, 7], "B": [3, 15]}
    assert measure.latencies(run) == {"A": 7, "B": 14}
    assert measure.times_to_first_token(run) == {"A": 1, "B": 2}
    assert measure.inter_token_latencies(run, ["A", "B"]) == [2, 4, 12]
    assert measure.throughput(run) == 5 / 15


def test_percentile_is_the_nearest_rank():
    values = [float(i) for i in range(1, 101)]
    assert [measure.percentile(values[::-1], p) for p in (1, 50, 99, 100)] == [1, 50, 99, 100]
    assert measure.percentile([3.0], 99) == 3


def test_of_repetitions_each_step_keeps_its_least_seconds():
    runs = [hand_made_run() for _ in range(3)]
    for i, run in enumerate(runs):
        run.seconds[0] = [9.0, 1.0, 2.0][i]
    assert undisturbed(runs).seconds == [1.0, 2.0, 4.0, 8.0]
    other = Run([*runs[0].steps[:3], step({"A": 1})], runs[0].seconds, {}, {}, {}, {})
    with pytest.raises(ValueError, match="scheduled differently"):
        undisturbed([runs[0], other])


def test_variants_are_run_in_turn():
    order = []
    variants = {name: lambda n=name: order.append(n) or hand_made_run() for name in "ab"}
    interleaved(variants, 2, [lambda: order.append("sweep")])
    assert order == ["sweep", "a", "b"] * 2


def test_jobs_arrive_at_their_steps(checkpoints):
    from minivllm.llm import LLM

    llm = LLM(str(checkpoints["llama"]), skip_tokenizer_init=True, device="cpu", num_gpu_blocks_override=16)
    jobs = [Job((1, 2, 3), 5), Job((4, 5), 2, arrival_step=3), Job((6,), 1, arrival_step=50)]
    run = play(llm.engine, jobs)
    first = {key: min(i for i, s in enumerate(run.steps) if key in s.num_scheduled_tokens) for key in "012"}
    assert first == {"0": 0, "1": 3, "2": 5}  # nobody waits for step 50 when there is nothing else to do
    assert [len(run.token_ids[key]) for key in "012"] == [5, 2, 1]


# verdicts, and the command


def test_a_figure_outside_its_range_fails_its_claim():
    good, bad = Figure("a", 2, Range(1, 2)), Figure("b", 2.01, Range(1, 2))
    claim = Claim("C9", "what", "varied", [good, bad], "why").as_dict()
    assert claim["verdict"] == "fail" and [f["verdict"] for f in claim["figures"]] == ["pass", "fail"]
    assert (claim["measured"], claim["expected_low"], claim["expected_high"]) == (2, 1, 2)
    assert Claim("C9", "what", "varied", [good], "why").as_dict()["verdict"] == "pass"
    assert not Figure("c", 4, exactly(5)).passes and not Figure("d", float("nan"), Range(0, 9)).passes
    assert "b" in table([claim]) and "0 of 1 claims pass" in table([claim])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("claims") / "tiny"
    return str(make_checkpoint(path, "llama", seed=1, max_position_embeddings=2048))


def test_every_claim_runs_and_its_counts_are_as_predicted(tiny, capsys):
    assert main(["bench", "claims", "--model", tiny, "--repetitions", "1", "--json"]) == 0
    claims = json.loads(capsys.readouterr().out)["claims"]
    assert [claim["id"] for claim in claims] == list(CLAIMS)
    for claim in claims:
        assert claim["verdict"] in ("pass", "fail") and claim["why"] and claim["varied"]
        assert claim["measured"] == claim["figures"][0]["measured"]
        exact = [f for f in claim["figures"] if f["expected_low"] == f["expected_high"]]
        assert exact and [f["name"] for f in exact if f["verdict"] == "fail"] == []


@pytest.mark.parametrize("name", ["C3", "C4", "C5", "C6", "C7"])
def test_on_a_machine_without_noise_every_figure_is_in_its_range(tiny, name, monkeypatch):
    clock = virtual_machine.VirtualClock()
    monkeypatch.setattr("minivllm.engine.time", clock)
    claim = claim_module(name).measure(virtual_machine.machine(tiny, clock))
    assert [f for f in claim.figures if not f.passes] == []
    timed_ones = [f for f in claim.figures if f.expected.high > f.expected.low > 0]
    assert timed_ones and any(f.expected.high < 1.3 * f.expected.low for f in timed_ones)  # it says something


def test_an_engine_that_gains_nothing_from_its_cache_fails_the_claim(tiny, monkeypatch):
    clock = virtual_machine.VirtualClock()
    monkeypatch.setattr("minivllm.engine.time", clock)
    machine = virtual_machine.machine(tiny, clock)
    caching = machine.engine
    claim = claim_module("C6")
    play_jobs = claim.play

    def play_without_cache(engine, jobs, on_step):
        return play_jobs(caching(enable_prefix_caching=False), jobs, on_step)

    monkeypatch.setattr(claim, "play", play_without_cache)
    failed = [f.name for f in claim.measure(machine).figures if not f.passes]
    assert len(failed) == 6  # three ratios, seconds and cached tokens


def test_claims_are_chosen_by_id_and_a_failing_one_is_exit_code_1_without_json(tiny, capsys, monkeypatch):
    arguments = ["bench", "claims", "c1", "--model", tiny]
    assert main(arguments) == 0
    assert "1 of 1 claims pass" in capsys.readouterr().out
    monkeypatch.setattr(c1_cache, "recompute_forwards", lambda n: n * n)
    assert main([*arguments, "--json"]) == 0
    (claim,) = json.loads(capsys.readouterr().out)["claims"]
    assert claim["verdict"] == "fail"
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 1


def test_unknown_claims_and_no_repetitions_are_refused(tiny, capsys):
    assert main(["bench", "claims", "C8"]) == 2
    assert "C8" in capsys.readouterr().err
    with pytest.raises(ValueError, match="repetitions is 0"):
        Machine(None, repetitions=0)
