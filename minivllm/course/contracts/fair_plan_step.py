"""5.4 `fair_plan_step(running, waiting, budget, kv)`: as 5.2, and nobody waits for ever.

It differs where there are more decodes than budget: those that were skipped most often come first, and the
first prompt comes before all of them once it was skipped `PATIENCE` times in a row. The rules count skipped
steps as the engine's scheduler does: for whoever runs, and for the first that waits.
"""

from __future__ import annotations

from .rules import Broken, Rules
from .small_queues import Queues, SmallKV, SmallRequest, decode, decodes, random_queues, write

rules = Rules()
PATIENCE = 7
NAME = "fair_plan_step"


def _plan(part, running: list, waiting: list, budget: int) -> tuple[str, dict[str, int]]:
    return Queues(running, waiting, skips=True).plan(part, NAME, budget)


def _serve(part, running: list, waiting: list, budget: int, steps: int) -> list[dict[str, int]]:
    """The plans of so many steps. Decodes stay decodes; a prompt that was served runs, until it is done."""
    history = []
    running, waiting, lent = list(running), list(waiting), ([], [])
    for _ in range(steps):
        _, plan = Queues(running, waiting, skips=True).plan(part, NAME, budget, lent)
        history.append(plan)
        for r in [*running, *waiting[:1]]:
            r.num_skipped_steps = 0 if r.request_id in plan else r.num_skipped_steps + 1
        for r in running + waiting:
            if r.request_id in plan and not r.request_id.startswith("D"):
                r.num_computed_tokens += plan[r.request_id]
        running += [r for r in waiting if r.request_id in plan]
        running = [r for r in running if r.num_computed_tokens < r.num_tokens]
        waiting = [r for r in waiting if r.request_id not in plan]
    return history


def _longest_wait(history: list[dict[str, int]], name: str) -> int:
    """Most steps from one in which it was served to the next, the beginning and the end included."""
    served = [-1, *(i for i, plan in enumerate(history) if name in plan), len(history)]
    return max(b - a for a, b in zip(served, served[1:], strict=False))


@rules.add("While budget ≥ decodes, return what your plan_step returns, whatever was skipped before.")
def with_budget_enough_it_is_plan_step(part, rng):
    for _ in range(30):
        queues = random_queues(rng)
        for r in queues.everybody:
            r.num_skipped_steps = rng.randint(0, 9)
        queues.skips = True
        budget = max(1, len(queues.decodes)) + rng.choice([0, 0, 1, 20])
        want = queues.greedy(budget)
        called, plan = queues.plan(part, NAME, budget)
        if plan != want:
            raise Broken(called, write(plan), write(want))


@rules.add("Sort the decodes by num_skipped_steps, largest first: sorted(…, reverse=True).")
def the_longest_unserved_decode_comes_first(part, rng):
    for budget, skips in ((2, [0, 3, 1, 2]), (1, [1, 0, 2]), (3, [5, 1, 0, 4, 6])):
        running = [decode(f"D{i}", skipped) for i, skipped in enumerate(skips, 1)]
        most = sorted(running, key=lambda r: -r.num_skipped_steps)[:budget]
        want = {r.request_id for r in most}
        called, plan = _plan(part, running, [], budget)
        if set(plan) != want:
            raise Broken(called, write(plan), f"{', '.join(sorted(want))}, 1 token each")


@rules.add("A decode that was just served goes to the end of the row: nobody waits longer than one round.")
def decodes_take_turns(part, rng):
    for number, budget in ((5, 2), (7, 3), (3, 1), (9, 4)):
        history = _serve(part, decodes(number), [], budget, 12)
        rounds = -(-number // budget)
        for i in range(1, number + 1):
            waited = _longest_wait(history, f"D{i}")
            if waited > rounds:
                called = f"{NAME}, {number} decodes, budget {budget}, 12 steps"
                raise Broken(called, f"D{i} goes {waited} steps for a token", f"at most {rounds} steps")


@rules.add("Compare with >=: skipped 7 times in a row, it comes in the eighth step, before any decode.")
def a_prompt_has_its_turn_after_seven_skipped_steps(part, rng):
    for where in ("running", "waiting"):
        for skipped, comes in ((PATIENCE - 1, False), (PATIENCE, True), (PATIENCE + 1, True)):
            prompt = SmallRequest("P", 40, 10 if where == "running" else 0, skipped)
            running = [*decodes(6), prompt] if where == "running" else decodes(6)
            called, plan = _plan(part, running, [prompt] if where == "waiting" else [], 4)
            if ("P" in plan) != comes:
                raise Broken(called, write(plan), "P first" if comes else "decodes only, 1 token each")
            if comes and plan["P"] != 4:
                raise Broken(called, write(plan), "P 4: its turn is a whole budget")


@rules.add("The first prompt counts alone: the first running one, or the first waiting one if none runs.")
def running_prompts_have_the_turn_before_waiting_ones(part, rng):
    for first, second, want in ((7, 7, {"P": 3}), (7, 0, {"P": 3}), (0, 9, {"D1": 1, "D2": 1, "D3": 1})):
        older, newer = SmallRequest("P", 40, 10, first), SmallRequest("Q", 40, 0, second)
        running = [older, *decodes(5)]
        for i, r in enumerate(running[1:]):
            r.num_skipped_steps = 4 - i
        called, plan = _plan(part, running, [newer], 3)
        if plan != want:
            raise Broken(called, write(plan), write(want))


@rules.add("A prompt's last tokens may leave some budget: give it to the others.")
def nothing_is_left_over(part, rng):
    for needs, budget in ((2, 4), (1, 3), (3, 4)):
        prompt = SmallRequest("P", 10, 0, PATIENCE)
        prompt.num_computed_tokens = 10 - needs
        waiting = [prompt] if needs == 1 else []
        running = decodes(6) if waiting else [*decodes(6), prompt]
        called, plan = _plan(part, running, waiting, budget)
        if plan.get("P") != needs or sum(plan.values()) != budget:
            raise Broken(called, write(plan), f"P {needs}, and the other {budget - needs} tokens given away")


@rules.add("Every eighth step is the prompt's, all others are the decodes'.")
def a_prompt_is_served_every_eighth_step(part, rng):
    for where in ("running", "waiting"):
        prompt = SmallRequest("P", 500, 10 if where == "running" else 0)
        running = [*decodes(6), prompt] if where == "running" else decodes(6)
        history = _serve(part, running, [prompt] if where == "waiting" else [], 4, 24)
        served = [i for i, plan in enumerate(history) if "P" in plan]
        want = list(range(PATIENCE, 24, PATIENCE + 1))
        if served != want:
            called = f"{NAME}, 6 decodes and a {where} prompt P, budget 4, 24 steps from step 0"
            raise Broken(called, f"P in the steps {served}", f"in the steps {want}")


@rules.add("The bound: one round of the decodes, and one step more for a prompt's turn.")
def nobody_waits_longer_than_the_bound(part, rng):
    for _ in range(4):
        number = rng.randint(3, 9)
        budget = rng.randint(2, number - 1)
        waiting = [SmallRequest("P", budget * rng.randint(1, 6))]  # whole turns, so it is never a decode
        history = _serve(part, decodes(number), waiting, budget, 24)
        bound = -(-number // budget) + 1
        for i in range(1, number + 1):
            waited = _longest_wait(history, f"D{i}")
            if waited > bound:
                called = f"{NAME}, {number} decodes, a prompt P waiting, budget {budget}, 24 steps"
                raise Broken(called, f"D{i} goes {waited} steps for a token", f"at most {bound} steps")


@rules.add("sorted makes a new list; .sort() would put the scheduler's own list out of order.")
def the_queues_are_left_alone(part, rng):
    running = [decode("D1"), SmallRequest("P", 40, 10, PATIENCE), decode("D2", 3), decode("D3", 1)]
    waiting = [SmallRequest("Q", 9)]
    names = [r.request_id for r in running], [r.request_id for r in waiting]
    called = Queues(running, waiting, skips=True).called(NAME, 2)
    for skipped in (PATIENCE, 0):
        running[1].num_skipped_steps = skipped
        part(running, waiting, 2, SmallKV())
        after = [r.request_id for r in running], [r.request_id for r in waiting]
        if after != names:
            raise Broken(called, f"running and waiting afterwards: {after}", f"as they were: {names}")
