"""C4: a continuous batch refills a slot in the next step; a static one waits for its longest request.

Half of the requests are short, a few are long, and all are there at the start. (Yu et al., Orca, 2022.)
Static slots that have ended are left empty here and cost nothing; an engine that computes padding in
them loses more.
"""

from __future__ import annotations

from itertools import accumulate
from statistics import mean

from ..workloads import long_tailed_lengths, make_jobs
from .figure import Claim, Figure, Range, exactly
from .machine import Machine
from .measure import latencies, occupancy, percentile, throughput
from .play import interleaved, play
from .slot_model import SlotStep, slot_model
from .step_times import StepTimes

TITLE = "continuous against static batching"
SLOTS = 8
LENGTHS = long_tailed_lengths(24, prompt=(8, 24), output=(8, 64), seed=3)


def measure(machine: Machine) -> Claim:
    """The steps of a static batch are the maximum of its output lengths, its occupancy their mean over
    their maximum; a continuous batch is list scheduling. A slot model gives the steps of both from the
    lengths, so steps and occupancy are predicted to the digit. With t from step_times.py

        throughput ratio = Σ t(static steps) / Σ t(continuous steps)

    which gains less than occupancy, since a full step takes longer than an almost empty one. A request's
    latency is the sum of t over all steps up to its last token, its wait included.
    """
    kinds = ("continuous", "static")
    plans = {kind: slot_model(LENGTHS, SLOTS, static=kind == "static") for kind in kinds}
    jobs = make_jobs(LENGTHS, machine.engine().model_config.vocab_size)
    times = StepTimes(
        machine,
        lambda: machine.engine(enable_prefix_caching=True),
        [step.chunks for plan in plans.values() for step in plan],
    )
    variants = {
        kind: lambda k=kind: play(machine.engine(scheduler=k, max_num_seqs=SLOTS), jobs, machine.on_step)
        for kind in kinds
    }
    runs = interleaved(variants, machine.repetitions, [times.sweep])
    seconds = {kind: times.run(step.chunks for step in plans[kind]) for kind in kinds}
    figures = [
        Figure(
            "throughput, continuous / static",
            throughput(runs["continuous"]) / throughput(runs["static"]),
            seconds["static"].over(seconds["continuous"]),
        )
    ]
    rows = []
    for kind in kinds:
        run, plan = runs[kind], plans[kind]
        shares = sum(len(step.chunks) for step in plan) / (SLOTS * len(plan))
        figures.append(Figure(f"steps, {kind}", len(run.steps), exactly(len(plan))))
        figures.append(Figure(f"slot occupancy, {kind}", occupancy(run, SLOTS), exactly(shares)))
        late = list(latencies(run).values())
        rows.append(
            {
                "scheduler": kind,
                "tokens_per_s": throughput(run),
                "mean_latency_s": mean(late),
                "p99_latency_s": percentile(late, 99),
            }
        )
    for name, statistic in (("mean", mean), ("P99", lambda values: percentile(values, 99))):
        found = {kind: statistic(list(latencies(runs[kind]).values())) for kind in kinds}
        range_of = {kind: predicted_latency(plans[kind], times, statistic) for kind in kinds}
        figures.append(
            Figure(
                f"{name} latency, static / continuous",
                found["static"] / found["continuous"],
                range_of["static"].over(range_of["continuous"]),
            )
        )
    return Claim(
        "C4",
        TITLE,
        f"scheduler; {len(LENGTHS)} requests, outputs of {min(o for _, o in LENGTHS)} to "
        f"{max(o for _, o in LENGTHS)} tokens, long-tailed, {SLOTS} slots",
        figures,
        "A static batch's slots stand empty until its longest request ends. Throughput gains less than "
        "occupancy, since steps with more requests take longer. With equal output lengths both schedulers "
        "do the same.",
        rows,
    )


def predicted_latency(plan: list[SlotStep], times: StepTimes, statistic) -> Range:
    """Range of a statistic of the latencies of requests that all arrive at the start."""
    steps = [times.step(step.chunks) for step in plan]
    ends = []
    for end in (0, 1):
        clock = accumulate(step[end] for step in steps)
        ends.append(statistic([now for now, step in zip(clock, plan, strict=True) for _ in step.finished]))
    return Range(*ends)
