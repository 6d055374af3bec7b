"""C6: a cached prefix saves the time of computing it, which is less than its share of the prompt.

Two requests share their first 256 tokens; the first finds nothing cached, the second finds all of them.
What is cached is whole blocks, and never a prompt's last token.
"""

from __future__ import annotations

from dataclasses import replace

from ...executor.cost import forward_cost
from ..workloads import Job, make_jobs, with_shared_prefix
from .figure import Claim, Figure, Range, exactly
from .machine import Machine
from .measure import times_to_first_token
from .play import interleaved, play
from .step_times import StepTimes

TITLE = "time to first token with a cached prefix"
SHARED = 256
OWN = {"1:3": 768, "1:1": 256, "3:1": 85}


def measure(machine: Machine) -> Claim:
    """Of s shared and o own tokens the warm request computes o, which attend to all s + o. With F the
    counted FLOPs of a forward (executor/cost.py), the saved share of TTFT is at most

        1 − F(o tokens, context s + o) / F(s + o tokens, context s + o)

    which is below s / (s + o): linear layers save in proportion to tokens, attention only the pairs
    among the shared ones. It is less again because fewer tokens make thinner products, and because a
    kernel with a mask computes the hidden half of a piece, too. The low end counts both, as timed in the
    same run on prompts alone and on pieces of other sizes (step_times.py). It can be more only where a
    machine computes the longer prompt at fewer FLOP/s than the shorter (its activations no longer fit into
    a cache); if the same prompts without anything cached show that, the high end counts it.
    """
    config = machine.engine().model_config

    def caching():
        return machine.engine(enable_prefix_caching=True)

    cold_steps = [[(SHARED + own, SHARED + own)] for own in OWN.values()]
    warm_steps = [[(own, SHARED + own)] for own in OWN.values()]
    times = StepTimes(machine, caching, cold_steps + warm_steps)

    variants = {own: lambda o=own: play(caching(), _jobs(o, config.vocab_size), machine.on_step)
                for own in OWN.values()}  # fmt: skip
    runs = interleaved(variants, machine.repetitions, [times.sweep], in_a_row=3)  # a run is two steps
    figures, rows = [], []
    for (ratio, own), cold_step, warm_step in zip(OWN.items(), cold_steps, warm_steps, strict=True):
        cold, warm = (times_to_first_token(runs[own])[key] for key in ("0", "1"))
        num_cached = runs[own].num_cached_tokens["1"]
        counted = 1 - forward_cost(config, warm_step).flops / forward_cost(config, cold_step).flops
        worst = 1 - times.step(warm_step).high / times.step(cold_step).low
        slower = 1 - times.step(warm_step).low / times.step(cold_step).high
        expected = Range(worst, max(counted, slower))
        figures.append(Figure(f"TTFT saved, shared : own = {ratio}", 1 - warm / cold, expected))
        figures.append(Figure(f"cached tokens, shared : own = {ratio}", num_cached, exactly(SHARED)))
        rows.append(
            {
                "shared:own": ratio,
                "cold_s": cold,
                "warm_s": warm,
                "shared_share": SHARED / (SHARED + own),
                "counted_flops_saved": counted,
            }
        )
    long = 1 - forward_cost(config, [(2048, 4096)]).flops / forward_cost(config, [(4096, 4096)]).flops
    return Claim(
        "C6",
        TITLE,
        f"own part {', '.join(map(str, OWN.values()))} tokens after {SHARED} shared ones",
        figures,
        "Less is saved than shared / (shared + own), and least where attention weighs most: on this model "
        f"2,048 shared and 2,048 own tokens save {long:.0%} of the FLOPs, not 50 %.",
        rows,
    )


def _jobs(own: int, vocab_size: int) -> list[Job]:
    """The first finds nothing cached, the second the shared part."""
    jobs = make_jobs([(own, 1), (own, 1)], vocab_size, seed=own)
    first, second = with_shared_prefix(jobs, SHARED, vocab_size)
    return [first, replace(second, arrival_step=1)]
