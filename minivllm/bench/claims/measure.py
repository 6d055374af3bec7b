"""What can be read from a `Run`: counts, occupancy, throughput, latencies.

Times are on the run's own clock, which starts at 0 and advances by each step's seconds. A token comes at
the end of the step that samples it; a request arrives at the beginning of its arrival step.
"""

from __future__ import annotations

from itertools import accumulate
from math import ceil
from typing import Any

from .play import Run


def percentile(values: list[float], percent: float) -> float:
    """The smallest value that at least `percent` % of the values do not exceed (nearest rank)."""
    return sorted(values)[max(0, ceil(len(values) * percent / 100) - 1)]


def computed_tokens(run: Run) -> int:
    return sum(sum(step.num_scheduled_tokens.values()) for step in run.steps)


def attention_pairs(run: Run) -> int:
    """Pairs of a query and a key that it may see, over all forwards of the run (one layer, one head)."""
    return sum(
        n * step.starts[key] + n * (n + 1) // 2
        for step in run.steps
        for key, n in step.num_scheduled_tokens.items()
    )


def output_tokens(run: Run) -> int:
    return sum(len(step.sampled) for step in run.steps)


def lost_tokens(run: Run) -> int:
    return sum(step.num_lost_tokens for step in run.steps)


def preemptions(run: Run) -> int:
    return sum(len(step.preempted) for step in run.steps)


def swapped_blocks(run: Run) -> int:
    """Blocks copied to the host and back, each way counted."""
    return sum(step.num_swapped_out + step.num_swapped_in for step in run.steps)


def served_at_once(run: Run) -> float:
    """Requests in a step, on average."""
    return sum(len(step.num_scheduled_tokens) for step in run.steps) / len(run.steps)


def occupancy(run: Run, num_slots: int) -> float:
    """Share of the batch's slots, over all steps, in which a request was served."""
    return served_at_once(run) / num_slots


def throughput(run: Run) -> float:
    """Output tokens a second."""
    return output_tokens(run) / sum(run.seconds)


def unused_slots(run: Run, block_size: int) -> list[int]:
    """For each step and request with blocks: slots that it owns and has not filled."""
    unused, filled = [], {}
    for step in run.steps:
        for key, n in step.num_scheduled_tokens.items():
            filled[key] = step.starts[key] + n
        unused += [
            len(blocks) * block_size - filled[key]
            for key, blocks in step.block_tables.items()
            if key in step.num_scheduled_tokens
        ]
    return unused


def latencies(run: Run) -> dict[str, float]:
    """Seconds from each request's arrival to its last token."""
    return {key: times[-1] - _arrival(run, key) for key, times in token_times(run).items()}


def times_to_first_token(run: Run) -> dict[str, float]:
    return {key: times[0] - _arrival(run, key) for key, times in token_times(run).items()}


def inter_token_latencies(run: Run, keys: Any) -> list[float]:
    """Seconds between two tokens of the same request, for all these requests."""
    times = token_times(run)
    return [b - a for key in keys for a, b in zip(times[key], times[key][1:], strict=False)]


def token_times(run: Run) -> dict[str, list[float]]:
    """{request id: when each of its tokens came}."""
    times: dict[str, list[float]] = {}
    for step, now in zip(run.steps, accumulate(run.seconds), strict=True):
        for key in step.sampled:
            times.setdefault(key, []).append(now)
    return times


def _arrival(run: Run, key: str) -> float:
    return sum(run.seconds[: run.arrival_step[key]])
