"""C7: a pool that cannot hold everybody makes requests wait or preempts them, and both cost throughput.

Equal requests, all there at the start, in smaller and smaller pools; preemption by recomputing, by
swapping, and none at all, because no more are admitted than the budget calculator allows. (Kwon et al.,
2023.)
"""

from __future__ import annotations

from ...executor.cost import kv_bytes_per_token, max_concurrent_requests
from ..workloads import equal_lengths, make_jobs
from .figure import Claim, Figure, Range, exactly
from .machine import Machine
from .measure import computed_tokens, lost_tokens, output_tokens, preemptions, swapped_blocks, throughput
from .play import interleaved, play
from .slot_model import slot_model
from .step_times import StepTimes

TITLE = "throughput and preemptions against the size of the pool"
REQUESTS, PROMPT, OUTPUT, BLOCK_SIZE = 12, 48, 32, 16
BLOCKS_EACH = -(-(PROMPT + OUTPUT - 1) // BLOCK_SIZE)
ALL = REQUESTS * BLOCKS_EACH
POOLS = (ALL, ALL - 1, ALL * 3 // 4, ALL // 2)
SWAPPED = ALL // 2


def measure(machine: Machine) -> Claim:
    """N equal requests of at most m stored tokens need N · ceil(m / block_size) blocks. With such a pool
    they end together, after as many steps as each has output tokens; with one block less somebody misses
    a turn. The budget calculator (`max_concurrent_requests`, m rounded up to blocks) says so beforehand.
    Below that a slot model gives every preemption and lost token from the lengths, exactly, and with t
    from step_times.py

        throughput(pool) / throughput(all) = Σ t(steps with all) / Σ t(steps with the pool)

    The second sum has more steps, as fewer requests share one, and computes the lost tokens again.
    Swapping computes nothing again, but copies blocks: their number is exact, and a copied block costs
    between half and twice what it takes timed alone.
    """
    lengths = equal_lengths(REQUESTS, PROMPT, OUTPUT)
    config = machine.engine().model_config
    jobs = make_jobs(lengths, config.vocab_size)
    fits = {pool: fitting(pool, config) for pool in POOLS}
    cases = {(pool, "recompute"): {} for pool in POOLS}
    cases[SWAPPED, "swap"] = {"preemption_mode": "swap"}
    cases[SWAPPED, "capped"] = {"max_num_seqs": fits[SWAPPED]}
    plans = {
        (pool, mode): slot_model(
            lengths, settings.get("max_num_seqs", REQUESTS), pool, BLOCK_SIZE, swap=mode == "swap"
        )
        for (pool, mode), settings in cases.items()
    }
    times = StepTimes(
        machine,
        lambda: machine.engine(enable_prefix_caching=True),
        [step.chunks for plan in plans.values() for step in plan],
    )
    variants = {
        case: lambda c=case, s=settings: play(machine.engine(c[0], **s), jobs, machine.on_step)
        for case, settings in cases.items()
    }
    runs = interleaved(variants, machine.repetitions, [times.sweep])
    price = machine.seconds_to_move_a_block()
    seconds = {}
    for case, plan in plans.items():
        moved = sum(step.moved for step in plan) * price
        seconds[case] = times.run(step.chunks for step in plan).plus(Range(moved / 2, 2 * moved))
    full = (ALL, "recompute")
    figures, rows = [], []
    for case, run in runs.items():
        name, plan = f"pool {case[0]}, {case[1]}", plans[case]
        relative = throughput(run) / throughput(runs[full])
        if case != full:
            figures.append(
                Figure(f"throughput / all fit, {name}", relative, seconds[full].over(seconds[case]))
            )
        figures.append(
            Figure(f"preemptions, {name}", preemptions(run), exactly(sum(s.num_preempted for s in plan)))
        )
        useful = sum(p + o - 1 for p, o in lengths)
        lost = sum(step.lost for step in plan)
        figures.append(Figure(f"computed tokens, {name}", computed_tokens(run), exactly(useful + lost)))
        rows.append(
            {
                "pool": case[0],
                "mode": case[1],
                "calculator_says_fit": fits[case[0]],
                "steps": len(run.steps),
                "preemptions": preemptions(run),
                "lost_tokens": lost_tokens(run),
                "moved_blocks": swapped_blocks(run),
                "tokens_per_s": throughput(run),
                "output_tokens": output_tokens(run),
            }
        )
    smallest = min(pool for pool in POOLS if len(runs[pool, "recompute"].steps) == OUTPUT)
    predicted = min(pool for pool in POOLS if fits[pool] >= REQUESTS)
    swap = runs[SWAPPED, "swap"]
    moved = sum(step.moved for step in plans[SWAPPED, "swap"])
    half = next(f for f in figures if f.name == f"throughput / all fit, pool {SWAPPED}, recompute")
    figures.remove(half)
    figures = [
        half,
        Figure("smallest pool in which nobody misses a turn, blocks", smallest, exactly(predicted)),
        *figures,
        Figure("blocks moved by swapping", swapped_blocks(swap), exactly(moved)),
    ]
    gain = throughput(swap) / throughput(runs[SWAPPED, "recompute"])
    return Claim(
        "C7",
        TITLE,
        f"pool of {', '.join(map(str, POOLS))} blocks; {REQUESTS} requests of {PROMPT} + {OUTPUT} tokens",
        figures,
        "Waiting and preemption begin exactly where the calculator says that not all fit. Half the pool "
        "costs mostly by smaller batches, then by tokens computed twice. Swapping computes nothing twice and "
        f"copies instead: here it is {gain:.2f} × as fast as recomputing.",
        rows,
    )


def fitting(pool: int, config) -> int:
    """Requests at full length that a pool of so many blocks holds, as the budget calculator has it."""
    pool_bytes = pool * BLOCK_SIZE * kv_bytes_per_token(config, 2)
    return max_concurrent_requests(pool_bytes, 0, config, BLOCKS_EACH * BLOCK_SIZE)
