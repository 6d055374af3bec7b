"""C5: a long prompt among running decodes stalls them for a whole prefill, or for one chunk.

Eight requests decode, then a prompt of 768 tokens arrives; the token budget of a step is swept.
(Agrawal et al., Sarathi-Serve, 2024.) Whether P99 shows the gain depends on how often stalls come: both
sides are here.
"""

from __future__ import annotations

from ..workloads import Job, make_jobs
from .figure import Claim, Figure, Range, exactly
from .machine import MAX_MODEL_LEN, Machine
from .measure import inter_token_latencies, percentile, times_to_first_token
from .play import Run, interleaved, play
from .step_times import Step, StepTimes

TITLE = "chunked prefill, the longest inter-token latency"
RUNNING = 8
SHORT_PROMPT = 4  # all of them fit into the smallest budget
LONG_PROMPT = 768
ARRIVAL = 8
BUDGETS = (32, 64, 128, 256, 512)
OUTPUTS = {"frequent": 48, "rare": 112}  # one stall in 47, or in 111, intervals
RARE_BUDGET = 128


def measure(machine: Machine) -> Claim:
    """R requests decode, a prompt of N tokens arrives. Without chunking one step computes all R + N tokens,
    and is everybody's longest inter-token latency (ITL). With a budget of b, a step takes R decodes and
    b − R prompt tokens; the longest is the last full chunk, which attends to all N. So

        ratio of longest ITLs = t(R decodes, N tokens) / t(R decodes, b − R tokens with context N)

        ratio of TTFTs = Σ t(all chunks, each with R decodes) / t(R decodes, N tokens)

    with t from step_times.py. One stall is one of a request's o − 1 intervals. Over 1 % of them, P99 is
    the stall, and chunking lowers it; under 1 %, P99 does not see the stall, but does see the many
    slower steps that chunking makes of it, and rises.
    """
    cases = [("frequent", budget) for budget in (None, *BUDGETS)]
    cases += [("rare", budget) for budget in (None, RARE_BUDGET)]
    plans = {case: predicted_steps(OUTPUTS[case[0]], case[1]) for case in cases}
    times = StepTimes(
        machine,
        lambda: machine.engine(enable_prefix_caching=True),
        [step for plan in plans.values() for step in plan],
    )
    vocab_size = machine.engine().model_config.vocab_size
    variants = {case: lambda c=case: play(_engine(machine, c[1]), _jobs(c[0], vocab_size), machine.on_step)
                for case in cases}  # fmt: skip
    runs = interleaved(variants, machine.repetitions, [times.sweep])
    expected = {case: [times.step(step) for step in plan] for case, plan in plans.items()}
    figures, rows = [], []
    whole = ("frequent", None)
    for case in cases[: 1 + len(BUDGETS)]:
        gaps, ttft = _gaps(runs[case]), _ttft(runs[case])
        rows.append(
            {
                "budget": case[1] or "whole prompt",
                "longest_itl_s": max(gaps),
                "p99_itl_s": percentile(gaps, 99),
                "ttft_s": ttft,
            }
        )
        if case == whole:
            continue
        figures.append(
            Figure(
                f"longest ITL, whole / budget {case[1]}",
                max(_gaps(runs[whole])) / max(gaps),
                _gap_range(expected[whole], 100).over(_gap_range(expected[case], 100)),
            )
        )
        figures.append(
            Figure(
                f"TTFT of the long prompt, budget {case[1]} / whole",
                ttft / _ttft(runs[whole]),
                _ttft_range(plans[case], expected[case]).over(_ttft_range(plans[whole], expected[whole])),
            )
        )
    for kind in OUTPUTS:
        before, after = (kind, None), (kind, RARE_BUDGET)
        gaps = _gaps(runs[before])
        stalled = sum(str(RUNNING) in step.num_scheduled_tokens for step in runs[before].steps) * RUNNING
        expected_share = exactly(1 / (OUTPUTS[kind] - 1))
        figures.append(
            Figure(f"share of stalled intervals, stalls {kind}", stalled / len(gaps), expected_share)
        )
        figures.append(
            Figure(
                f"P99 ITL, whole / budget {RARE_BUDGET}, stalls {kind}",
                percentile(gaps, 99) / percentile(_gaps(runs[after]), 99),
                _gap_range(expected[before], 99).over(_gap_range(expected[after], 99)),
            )
        )
    return Claim(
        "C5",
        TITLE,
        f"token budget {', '.join(map(str, BUDGETS))}; a prompt of {LONG_PROMPT} among {RUNNING} decodes",
        figures,
        "The longest ITL falls from a whole prefill to one chunk, by less than the tokens suggest: small "
        "products are slower a token, and late chunks attend to the whole prompt. The same makes TTFT rise. "
        "P99 falls only where stalls hit more than 1 % of the intervals; where they are rarer it rises.",
        rows,
    )


def predicted_steps(output: int, budget: int | None) -> list[Step]:
    """Shape of each step until the running requests end; `budget=None` computes a prompt whole."""
    steps: list[Step] = [[(SHORT_PROMPT, SHORT_PROMPT)] * RUNNING]
    done = 0
    for number in range(1, output):
        step = [(1, SHORT_PROMPT + number)] * RUNNING
        if number >= ARRIVAL and done < LONG_PROMPT:
            new = LONG_PROMPT if budget is None else min(budget - RUNNING, LONG_PROMPT - done)
            done += new
            step.append((new, done))
        steps.append(step)
    return steps


def _engine(machine: Machine, budget: int | None):
    if budget is None:
        return machine.engine(enable_chunked_prefill=False, max_num_batched_tokens=MAX_MODEL_LEN + RUNNING)
    return machine.engine(max_num_batched_tokens=budget)


def _jobs(kind: str, vocab_size: int) -> list[Job]:
    running = make_jobs([(SHORT_PROMPT, OUTPUTS[kind])] * RUNNING, vocab_size)
    return running + make_jobs([(LONG_PROMPT, 1)], vocab_size, seed=1, arrival_step=ARRIVAL)


def _gaps(run: Run) -> list[float]:
    return inter_token_latencies(run, [str(number) for number in range(RUNNING)])


def _ttft(run: Run) -> float:
    return times_to_first_token(run)[str(RUNNING)]


def _gap_range(steps: list[Range], percent: float) -> Range:
    """Of the ITLs, which are the steps after the first, once for each running request."""
    return Range(
        *(percentile([s[end] for s in steps[1:] for _ in range(RUNNING)], percent) for end in (0, 1))
    )


def _ttft_range(plan: list[Step], steps: list[Range]) -> Range:
    mine = [step for shape, step in zip(plan, steps, strict=True) if len(shape) > RUNNING]
    return Range(sum(s.low for s in mine), sum(s.high for s in mine))
