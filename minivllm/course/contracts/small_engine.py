"""An engine without a model, around a part that schedules: requests, blocks that are only counted, steps.

`World` lends the part real requests and a real `KVManager`, both of a kind that can be lent to another
process, and calls it as the engine does. It reads every plan at once, checks what must hold of any plan, and
keeps the story so far, so that a broken rule can say what led to it. Requests are called A, B, C …
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ...kv.blocks import BlockPool
from ...kv.manager import KVManager
from ...request import Request, Status
from ...sampling import SamplingParams
from ...scheduler.planner import plan_step as minivllms_plan_step
from .expect import same, show
from .rules import Broken

BLOCK = 4  # tokens a block
FIRST_TOKEN = 100  # sampled tokens are 100, 101, …: the request's number of tokens so far and this


class LentRequest(Request):
    """A request whose bookkeeping a part may write."""

    parts_may_set = frozenset(
        {"num_computed_tokens", "status", "finish_reason", "num_preemptions", "num_skipped_steps"}
    )


class LentKV(KVManager):
    """A KV manager that writes down what it is told. `cached` maps request ids to the number of tokens
    that a table of theirs begins with, as if the prefix cache had them."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__(BlockPool(num_blocks), BLOCK)
        self.cached: dict[str, int] = {}
        self.told: list[str] = []
        self.num_chunks_then = 0  # in the plan that was given to the last give_moves_to

    def open(self, request: Any) -> int:
        new = request.request_id not in self.tables
        start = super().open(request)
        if new and request.request_id in self.cached:
            start = self.cached[request.request_id]
            self.reserve(request, start)
            self._matched[request.request_id] = start
        return start

    def free(self, request: Any) -> None:
        self.told.append(f"free {request.request_id}")
        super().free(request)

    def give_moves_to(self, plan: Any) -> None:
        self.told.append("give_moves_to")
        self.num_chunks_then = len(plan.chunks)

    def settle(self, plan: Any) -> None:
        self.told.append("settle")


class Step:
    """What a plan said: `chunks` {name: (start, n)}, `preempted` names, `num_lost_tokens`; `plan` is the
    part's own object."""

    def __init__(self, plan: Any, world: World, called: str) -> None:
        try:
            chunks = [(c.request, c.start, c.num_tokens, c.table) for c in plan.chunks]
            self.preempted, self.num_lost_tokens = list(plan.preempted), plan.num_lost_tokens
        except AttributeError as error:
            raise Broken(called, f"{show(plan)} ({error})", "a StepPlan of Chunks") from None
        self.plan = plan
        self.chunks: dict[str, tuple[int, int]] = {}
        for request, start, n, table in chunks:
            if not any(request is known for known in world.requests):
                raise Broken(called, f"a chunk of {show(request)}", "chunks of the requests that were added")
            name = request.request_id
            if name in self.chunks:
                raise Broken(called, f"{name} is in the plan twice", "at most one chunk for each request")
            if table is None or table is not world.kv.tables.get(name):
                raise Broken(called, f"the chunk of {name} has the table {show(table)}", "what reserve gave")
            if type(start) is not int or type(n) is not int or n < 1 or table.num_tokens < start + n:
                got = f"{name}: {show(n)} tokens from {show(start)}, blocks for {table.num_tokens}"
                raise Broken(called, got, "at least 1 token, and blocks for all of them")
            self.chunks[name] = (start, n)
        if self.num_tokens > world.budget:
            raise Broken(called, f"{self.num_tokens} tokens", f"at most the budget, {world.budget} tokens")

    @property
    def num_tokens(self) -> int:
        return sum(n for _, n in self.chunks.values())


class World:
    """`part(config, kv, plan_step)` and what it is given."""

    def __init__(
        self, part: Any, num_blocks: int = 64, seats: int = 4, budget: int = 64, plan_step: Any = None
    ) -> None:
        self.seats, self.budget = seats, budget
        config = SimpleNamespace(
            max_num_seqs=seats, max_num_batched_tokens=budget, max_model_len=200, block_size=BLOCK,
            enable_chunked_prefill=True, scheduler="continuous", policy="fcfs", preemption_mode="recompute",
        )  # fmt: skip
        self.kv = LentKV(num_blocks)
        self.requests: list[LentRequest] = []
        self.story = [f"{num_blocks} blocks of {BLOCK}, max_num_seqs {seats}"]
        if budget != 64:
            self.story[0] += f", budget {budget}"
        self.scheduler = part(config, self.kv, plan_step or minivllms_plan_step)

    def request(self, prompt: int, max_tokens: int = 4, **more: Any) -> LentRequest:
        """A request that has not been added, named by the next letter."""
        number = len(self.requests)
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        tokens = [1 + (7 * number + i) % 50 for i in range(prompt)]
        return LentRequest(chr(65 + number), tokens, params, arrival=number, **more)

    def add(self, prompt: int, max_tokens: int = 4, **more: Any) -> LentRequest:
        request = self.request(prompt, max_tokens, **more)
        self.requests.append(request)
        self.tell(f"add {request.request_id} ({prompt} + {max_tokens} tokens)")
        self.scheduler.add(request)
        return request

    def tell(self, what: str) -> None:
        self.story.append(what)

    @property
    def so_far(self) -> str:
        """The set-up, and what happened last."""
        return "; ".join([self.story[0], *self.story[1:][-6:]])

    def schedule(self) -> Step:
        self.tell("schedule()")
        return Step(self.scheduler.schedule(), self, self.so_far)

    def take_in(self, step: Step) -> None:
        """What `update` is for, where a part has none yet. Nobody ends."""
        for name, (start, n) in step.chunks.items():
            request = self.named(name)
            request.num_computed_tokens = start + n
            if start + n == request.num_tokens:
                request.append(FIRST_TOKEN + request.num_tokens)
                request.finish_reason = None
        self.tell("the step runs")

    def update(self, step: Step) -> list[tuple[str, int]]:
        """The part's own `update`; its outputs as (name, token)."""
        sampled = {}
        for name, (start, n) in step.chunks.items():
            request = self.named(name)
            if start + n == request.num_tokens:
                sampled[name] = [FIRST_TOKEN + request.num_tokens]
        self.tell("update(plan, sampled)")
        outputs = self.scheduler.update(step.plan, dict(sampled))
        if not isinstance(outputs, list) or not all(isinstance(o, tuple) and len(o) == 2 for o in outputs):
            raise Broken(self.so_far, show(outputs), "a list of (request, token) pairs")
        return [(getattr(request, "request_id", show(request)), token) for request, token in outputs]

    def step(self) -> Step:
        """schedule and update."""
        step = self.schedule()
        self.update(step)
        return step

    def abort(self, request: LentRequest) -> None:
        self.tell(f"abort({request.request_id})")
        self.scheduler.abort(request)

    def named(self, name: str) -> LentRequest:
        return self.requests[ord(name) - 65]

    def queues(self) -> tuple[list[str], list[str]]:
        """Names of those who run and of those who wait."""
        found = []
        for queue in ("running", "waiting"):
            members = getattr(self.scheduler, queue)
            if not isinstance(members, list):
                raise Broken(f"{self.so_far}: {queue}", show(members), "a list of requests")
            found.append([getattr(r, "request_id", show(r)) for r in members])
        return found[0], found[1]

    def expect_queues(self, running: str, waiting: str) -> None:
        """Each a text of names, such as "AB"."""
        got_running, got_waiting = self.queues()
        same(f"{self.so_far}: running", got_running, list(running))
        same(f"{self.so_far}: waiting", got_waiting, list(waiting))

    def expect_chunks(self, step: Step, **want: tuple[int, int]) -> None:
        same(f"{self.so_far}: {{request: (start, tokens)}}", dict(sorted(step.chunks.items())), want)

    def expect_free(self, want: int) -> None:
        same(f"{self.so_far}: free blocks", self.kv.num_free_blocks, want)

    def expect_ended(self, request: LentRequest, reason: str) -> None:
        called = f"{self.so_far}: {request.request_id}"
        same(f"{called}.finish_reason", request.finish_reason, reason)
        if request.status is not Status.FINISHED:
            raise Broken(f"{called}.status", str(request.status), str(Status.FINISHED))

    def run(self, most_steps: int) -> list[Step]:
        """Step until all have ended; each step must compute something."""
        steps = []
        while not all(request.is_finished for request in self.requests):
            steps.append(self.step())
            if not steps[-1].chunks:
                raise Broken(self.so_far, "an empty plan", "somebody to go on: requests are there")
            self.check()
            if len(steps) > most_steps:
                raise Broken(self.so_far, f"not done after {most_steps} steps", "all requests ended by then")
        self.expect_queues("", "")
        self.expect_free(self.kv.num_blocks)
        return steps

    def check(self) -> None:
        """What must hold between any two steps."""
        running, waiting = self.queues()
        if len(running) > self.seats:
            raise Broken(f"{self.so_far}: running", f"{len(running)} requests", f"at most {self.seats}")
        there = sorted(r.request_id for r in self.requests if not r.is_finished)
        same(f"{self.so_far}: running and waiting, sorted", sorted(running + waiting), there)
        strangers = sorted(set(self.kv.tables) - set(running))
        if strangers:
            raise Broken(f"{self.so_far}: who owns blocks", strangers[0], "only those who run")
        try:
            self.kv.check()
        except AssertionError as error:
            raise Broken(self.so_far, str(error), "blocks and tables that agree") from None


def planned(*wishes: tuple[str, int]) -> Any:
    """A `plan_step` that always says the same of those who are there: (name, tokens), in this order."""

    def plan_step(running, waiting, budget, kv):
        there = {request.request_id: request for request in [*running, *waiting]}
        return [(there[name], n) for name, n in wishes if name in there]

    return plan_step


def ends_of(lengths: list[int], seats: int) -> list[int]:
    """The step in which each request ends if the next one comes in when a seat is free, step by step."""
    waiting, running, ends, step = list(enumerate(lengths)), {}, [0] * len(lengths), 0
    while waiting or running:
        step += 1
        while waiting and len(running) < seats:
            number, left = waiting.pop(0)
            running[number] = left
        for number in list(running):
            running[number] -= 1
            if not running[number]:
                del running[number]
                ends[number] = step
    return ends
