"""Continuous batching: requests join and leave the batch between any two steps.

Every step asks the planner who gets how many tokens, finds blocks for them, and admits who fits. One
total order rules everything: blocks go to the earlier request first, and when they run out the latest
running request gives its own back, to be computed again (or brought back from host memory) later.
So the first request always moves on, and with it the whole queue. Static batching is the same
scheduler that admits only when nothing runs. (Orca: Yu et al., 2022. Preemption: Kwon et al., 2023.)

How long can the first waiting request W have to wait? Nobody after it is admitted before it, every
step computes at least one token of those who run, and whoever is preempted for an earlier request
goes behind W. So W is admitted after at most as many steps as the running requests have tokens left
to compute, all outputs included; from then on at most eight steps lie between two of its chunks.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter

from ..request import Request, Status
from .base import Chunk, StepPlan, refuse_what_never_fits
from .planner import configured
from .planner import plan_step as default_plan_step
from .policy import POLICIES, StepTimeGuard

ORDER = attrgetter("order")


class ContinuousScheduler:
    """`config`: an `EngineConfig` whose `max_model_len` is settled; `kv`: a `KVManager`."""

    def __init__(self, config, kv, plan_step=default_plan_step) -> None:
        self.config = config
        self.kv = kv
        self.waiting: list[Request] = []  # both in order; a swapped request waits, too
        self.running: list[Request] = []
        self.num_preemptions = 0
        self.step_time = StepTimeGuard()
        self._order = POLICIES[config.policy]
        self._plan_step = configured(plan_step, config)
        # Room kept free at admission, so that whoever runs can grow a little before it is preempted.
        self._watermark = kv.num_blocks // 100

    def add(self, request: Request) -> None:
        refuse_what_never_fits(request, self.config.max_model_len, self.kv)
        request.order = self._order(request)
        insort(self.waiting, request, key=ORDER)

    def abort(self, request: Request) -> None:
        if request.is_finished:
            return
        (self.running if request.status is Status.RUNNING else self.waiting).remove(request)
        request.finish_reason = request.finish_reason or "abort"
        self._finish(request)

    def schedule(self) -> StepPlan:
        plan = StepPlan()
        budget = self.config.max_num_batched_tokens
        if self.config.policy == "slo":
            budget = self.step_time.budget(self.running, budget)
        candidates = self._candidates()
        wishes = dict(self._plan_step(self.running, candidates, budget, self.kv))
        everyone_placed = self._serve_running(plan, wishes)
        if everyone_placed and not plan.preempted:
            self._admit(plan, wishes, candidates)
        if self.waiting:
            self.waiting[0].num_skipped_steps += 1
        if self.running and not plan.chunks:  # the step was a waiting prompt's turn, but it finds no room
            self.waiting[0].num_skipped_steps = 0
            self._serve_running(plan, dict(self._plan_step(self.running, [], budget, self.kv)))
        self.kv.give_moves_to(plan)
        return plan

    def update(self, plan: StepPlan, sampled: dict[str, list[int]]) -> list[tuple[Request, int]]:
        self.kv.settle(plan)
        outputs: list[tuple[Request, int]] = []
        any_finished = False
        for chunk in plan.chunks:
            request = chunk.request
            if request.status is not Status.RUNNING:  # aborted while the step ran
                continue
            request.num_computed_tokens = chunk.start + chunk.num_tokens
            tokens = sampled.get(request.request_id)
            if tokens:
                children = self._fork(request, tokens[1:]) if len(tokens) > 1 else ()
                for sequence, token in zip((request, *children), tokens, strict=True):
                    sequence.append(token)
                    outputs.append((sequence, token))
                    if sequence.finish_reason is not None:
                        self._finish(sequence)
                        any_finished = True
        if any_finished:
            self.running = [r for r in self.running if not r.is_finished]
            self.waiting = [r for r in self.waiting if not r.is_finished]
        return outputs

    def recover(self, plan: StepPlan) -> None:
        """The step failed before its end, so nothing it was to move or compute can be relied on: all
        who run, and all whose blocks were on their way, start again from their tokens."""
        self.kv.settle(StepPlan())
        for request in [*self.running, *(r for r in self.waiting if r.status is Status.SWAPPED)]:
            self._give_up_blocks(request)
        self.waiting = sorted(self.running + self.waiting, key=ORDER)
        self.running = []

    def check(self) -> None:
        """Raise `AssertionError` if an invariant does not hold."""
        from .checks import check_scheduler

        check_scheduler(self)

    def _candidates(self) -> list[Request]:
        """Who may be admitted in this step, as far as the number of requests decides it."""
        if self.running and self.config.scheduler == "static":
            return []
        return self.waiting[: self.config.max_num_seqs - len(self.running)]

    def _serve_running(self, plan: StepPlan, wishes: dict[Request, int]) -> bool:
        """Place the running requests' tokens, earliest first. False if somebody found no block."""
        everyone_placed = True
        position = 0
        while position < len(self.running):  # preemption shortens the list from its end
            request = self.running[position]
            position += 1
            n = wishes.get(request)
            if n is None:
                request.num_skipped_steps += 1
            elif not self._place(request, n, plan):
                everyone_placed = False
        if not everyone_placed and not plan.chunks:  # all whose turn it was are stuck; the first never is
            first = self.running[0]
            self._place(first, min(self.kv.num_missing_tokens(first), sum(wishes.values())), plan)
        return everyone_placed

    def _place(self, request: Request, n: int, plan: StepPlan) -> bool:
        """Put n tokens of a running request into the plan: fewer if blocks are short, none (it is
        parked, and keeps what it has) if there are none and no later request to take them from."""
        request.num_skipped_steps = 0
        start = self.kv.open(request)
        n = min(n, len(request.token_ids) - start)
        while (table := self.kv.reserve(request, start + n)) is None:
            room = self.kv.room_for(request, n)
            if room:
                n = room
            elif self.running[-1] is request:
                return False
            else:
                self._preempt(self.running.pop(), plan)
        plan.chunks.append(Chunk(request, start, n, table))
        return True

    def _admit(self, plan: StepPlan, wishes: dict[Request, int], candidates: list[Request]) -> None:
        """Start waiting requests, in order, up to the first that does not fit with all it needs."""
        promised = sum(map(self.kv.blocks_missing, self.running)) if candidates else 0
        admitted = 0
        for request in candidates:
            n = wishes.get(request, 0)
            if n == 0 and self.config.scheduler != "static":
                break
            needed = self.kv.blocks_missing(request)
            if self.running and promised + needed + self._watermark > self.kv.num_free_blocks:
                break
            if request.status is Status.SWAPPED:
                self.kv.swap_in(request)
            request.status = Status.RUNNING
            insort(self.running, request, key=ORDER)
            admitted += 1
            if n:
                self._place(request, n, plan)
            promised += self.kv.blocks_missing(request)
        del self.waiting[:admitted]

    def _preempt(self, request: Request, plan: StepPlan) -> None:
        if self.config.preemption_mode == "swap" and self.kv.swap_out(request):
            request.status = Status.SWAPPED
        else:
            plan.num_lost_tokens += request.num_computed_tokens
            self._give_up_blocks(request)
        request.num_preemptions += 1
        self.num_preemptions += 1
        insort(self.waiting, request, key=ORDER)
        plan.preempted.append(request.request_id)

    def _give_up_blocks(self, request: Request) -> None:
        self.kv.free(request)
        request.num_computed_tokens = 0
        request.status = Status.WAITING

    def _fork(self, parent: Request, tokens: list[int]) -> list[Request]:
        """One child for each token sampled besides the parent's own. A child that finds no place in the
        batch waits like anybody else, and computes its prompt again (or finds it cached)."""
        children = []
        for index in range(1, len(tokens) + 1):
            child = parent.fork(index)
            child.order = self._order(child)
            if len(self.running) < self.config.max_num_seqs:
                self.kv.fork(parent, child)
                child.num_computed_tokens = parent.num_computed_tokens
                child.status = Status.RUNNING
                insort(self.running, child, key=ORDER)
            else:
                insort(self.waiting, child, key=ORDER)
            children.append(child)
        return children

    def _finish(self, request: Request) -> None:
        self.kv.free(request)
        request.status = Status.FINISHED
