"""5.2 `plan_step(running, waiting, budget, kv)` → [(request, n)], together at most `budget` tokens.

Running requests that miss one token come first, then the other running ones, then the waiting ones, each
with what it misses or what is left. With more decodes than budget it is free which of them are served.
"""

from __future__ import annotations

from .rules import Broken, Rules
from .small_queues import Queues, SmallKV, SmallRequest, decode, decodes, random_queues, write

rules = Rules()


def _check(part, queues: Queues, budget: int) -> None:
    want = queues.greedy(budget)
    called, plan = queues.plan(part, "plan_step", budget)
    if len(queues.decodes) > budget:
        missing = [name for name in queues.prompts if name in plan]
        if missing or len(plan) != budget:
            raise Broken(called, write(plan), f"{budget} of the {len(queues.decodes)} decodes, 1 token each")
    elif plan != want:
        raise Broken(called, write(plan), write(want))


@rules.add("A running request that misses one token gets that one: append((request, 1)).")
def every_decode_gets_its_token(part, rng):
    _check(part, Queues(decodes(1), []), 8)
    _check(part, Queues(decodes(3), []), 8)


@rules.add("Decodes before prompts: go through running twice, first for those that miss one token.")
def decodes_come_first_wherever_they_stand(part, rng):
    prompt = SmallRequest("P", 40, 10)
    _check(part, Queues([prompt, *decodes(3)], []), 8)
    _check(part, Queues([decode("D1"), prompt, decode("D2")], []), 6)


@rules.add("After the decodes, a prompt gets what is left: min(what it misses, budget left).")
def a_prompt_gets_what_the_decodes_leave(part, rng):
    _check(part, Queues([*decodes(3), SmallRequest("P", 40, 10)], []), 8)
    _check(part, Queues(decodes(2), [SmallRequest("P", 40)]), 8)


@rules.add("A prompt that fits into what is left is computed to its end: n is what it misses, not more.")
def a_short_prompt_gets_what_it_misses(part, rng):
    _check(part, Queues([SmallRequest("P", 12, 9)], []), 8)
    _check(part, Queues([*decodes(2), SmallRequest("P", 12, 9)], []), 50)
    _check(part, Queues([], [SmallRequest("P", 7)]), 7)


@rules.add("Take n off the budget and go on with the next request until nothing is left.")
def what_one_prompt_leaves_goes_to_the_next(part, rng):
    _check(part, Queues(decodes(1), [SmallRequest("P", 5), SmallRequest("Q", 6), SmallRequest("R", 9)]), 16)
    _check(part, Queues([SmallRequest("P", 9, 4), SmallRequest("Q", 30, 2)], []), 20)


@rules.add("Who gets nothing in this step is not in the plan. Stop when the budget is 0.")
def nobody_is_there_with_no_tokens(part, rng):
    _check(part, Queues(decodes(4), [SmallRequest("P", 9)]), 4)
    _check(part, Queues([*decodes(2), SmallRequest("P", 9, 3), SmallRequest("Q", 9, 2)], []), 8)


@rules.add("Whoever runs holds memory already: running prompts before waiting ones.")
def running_prompts_come_before_waiting_ones(part, rng):
    _check(part, Queues([SmallRequest("P", 40, 30)], [SmallRequest("Q", 5)]), 8)
    _check(part, Queues([SmallRequest("P", 40, 30)], [SmallRequest("Q", 50)]), 16)


@rules.add("Decodes take from the budget, too. With more of them than budget, some wait, and so do prompts.")
def decodes_keep_to_the_budget(part, rng):
    _check(part, Queues(decodes(6), []), 4)
    _check(part, Queues([*decodes(6), SmallRequest("P", 9, 3)], [SmallRequest("Q", 9)]), 1)


@rules.add(
    "Only running requests decode. A waiting one that misses one token (the rest is cached) waits its turn."
)
def a_waiting_request_is_no_decode(part, rng):
    kv = SmallKV()
    kv.cached["Q"] = 8
    _check(part, Queues(decodes(1), [SmallRequest("P", 30), SmallRequest("Q", 9)], kv), 10)
    _check(part, Queues([SmallRequest("P", 30, 2)], [SmallRequest("Q", 9)], kv), 10)


@rules.add("Ask kv.num_missing_tokens(request): a part of a waiting prompt may be cached already.")
def kv_says_how_much_is_missing(part, rng):
    kv = SmallKV()
    kv.cached["P"] = 16
    _check(part, Queues(decodes(1), [SmallRequest("P", 20), SmallRequest("Q", 9)], kv), 10)


@rules.add(
    "A request that was preempted computes its output tokens again: it misses many, so it is a prompt."
)
def a_request_that_starts_again_is_a_prompt(part, rng):
    again = SmallRequest("A", 20, 0)
    again.num_prompt_tokens = 4
    _check(part, Queues([again, *decodes(2)], []), 8)


@rules.add("Nothing to do, nothing in the plan: an empty list.")
def with_nobody_there_the_plan_is_empty(part, rng):
    _check(part, Queues([], []), 8)


@rules.add("The lists are the scheduler's. Make your own; do not pop, sort or append to them.")
def the_queues_are_left_alone(part, rng):
    running, waiting = [SmallRequest("P", 40, 10), *decodes(2)], [SmallRequest("Q", 9)]
    names = [r.request_id for r in running], [r.request_id for r in waiting]
    called = Queues(running, waiting).called("plan_step", 50)
    part(running, waiting, 50, SmallKV())
    after = [r.request_id for r in running], [r.request_id for r in waiting]
    if after != names:
        raise Broken(called, f"running and waiting afterwards: {after}", f"as they were: {names}")


@rules.add("Decodes, running prompts, waiting prompts; each min(what it misses, what is left).")
def it_holds_for_any_mixture(part, rng):
    for _ in range(60):
        _check(part, random_queues(rng), rng.randint(1, 40))
