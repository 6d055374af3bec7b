"""Continuous batching in five small pieces: what a batch costs, and a scheduler that grows.

`batch_cost` counts the idle slots of a static batch and of one that is refilled. The scheduler comes in four
classes, each of which adds one idea to the one before: who takes part in a step, what comes of it, who may
come in, and who has to go when blocks run out. The engine's own has all of it in one place, and policies,
swapping and forks besides: scheduler/continuous.py. The reference of lab 04.
(Iteration-level scheduling: Yu et al., Orca, 2022. Preemption by recomputation: Kwon et al., 2023.)
"""

from __future__ import annotations

from heapq import heapify, heapreplace

from ...request import Request, Status
from ...scheduler.base import Chunk, StepPlan, refuse_what_never_fits


def batch_cost(lengths: list[int], num_slots: int, continuous: bool = False) -> tuple[int, int, list[int]]:
    """(steps, idle slot-steps, number of the step in which each request ends, from 1). Request i takes a
    slot for lengths[i] ≥ 1 steps. Static: the next `num_slots` requests start when the last of a batch has
    ended; continuous: the next request takes a slot as soon as it is free."""
    free_at = [0] * num_slots  # the number of steps after which each slot is free
    ends = []
    for i, length in enumerate(lengths):
        if i % num_slots == 0 and not continuous:
            free_at = [max(free_at)] * num_slots
        heapify(free_at)
        ends.append(free_at[0] + length)
        heapreplace(free_at, ends[-1])
    num_steps = max(free_at)
    return num_steps, num_slots * num_steps - sum(lengths), ends


class StepScheduler:
    """Chooses the requests of one step. `waiting` and `running` are in order of arrival."""

    def __init__(self, config, kv, plan_step) -> None:
        self.config = config
        self.kv = kv
        self.plan_step = plan_step
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        """Queue a request; `ValueError` for one that can never fit."""
        refuse_what_never_fits(request, self.config.max_model_len, self.kv)
        self.waiting.append(request)

    def can_admit(self, request: Request) -> bool:
        """Are there free blocks for all tokens that are known of it?"""
        return self.kv.blocks_missing(request) <= self.kv.num_free_blocks

    def place(self, request: Request, n: int, plan: StepPlan) -> None:
        """Put n more tokens of a running request into the plan, if there are blocks for them."""
        start = self.kv.open(request)
        table = self.kv.reserve(request, start + n)
        if table is not None:
            plan.chunks.append(Chunk(request, start, n, table))

    def schedule(self) -> StepPlan:
        """The next step: as `plan_step` says, except that only the first who waits can be let in."""
        plan = StepPlan()
        candidates = self.waiting[: self.config.max_num_seqs - len(self.running)]
        budget = self.config.max_num_batched_tokens
        for request, n in self.plan_step(self.running, candidates, budget, self.kv):
            if request.status is Status.WAITING:
                if request is not self.waiting[0] or not self.can_admit(request):
                    continue
                self.running.append(self.waiting.pop(0))
                request.status = Status.RUNNING
            self.place(request, n, plan)
        self.kv.give_moves_to(plan)
        return plan


class Scheduler(StepScheduler):
    """The whole loop: what a step gave is taken in, and who has ended makes room at once."""

    def update(self, plan: StepPlan, sampled: dict[str, list[int]]) -> list[tuple[Request, int]]:
        """Take in the results of a step; (request, new token) pairs."""
        self.kv.settle(plan)
        outputs = []
        for chunk in plan.chunks:
            request = chunk.request
            if request.is_finished:  # aborted while the step ran
                continue
            request.num_computed_tokens = chunk.start + chunk.num_tokens
            for token in sampled.get(request.request_id, ()):
                request.append(token)
                outputs.append((request, token))
                if request.finish_reason is not None:
                    self.finish(request)
        return outputs

    def abort(self, request: Request) -> None:
        """End a request wherever it is; nothing happens to one that has ended."""
        if not request.is_finished:
            request.finish_reason = request.finish_reason or "abort"
            self.finish(request)

    def finish(self, request: Request) -> None:
        """Take it out, and give back all that it owns."""
        queue = self.waiting if request.status is Status.WAITING else self.running
        queue.remove(request)
        self.kv.free(request)
        request.status = Status.FINISHED


class AdmittingScheduler(Scheduler):
    """Lets nobody in on blocks that those who run are going to need."""

    def can_admit(self, request: Request) -> bool:
        """Is there room for it, for what is still to come of the prompts that run, and a reserve of one
        block for each running request?"""
        promised = sum(self.kv.blocks_missing(running) for running in self.running)
        needed = self.kv.blocks_missing(request) + promised + len(self.running)
        return needed <= self.kv.num_free_blocks


class PreemptingScheduler(AdmittingScheduler):
    """Takes blocks back from the latest request when there are none, to be computed again later."""

    def place(self, request: Request, n: int, plan: StepPlan) -> None:
        """As before; if blocks are short, whoever came last and is not in the plan yet gives up its own,
        which may be the request itself."""
        start = self.kv.open(request)
        while (table := self.kv.reserve(request, start + n)) is None:
            in_plan = [chunk.request for chunk in plan.chunks]
            victim = [running for running in self.running if running not in in_plan][-1]
            self.preempt(victim, plan)
            if victim is request:
                return
        plan.chunks.append(Chunk(request, start, n, table))

    def preempt(self, victim: Request, plan: StepPlan) -> None:
        """Take all blocks from a running request and put it back among the waiting, by arrival."""
        plan.preempted.append(victim.request_id)
        plan.num_lost_tokens += victim.num_computed_tokens
        self.kv.free(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        victim.status = Status.WAITING
        self.running.remove(victim)
        self.waiting.append(victim)
        self.waiting.sort(key=lambda request: request.arrival)
