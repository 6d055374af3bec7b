"""The claims of the course, C1 to C7, each run live and held against the range that theory gives it.

Three things are kept apart: the workload (bench/workloads.py), what executes it (machine.py) and what is
read from the run (measure.py). Predictions come from counts: a slot model of the scheduler
(slot_model.py), counted FLOPs (executor/cost.py), and the seconds of simple steps, timed in the same run
(step_times.py). A figure is a count, or a ratio of two things measured in turn, never an absolute time.
Each claim's `measure` says where its ranges come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from tqdm import tqdm

from .machine import Machine
from .report import table

__all__ = ["CLAIMS", "run", "table"]

CLAIMS = {
    "C1": "c1_cache",
    "C2": "c2_kv_memory",
    "C3": "c3_paging",
    "C4": "c4_continuous",
    "C5": "c5_chunked",
    "C6": "c6_prefix",
    "C7": "c7_pool",
}


def run(
    make_llm: Callable[..., Any], ids: Sequence[str] = (), repetitions: int = 3, progress: bool = True
) -> dict[str, Any]:
    """{"claims": [one dict a claim]}, in the order of `ids`, or all if there are none. `ValueError` for an
    id that is unknown.
    """
    for name in ids:
        if name not in CLAIMS:
            raise ValueError(f"there is no claim {name!r}; the claims are {', '.join(CLAIMS)}")
    found = []
    chosen = list(dict.fromkeys(ids)) or list(CLAIMS)
    with tqdm(chosen, desc="bench claims", unit="claim", disable=not progress) as bar:
        num_steps = 0

        def on_step() -> None:
            nonlocal num_steps
            num_steps += 1
            bar.set_postfix_str(f"{num_steps} steps", refresh=False)
            bar.update(0)  # redraws, at most ten times a second

        machine = Machine(make_llm, repetitions, on_step)
        for name in bar:
            module = import_module(f".{CLAIMS[name]}", __name__)
            bar.set_description(f"{name} {module.TITLE}")
            threads = machine.settle_threads()
            found.append({**module.measure(machine).as_dict(), "threads": threads})
        machine.restore_threads()
    return {"claims": found}
