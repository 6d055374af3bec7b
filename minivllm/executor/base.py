"""What an executor must do: run a `StepPlan`, and say which tokens came out.

The engine knows no more of the model than this, so that a simulated executor can stand in for the
real one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from ..scheduler.base import StepPlan


@dataclass
class StepResult:
    """token_ids: {request id: sampled tokens}, for every chunk that samples; `details` has the
    sampler's full answer for the same requests, where there is one."""

    token_ids: dict[str, list[int]] = field(default_factory=dict)
    details: dict[str, list[Any]] = field(default_factory=dict)


class Executor(Protocol):
    def execute(self, plan: StepPlan) -> StepResult:
        """Move blocks, run the model over the plan's chunks, and sample where a chunk reaches the
        request's last known token."""
