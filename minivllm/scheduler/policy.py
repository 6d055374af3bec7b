"""Who comes first: one total order over all requests, fixed when a request is added.

A policy gives a request its place, a tuple that is smaller for whoever comes earlier. Admission, blocks
and preemption all follow this one order, which is why nobody starves and nothing deadlocks: the
first request can always take from all others, and cannot stay first for ever. A place never changes,
so a queue stays sorted. Places end with the arrival number, so no two are equal.

Ageing needs no clock. If a waiting request gained one priority level with every `AGEING` later
arrivals, two requests would gain equally, and their order would still be that of
priority · AGEING + arrival: so that number is the place.
"""

from __future__ import annotations

from collections.abc import Callable

from ..request import Request

# So many later arrivals of the next better priority may overtake a request, and no more.
AGEING = 64
# Seconds to the first token that are good enough for a request that states no target.
PATIENT_TTFT = 60.0

Order = tuple[float, ...]


def fcfs(request: Request) -> Order:
    """First come, first served."""
    return (request.arrival, request.index)


def priority(request: Request) -> Order:
    """A smaller `priority` number goes first (as in vLLM), with ageing: a request is overtaken by at
    most `AGEING` later arrivals for each level that they are better."""
    return (request.priority * AGEING + request.arrival, request.arrival, request.index)


def slo(request: Request) -> Order:
    """Earliest deadline first: arrival time plus the target for the first token. Work that states no
    target has a distant deadline, and so yields to latency-sensitive work, but not for ever."""
    target = PATIENT_TTFT if request.ttft_target is None else request.ttft_target
    return (request.arrival_time + target, request.arrival, request.index)


POLICIES: dict[str, Callable[[Request], Order]] = {"fcfs": fcfs, "priority": priority, "slo": slo}


class StepTimeGuard:
    """Keeps steps short enough for the inter-token targets of those who decode (policy "slo").

    A step takes about as long per token as the last ones did; so the budget is the tightest target
    among the running decodes divided by that time. It never falls below one token more than there
    are decodes, so that prompts go on.
    """

    SMOOTHING = 0.2

    def __init__(self) -> None:
        self.seconds_per_token: float | None = None

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Learn from a step that has run."""
        if num_tokens > 0:
            new, old = seconds / num_tokens, self.seconds_per_token
            self.seconds_per_token = new if old is None else old + self.SMOOTHING * (new - old)

    def budget(self, running: list[Request], budget: int) -> int:
        """At most `budget` tokens, fewer where a running decode has an inter-token target."""
        targets = [r.itl_target for r in running if r.itl_target is not None and r.num_output_tokens]
        if not targets or self.seconds_per_token is None:
            return budget
        return min(budget, max(len(running) + 1, int(min(targets) / self.seconds_per_token)))
