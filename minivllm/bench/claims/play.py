"""Run jobs on an engine, and keep what happened: a `Run`, the one thing that measurements read.

The same jobs with the same settings give the same plan in every step, on any machine. So a run is
repeated, with other runs in between, and of each step's seconds the least counts: whatever
disturbs a machine only adds to them, and seldom disturbs the same step every time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...sampling import SamplingParams
from ..workloads import Job


@dataclass(frozen=True)
class Run:
    """`steps`: the engine's `StepRecord`s; `seconds` of each; `arrival_step`, `token_ids` and
    `num_cached_tokens` by request id, ids being the jobs' numbers as text; `stats` as of `LLM.stats`."""

    steps: list[Any]
    seconds: list[float]
    arrival_step: dict[str, int]
    token_ids: dict[str, list[int]]
    num_cached_tokens: dict[str, int]
    stats: dict[str, int]


def play(engine: Any, jobs: list[Job], on_step: Callable[[], None] = lambda: None) -> Run:
    """Give the engine each job before the job's step, and step until all have ended. Tokens are the
    greedy ones. The engine is idle before and after."""
    before = engine.trace.num_steps
    pending = sorted(enumerate(jobs), key=lambda item: item[1].arrival_step)
    done: dict[str, Any] = {}
    while pending or engine.has_unfinished_requests:
        step = engine.trace.num_steps - before
        while pending and (pending[0][1].arrival_step <= step or not engine.has_unfinished_requests):
            number, job = pending.pop(0)
            params = SamplingParams(temperature=0, max_tokens=job.max_tokens, ignore_eos=True)
            engine.add_request({"prompt_token_ids": list(job.prompt)}, params, str(number))
        done.update((output.request_id, output) for output in engine.step() if output.finished)
        on_step()
    steps = [step for step in engine.trace.steps if step.index >= before]
    return Run(
        steps,
        [step.time_end - step.time_start for step in steps],
        {str(number): job.arrival_step for number, job in enumerate(jobs)},
        {key: output.outputs[0].token_ids for key, output in done.items()},
        {key: output.num_cached_tokens for key, output in done.items()},
        engine.stats(),
    )


def undisturbed(runs: list[Run]) -> Run:
    """One run that stands for repetitions of it. `ValueError` if they did not do the same."""
    plans = [[step.num_scheduled_tokens for step in run.steps] for run in runs]
    if any(plan != plans[0] for plan in plans):
        raise ValueError("repetitions of a run were scheduled differently; let arrivals depend on steps only")
    return replace(runs[0], seconds=[min(times) for times in zip(*(r.seconds for r in runs), strict=True)])


def interleaved(
    variants: dict[Any, Callable[[], Run]], repetitions: int, between=(), in_a_row: int = 1
) -> dict[Any, Run]:
    """Every variant `repetitions` times, in turn, so that a slow minute of the machine meets them all.
    `between` are called once before each round; each turn runs a variant `in_a_row` times."""
    runs: dict[Any, list[Run]] = {name: [] for name in variants}
    for _ in range(repetitions):
        for sweep in between:
            sweep()
        for name, run in variants.items():
            runs[name] += [run() for _ in range(in_a_row)]
    return {name: undisturbed(repeated) for name, repeated in runs.items()}
