"""Requests as a few numbers, a KV manager that only counts, and a look at a plan for one step.

The planners' contracts hand these to a part: it may read a request's numbers and ask how many tokens it
misses. What it misses is worked out before the part is asked. A request goes by its name in every message.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from .expect import show
from .rules import Broken

PAIRS = "pairs (request, n), with the requests that were given"


class SmallRequest:
    """`num_tokens` known tokens, of which `num_computed_tokens` are in the cache."""

    def __init__(self, name: str, num_tokens: int, computed: int = 0, skipped: int = 0) -> None:
        self.request_id = name
        self.token_ids = list(range(100, 100 + num_tokens))
        self.num_tokens = num_tokens
        self.num_computed_tokens = computed
        self.num_skipped_steps = skipped


class SmallKV:
    """`num_missing_tokens` is all that a planner asks. A waiting prompt does not miss its `cached` tokens."""

    def __init__(self) -> None:
        self.cached: dict[str, int] = {}

    def num_missing_tokens(self, request: Any) -> int:
        return request.num_tokens - max(request.num_computed_tokens, self.cached.get(request.request_id, 0))


def decode(name: str, skipped: int = 0) -> SmallRequest:
    """A request that misses its newest token only."""
    return SmallRequest(name, 9, 8, skipped)


def decodes(n: int) -> list[SmallRequest]:
    return [decode(f"D{i}") for i in range(1, n + 1)]


class Queues:
    """Who is there, and what each misses."""

    def __init__(self, running: list, waiting: list, kv: SmallKV | None = None, skips: bool = False) -> None:
        self.running, self.waiting, self.kv = running, waiting, kv or SmallKV()
        self.everybody = [*running, *waiting]
        self.needs = {r.request_id: self.kv.num_missing_tokens(r) for r in self.everybody}
        self.decodes = [r.request_id for r in running if self.needs[r.request_id] == 1]
        running_prompts = [r.request_id for r in running if self.needs[r.request_id] > 1]
        self.prompts = running_prompts + [r.request_id for r in waiting]
        self.skips = skips

    def plan(
        self, part: Callable, name: str, budget: int, lent: tuple[list, list] | None = None
    ) -> tuple[str, dict[str, int]]:
        """(the call in words, {request's name: tokens}) of a plan that some planner might make; `Broken`
        if none might. The part gets lists of its own; `lent` are two for many calls, since every list that
        has crossed to a part process is compared with every message."""
        called = self.called(name, budget)
        running, waiting = lent or ([], [])
        running[:], waiting[:] = self.running, self.waiting
        got = part(running, waiting, budget, self.kv)
        if not isinstance(got, list):
            raise Broken(called, show(got), "a list of (request, n)")
        plan: dict[str, int] = {}
        for entry in got:
            who, n = self._entry(called, entry)
            if who in plan:
                raise Broken(called, f"{who} twice", "each request at most once")
            plan[who] = n
        if sum(plan.values()) > budget:
            given = f"{write(plan)}: {sum(plan.values())} tokens"
            raise Broken(
                called, given, f"at most {budget} tokens", "Take n off the budget as you give it away."
            )
        return called, plan

    def called(self, name: str, budget: int) -> str:
        running, waiting = self._group(self.running), self._group(self.waiting)
        return f"{name} with a budget of {budget}; running: {running}; waiting: {waiting}"

    def greedy(self, budget: int) -> dict[str, int]:
        """Decodes, then running prompts, then waiting ones, each what it misses or what is left."""
        plan = {}
        for name in self.decodes + self.prompts:
            n = min(self.needs[name], budget)
            if n:
                plan[name] = n
            budget -= n
        return plan

    def _entry(self, called: str, entry: Any) -> tuple[str, int]:
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise Broken(called, f"an entry {_name_of(entry)}", PAIRS)
        request, n = entry
        if not any(request is r for r in self.everybody):
            raise Broken(called, f"an entry ({_name_of(request)}, {_name_of(n)})", PAIRS)
        who, needs = request.request_id, self.needs[request.request_id]
        if type(n) is not int:
            raise Broken(called, f"{who} with {show(n)} tokens", "a whole number of tokens")
        if n < 1:
            hint = "Who gets nothing in this step is left out of the plan."
            raise Broken(called, f"{who} with {n} tokens", "every n at least 1", hint)
        if n > needs:
            hint = "min(what it misses, what is left of the budget)"
            raise Broken(called, f"{who} with {n} tokens", f"at most the {needs} that it misses", hint)
        return who, n

    def _group(self, requests: list) -> str:
        words = []
        for r in requests:
            skipped = f" and was skipped {r.num_skipped_steps} times" if self.skips else ""
            words.append(f"{r.request_id} misses {self.needs[r.request_id]}{skipped}")
        return ", ".join(words) or "nobody"


def write(plan: dict[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in plan.items()) or "nobody"


def random_queues(rng: random.Random) -> Queues:
    """Decodes and unfinished prompts in any order, and prompts that wait, some of them cached in part."""
    kv, running, waiting = SmallKV(), [], []
    for i in range(rng.randint(0, 7)):
        known = rng.randint(2, 30)
        computed = known - 1 if rng.random() < 0.6 else rng.randint(1, known - 1)
        running.append(SmallRequest(f"R{i}", known, computed))
    for i in range(rng.randint(0, 3)):
        waiting.append(SmallRequest(f"W{i}", rng.randint(1, 30)))
        if rng.random() < 0.3:
            kv.cached[f"W{i}"] = rng.randint(0, waiting[-1].num_tokens - 1)
    return Queues(running, waiting, kv)


def _name_of(value: Any) -> str:
    return getattr(value, "request_id", None) or show(value)
