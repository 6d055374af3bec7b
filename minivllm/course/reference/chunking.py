"""Chunked prefill in three small pieces: latencies from a trace, a plan for one step, the time of a step.

`plan_step` is the stall-free rule without anything else (Agrawal et al., Sarathi-Serve, 2024): decodes
first, then prompts in pieces as large as the rest of the budget. The engine's own planner, with patience
for whoever a small budget leaves out, is scheduler/planner.py. `StepClock` is the roofline of lab 00 for
a mixed step: what a chunk and some decodes cost together, when weights are read once for all of them.
The reference of lab 05.
"""

from __future__ import annotations

from bisect import bisect

from ...executor.cost import forward_cost


def latencies(trace) -> dict[str, tuple[float | None, list[float]]]:
    """{request id: (TTFT, inter-token latencies)} of all requests in a `Trace`, in seconds. The TTFT is
    None for a request that has no token yet. A token is there when its step ends."""
    last = {request_id: record.arrival_time for request_id, record in trace.requests.items()}
    waits: dict[str, list[float]] = {request_id: [] for request_id in last}
    for step in trace.steps:
        for request_id in step.sampled:
            waits[request_id].append(step.time_end - last[request_id])
            last[request_id] = step.time_end
    return {request_id: (gaps[0] if gaps else None, gaps[1:]) for request_id, gaps in waits.items()}


def plan_step(running: list, waiting: list, budget: int, kv) -> list[tuple]:
    """[(request, n)], every n ≥ 1, together at most `budget` tokens: the running requests that miss one
    token, then the other running ones, then the waiting ones, each what it misses or what is left."""
    decodes = [request for request in running if kv.num_missing_tokens(request) == 1]
    prompts = [request for request in running if kv.num_missing_tokens(request) > 1]
    plan = []
    for request in [*decodes, *prompts, *waiting]:
        n = min(kv.num_missing_tokens(request), budget)
        if n == 0:
            break
        plan.append((request, n))
        budget -= n
    return plan


class StepClock:
    """Least seconds of mixed steps of a model on a machine, and the budget that keeps them short.
    `cfg` has the sizes of a `ModelConfig`, `gpu` those of a `Hardware`."""

    def __init__(self, cfg, gpu, dtype_bytes: float) -> None:
        self.cfg, self.gpu, self.dtype_bytes = cfg, gpu, dtype_bytes

    def chunk_time(self, tokens: int, context: int, decodes: list[int]) -> float:
        """A step with `tokens` tokens of a prompt, the last of which sees `context` tokens, and with one
        token of each request in `decodes`, which are their contexts."""
        chunks = [(tokens, context), *((1, seen) for seen in decodes)]
        return forward_cost(self.cfg, chunks, self.dtype_bytes, self.dtype_bytes).seconds(self.gpu)

    def budget(self, target: float, prompt_len: int, decodes: list[int]) -> int:
        """The largest token budget with which the slowest step of the prompt, a whole chunk at its very
        end, takes at most `target` seconds. `ValueError` if one token of it takes longer than that."""
        chunks = range(1, prompt_len + 1)
        fits = bisect(chunks, target, key=lambda chunk: self.chunk_time(chunk, prompt_len, decodes))
        if fits == 0:
            least = self.chunk_time(1, prompt_len, decodes)
            raise ValueError(
                f"target is {target} s, a step with one prompt token takes {least} s; raise it or run fewer"
            )
        return len(decodes) + fits
