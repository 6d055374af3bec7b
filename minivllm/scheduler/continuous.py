"""Continuous batching: requests join and leave the batch between any two steps.

Every step asks the planner who gets how many tokens, finds blocks for them, and admits who fits. One
total order (arrival) rules everything: blocks go to the earlier request first, and when they run
out the latest running request gives its own back and is computed again later. So the oldest request
always moves on, and with it the whole queue. Static batching is the same scheduler that admits only
when nothing runs. (Orca: Yu et al., 2022. Preemption by recomputation: Kwon et al., 2023.)
"""

from __future__ import annotations

from bisect import insort
from functools import partial
from operator import attrgetter

from ..request import Request, Status
from .base import Chunk, StepPlan, refuse_what_never_fits
from .planner import plan_step as default_plan_step

ORDER = attrgetter("arrival")


class ContinuousScheduler:
    """`config`: an `EngineConfig` whose `max_model_len` is settled; `kv`: a `KVManager`."""

    def __init__(self, config, kv, plan_step=default_plan_step) -> None:
        self.config = config
        self.kv = kv
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.num_preemptions = 0
        self._plan_step = plan_step
        if not config.enable_chunked_prefill:
            self._plan_step = partial(plan_step, chunked=False)
        # Room kept free at admission, so that whoever runs can grow a little before it is preempted.
        self._watermark = kv.num_blocks // 100

    def add(self, request: Request) -> None:
        refuse_what_never_fits(request, self.config.max_model_len, self.kv)
        insort(self.waiting, request, key=ORDER)

    def abort(self, request: Request) -> None:
        if request.is_finished:
            return
        queue = self.running if request.status is Status.RUNNING else self.waiting
        queue.remove(request)
        request.finish_reason = request.finish_reason or "abort"
        self._finish(request)

    def schedule(self) -> StepPlan:
        plan = StepPlan()
        candidates = self._candidates()
        wishes = dict(self._plan_step(self.running, candidates, self.config.max_num_batched_tokens, self.kv))
        everyone_placed = self._serve_running(plan, wishes)
        if everyone_placed and not plan.preempted:
            self._admit(plan, wishes, candidates)
        if self.waiting:
            self.waiting[0].num_skipped_steps += 1
        return plan

    def update(self, plan: StepPlan, sampled: dict[str, list[int]]) -> list[tuple[Request, int]]:
        outputs: list[tuple[Request, int]] = []
        any_finished = False
        for chunk in plan.chunks:
            request = chunk.request
            if request.status is not Status.RUNNING:  # aborted while the step ran
                continue
            request.num_computed_tokens = chunk.start + chunk.num_tokens
            tokens = sampled.get(request.request_id)
            if tokens:
                request.append(tokens[0])
                outputs.append((request, tokens[0]))
                if request.finish_reason is not None:
                    self._finish(request)
                    any_finished = True
        if any_finished:
            self.running = [r for r in self.running if not r.is_finished]
        return outputs

    def check(self) -> None:
        self.kv.check()
        assert len(self.running) <= self.config.max_num_seqs, "more requests run than max_num_seqs"
        for queue, status in ((self.running, Status.RUNNING), (self.waiting, Status.WAITING)):
            arrivals = [r.arrival for r in queue]
            assert arrivals == sorted(set(arrivals)), f"{status.value} requests are out of order or double"
            assert all(r.status is status for r in queue), f"a {status.value} request has another status"
        for request in self.running:
            table = self.kv.tables.get(request.request_id)
            placed = table.num_tokens if table is not None else 0
            assert request.num_computed_tokens <= placed, f"{request} has computed tokens without blocks"
            assert request.num_computed_tokens < request.num_tokens, f"{request} has nothing left to compute"
        for request in self.waiting:
            assert request.request_id not in self.kv.tables, f"{request} waits, but owns blocks"
            assert request.num_computed_tokens == 0, f"{request} waits, but has computed tokens"
        owners = {r.request_id for r in self.running}
        assert set(self.kv.tables) <= owners, "a block table belongs to no running request"

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
            else:
                everyone_placed &= self._place(request, n, plan)
        if not everyone_placed and not plan.chunks:  # all whose turn it was are stuck; the oldest never is
            oldest = self.running[0]
            self._place(
                oldest, min(oldest.num_tokens - oldest.num_computed_tokens, sum(wishes.values())), plan
            )
        return everyone_placed

    def _place(self, request: Request, n: int, plan: StepPlan) -> bool:
        """Put n tokens of a running request into the plan: fewer if blocks are short, none (it is
        parked, and keeps what it has) if there are none and no later request to take them from."""
        request.num_skipped_steps = 0
        start = request.num_computed_tokens
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
        promised = sum(self.kv.blocks_missing(r) for r in self.running) if candidates else 0
        admitted = 0
        for request in candidates:
            n = wishes.get(request, 0)
            if n == 0 and self.config.scheduler != "static":
                break
            needed = self.kv.blocks_missing(request)
            if self.running and promised + needed + self._watermark > self.kv.num_free_blocks:
                break
            request.status = Status.RUNNING
            insort(self.running, request, key=ORDER)
            admitted += 1
            if n:
                self._place(request, n, plan)
            promised += self.kv.blocks_missing(request)
        del self.waiting[:admitted]

    def _preempt(self, request: Request, plan: StepPlan) -> None:
        self.kv.free(request)
        request.num_computed_tokens = 0
        request.status = Status.WAITING
        request.num_preemptions += 1
        self.num_preemptions += 1
        insort(self.waiting, request, key=ORDER)
        plan.preempted.append(request.request_id)

    def _finish(self, request: Request) -> None:
        self.kv.free(request)
        request.status = Status.FINISHED
