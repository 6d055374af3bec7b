"""C3: in the same memory, blocks hold more requests than reservation does, and serve them faster.

Reservation sets aside the maximum length for each request, blocks are taken as it grows. (Kwon et al.,
PagedAttention, 2023.) "2–4 times the throughput" is what comes out where requests are much shorter than
the maximum; the second workload shows where it does not.
"""

from __future__ import annotations

from ..workloads import Lengths, equal_lengths, make_jobs, varied_lengths
from .figure import Claim, Figure, Range, exactly
from .machine import Machine
from .measure import served_at_once, throughput, unused_slots
from .play import interleaved, play
from .slot_model import slot_model
from .step_times import StepTimes

TITLE = "blocks against reservation at the maximum length"
MAX_LEN = 256
RESERVED = 4  # requests that fit into the memory, at MAX_LEN each
BLOCK_SIZE = 16
NUM_BLOCKS = RESERVED * MAX_LEN // BLOCK_SIZE
WORKLOADS: dict[str, Lengths] = {
    "varied": varied_lengths(16, prompt=(8, 40), output=(8, 48)),
    "near the maximum": equal_lengths(6, prompt=224, output=MAX_LEN - 224),
}


def measure(machine: Machine) -> Claim:
    """Memory of M slots holds M / max_model_len requests that reserve the maximum, and with blocks as many
    as have stored M tokens. A slot model turns the lengths into the steps of both, exactly: with blocks
    they are fewer, but longer, since more requests in a step are more to compute. With t the seconds of
    a step

        throughput ratio = Σ t(steps with reservation) / Σ t(steps with blocks)

    t is timed in the same run on simpler steps (step_times.py), and its two ends give the range. For
    lengths near the maximum the same sum gives about 1 or less. Waste is exact: with blocks, at most
    block_size − 1 slots of a request are empty.
    """

    def blocks():
        return machine.engine(NUM_BLOCKS)

    def reserved():
        return machine.contiguous_engine(RESERVED, MAX_LEN)

    plans, variants = {}, {}
    vocab_size = blocks().model_config.vocab_size
    for name, lengths in WORKLOADS.items():
        jobs = make_jobs(lengths, vocab_size)
        plans[name, "reserved"] = slot_model(lengths, 64, RESERVED, block_size=MAX_LEN)
        plans[name, "blocks"] = slot_model(lengths, 64, NUM_BLOCKS, BLOCK_SIZE)
        for kind, engine in (("reserved", reserved), ("blocks", blocks)):
            variants[name, kind] = lambda e=engine, j=jobs: play(e(), j, machine.on_step)
    chunks = {key: [step.chunks for step in plan] for key, plan in plans.items()}
    timed_on = {"reserved": reserved, "blocks": lambda: machine.engine(enable_prefix_caching=True)}
    times = {key: StepTimes(machine, timed_on[key[1]], chunks[key]) for key in plans}
    runs = interleaved(variants, machine.repetitions, [t.sweep for t in times.values()])
    figures, rows = [], []
    for name in WORKLOADS:
        seconds = {kind: times[name, kind].run(chunks[name, kind]) for kind in timed_on}
        ratio = throughput(runs[name, "blocks"]) / throughput(runs[name, "reserved"])
        expected = seconds["reserved"].over(seconds["blocks"])
        figures.append(Figure(f"throughput, blocks / reserved, lengths {name}", ratio, expected))
        for kind in timed_on:
            run, plan = runs[name, kind], plans[name, kind]
            predicted = sum(len(step.chunks) for step in plan) / len(plan)
            figures.append(
                Figure(f"requests in a step, {kind}, lengths {name}", served_at_once(run), exactly(predicted))
            )
            size = MAX_LEN if kind == "reserved" else BLOCK_SIZE
            unused = unused_slots(run, size)
            rows.append(
                {
                    "lengths": name,
                    "memory": kind,
                    "steps": len(run.steps),
                    "tokens_per_s": throughput(run),
                    "unused_slots_a_request": sum(unused) / len(unused),
                }
            )
            if kind == "blocks":
                figures.append(
                    Figure(
                        f"most unused slots of a request, blocks, lengths {name}",
                        max(unused),
                        Range(0, BLOCK_SIZE - 1),
                    )
                )
    gain, even = (f for f in figures if f.name.startswith("throughput"))
    return Claim(
        "C3",
        TITLE,
        f"lengths: {', '.join(WORKLOADS)}; memory for {RESERVED} × {MAX_LEN} tokens",
        figures,
        f"More requests in a step, but a longer step: {gain.measured:.1f} × on varied lengths. Near the "
        f"maximum as many fit either way, and nothing is won ({even.measured:.2f} ×). 2–4 × holds where "
        "requests are a fraction of the maximum and memory is what limits the batch.",
        rows,
    )
