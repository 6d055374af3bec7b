"""Who gets how many tokens in this step: the token budget, decodes first, then chunks of prompts.

A decode asks for one token and is everybody's inter-token latency, so decodes come first; what is
left of the budget goes to prompts, in order, in pieces as large as fit. A prompt can therefore
never stall the decodes for longer than one budget of work. (Stall-free batching: Agrawal et al.,
Sarathi-Serve, 2024.) The planner looks at tokens only; blocks are the scheduler's affair.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

from ..request import Request

# With more decodes than budget, a prompt that was passed over this often comes before them.
PREFILL_PATIENCE = 7


def plan_step(
    running: list[Request],
    waiting: list[Request],
    budget: int,
    kv,
    *,
    max_chunk: int | None = None,
    chunked: bool = True,
) -> list[tuple[Request, int]]:
    """[(request, n)], every n ≥ 1, their sum at most `budget` tokens.

    `running` and `waiting` are in the order in which they are to be served; `kv` knows how many
    tokens a request misses. `max_chunk` caps one prompt's share of a step; without `chunked` a
    prompt is computed whole or not at all.
    """
    decodes: list[Request] = []
    prefills: list[Request] = []
    for request in running:
        is_decode = len(request.token_ids) - request.num_computed_tokens == 1
        (decodes if is_decode else prefills).append(request)
    prompts = chain(prefills, waiting)
    order = chain(decodes, prompts)
    if len(decodes) > budget:
        decodes.sort(key=_least_recently_served)
        oldest = prefills[0] if prefills else waiting[0] if waiting else None
        if oldest is not None and oldest.num_skipped_steps >= PREFILL_PATIENCE:
            order = chain(prompts, decodes)

    plan: list[tuple[Request, int]] = []
    for request in order:
        missing = kv.num_missing_tokens(request)
        n = min(missing, budget) if max_chunk is None else min(missing, budget, max_chunk)
        if n < 1 or (n < missing and not chunked):
            break
        plan.append((request, n))
        budget -= n
    return plan


def configured(plan_step: Any, config: Any) -> Any:
    """`plan_step` with what an `EngineConfig` says of prompts, so that a scheduler need not pass it on."""
    options = {}
    if not config.enable_chunked_prefill:
        options["chunked"] = False
    if config.long_prefill_token_threshold:
        options["max_chunk"] = config.long_prefill_token_threshold
    return partial(plan_step, **options) if options else plan_step


def _least_recently_served(request: Request) -> int:
    return -request.num_skipped_steps
