"""What passes from the scheduler to the executor, and what a scheduler must do.

A `StepPlan` is plain data: who computes which tokens in this step, and which blocks move first.
The executor needs nothing else, so the same plan drives a GPU, a CPU or a simulator.
(Iteration-level scheduling: Yu et al., Orca, 2022. The plan as plain data: vLLM v1.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..kv.blocks import BlockTable
from ..request import Request


@dataclass(slots=True)
class Chunk:
    """`num_tokens` tokens of `request`, from position `start`; their slots are in `table`."""

    request: Request
    start: int
    num_tokens: int
    table: BlockTable

    @property
    def samples(self) -> bool:
        """True when this chunk reaches the last known token, so that its logits are wanted."""
        return self.start + self.num_tokens == len(self.request.token_ids)


@dataclass
class StepPlan:
    """One step. `num_lost_tokens` counts computed tokens that preemption threw away, to be computed
    again: the price of recomputation, as the length of the swap lists is that of swapping. `swap_out`,
    `copies`, `swap_in` are (source block, target block) pairs, to be done in that order before the
    forward pass."""

    chunks: list[Chunk] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    num_lost_tokens: int = 0
    swap_out: list[tuple[int, int]] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    swap_in: list[tuple[int, int]] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num_tokens for chunk in self.chunks)

    @property
    def is_empty(self) -> bool:
        return not (self.chunks or self.swap_out or self.copies or self.swap_in)


def refuse_what_never_fits(request: Request, max_model_len: int, kv) -> None:
    """`ValueError` if the request is longer than the model allows, or than all blocks together."""
    prompt, most = request.num_prompt_tokens, request.num_prompt_tokens + request.max_tokens
    if most > max_model_len:
        raise ValueError(
            f"prompt has {prompt} tokens and max_tokens is {request.max_tokens}, max_model_len is "
            f"{max_model_len}; shorten the prompt, lower max_tokens or raise max_model_len"
        )
    needed = -(-(most - 1) // kv.block_size)  # the last token is returned, and never computed on
    if needed > kv.num_blocks:
        raise ValueError(
            f"prompt has {prompt} tokens and max_tokens is {request.max_tokens}: that takes {needed} KV "
            f"blocks of {kv.block_size}, the pool has {kv.num_blocks}; shorten the prompt, lower max_tokens "
            "or raise num_gpu_blocks_override"
        )


# plan_step(running, waiting, budget, kv) -> [(request, n)]: who gets how many tokens.
PlanStep = Callable[..., list[tuple[Request, int]]]


class Scheduler(Protocol):
    """Decides, step by step, which requests compute how many tokens. Built as
    `Scheduler(config, kv, plan_step)`; `config` is an `EngineConfig`, `kv` a `KVManager`."""

    waiting: list[Request]
    running: list[Request]

    def add(self, request: Request) -> None:
        """Queue a request. `ValueError` if it can never fit into the pool."""

    def abort(self, request: Request) -> None:
        """End a request at once, whatever it is doing, and free its blocks."""

    def schedule(self) -> StepPlan:
        """Choose the next step's work and give it blocks. Changes no `num_computed_tokens`."""

    def update(self, plan: StepPlan, sampled: dict[str, list[int]]) -> list[tuple[Request, int]]:
        """Take the step's results: advance `num_computed_tokens`, append sampled tokens, free what
        has finished. `sampled` maps request ids to tokens (one, or n for a prompt that forks).
        Returns (request, new token) pairs."""

    def check(self) -> None:
        """Raise `AssertionError` if an invariant does not hold."""
