"""4.2 `StepScheduler(config, kv, plan_step)`: `add(request)`, `can_admit(request)`, `schedule()` → StepPlan,
and the lists `waiting` and `running`.

Rules play the part of `update`, which comes in 4.3; nobody ends here. What `plan_step` and `kv` do is given.
"""

from __future__ import annotations

from ...request import Status
from .expect import refuses, same, show
from .rules import Broken, Rules
from .small_engine import BLOCK, World, planned

rules = Rules()


@rules.add("A step may be empty: return a StepPlan without chunks.")
def nothing_to_do_is_an_empty_plan(part, rng):
    world = World(part)
    world.expect_queues("", "")
    world.expect_chunks(world.schedule())
    world.expect_queues("", "")


@rules.add("add puts a request at the end of waiting, and nothing else.")
def a_new_request_waits_behind_the_others(part, rng):
    world = World(part)
    for prompt in (5, 3, 9):
        world.add(prompt)
    world.expect_queues("", "ABC")
    world.expect_free(64)
    world.schedule()  # add is given; without a schedule it earns nothing


@rules.add("refuse_what_never_fits(request, self.config.max_model_len, self.kv) before it is queued.")
def what_can_never_fit_is_refused_by_add(part, rng):
    world = World(part, num_blocks=3)
    refuses("3 blocks of 4: add of 10 + 4 tokens", lambda: world.scheduler.add(world.request(10, 4)))
    refuses("max_model_len 200: add of 190 + 20", lambda: world.scheduler.add(world.request(190, 20)))
    world.expect_queues("", "")
    world.add(10, 3)
    world.expect_queues("", "A")
    world.schedule()


@rules.add("Who has a seat and room leaves waiting for running, with as many tokens as plan_step says.")
def who_waits_is_let_in(part, rng):
    world = World(part)
    world.add(5)
    world.add(3)
    step = world.schedule()
    world.expect_queues("AB", "")
    world.expect_chunks(step, A=(0, 5), B=(0, 3))


@rules.add("Whoever comes in gets request.status = Status.RUNNING.")
def who_is_let_in_has_the_status_running(part, rng):
    world = World(part)
    requests = world.add(5), world.add(3)
    world.schedule()
    for request in requests:
        if request.status is not Status.RUNNING:
            called = f"{world.so_far}: {request.request_id}.status"
            raise Broken(called, str(request.status), str(Status.RUNNING))


@rules.add("Let plan_step decide: self.plan_step(self.running, candidates, budget, self.kv), in this order.")
def the_plan_step_that_is_given_is_asked(part, rng):
    asked = []

    def plan_step(running, waiting, budget, kv):
        names = [r.request_id for r in running], [r.request_id for r in waiting]
        asked.append((*names, budget, kv is world.kv))
        return [(r, 2) for r in [*running, *waiting]][:2]

    world = World(part, seats=2, budget=9, plan_step=plan_step)
    for prompt in (2, 2, 6):
        world.add(prompt)
    world.take_in(world.schedule())
    world.schedule()
    want = [["A", "B"], 9, True]
    called = f"{world.so_far}: what plan_step was asked"
    same(f"{called}: running, budget, is it your kv", [asked[-1][0], *asked[-1][2:]], want)
    if len(asked) != 2 or asked[0][:2] not in (([], ["A", "B"]), ([], ["A", "B", "C"])):
        raise Broken(called, show(asked), "running [], then [A, B]; waiting in order; once each step")


@rules.add("n is what plan_step says, be it less than the prompt: the budget is its affair.")
def each_gets_the_tokens_that_plan_step_says(part, rng):
    world = World(part, plan_step=planned(("A", 2), ("B", 3)))
    world.add(9)
    world.add(7)
    world.expect_chunks(world.schedule(), A=(0, 2), B=(0, 3))


@rules.add("Who is not in plan_step's list gets nothing in this step.")
def who_has_no_wish_gets_nothing(part, rng):
    world = World(part, plan_step=planned(("A", 1), ("B", 4)))
    world.add(9)
    world.take_in(world.schedule())
    world.add(4)
    world.add(4)
    world.take_in(world.schedule())
    world.expect_queues("AB", "C")


@rules.add("start is what self.kv.open(request) returns: the number of tokens that are in the cache already.")
def a_chunk_starts_behind_what_is_cached(part, rng):
    world = World(part, plan_step=planned(("A", 6)))
    world.kv.cached["A"] = 8
    world.add(14)
    step = world.schedule()
    world.expect_chunks(step, A=(8, 6))
    world.take_in(step)
    later = World(part, plan_step=planned(("A", 3)))
    later.add(9)
    later.take_in(later.schedule())
    later.expect_chunks(later.schedule(), A=(3, 3))


@rules.add("self.kv.reserve(request, start + n): blocks for this step's tokens and no more.")
def blocks_are_taken_at_the_last_moment(part, rng):
    world = World(part, num_blocks=10, plan_step=planned(("A", 5)))
    world.add(18)
    world.take_in(world.schedule())
    world.expect_free(8)
    world.take_in(world.schedule())
    world.expect_free(7)


@rules.add("No more than max_num_seqs run: cut the candidates at max_num_seqs − len(running).")
def there_are_no_more_running_than_seats(part, rng):
    world = World(part, seats=2)
    for prompt in (5, 3, 4, 2):
        world.add(prompt)
    for _ in range(3):
        step = world.schedule()
        world.expect_queues("AB", "CD")
        same(f"{world.so_far}: who is in the plan", sorted(step.chunks), ["A", "B"])
        world.take_in(step)


@rules.add("can_admit compares the blocks that are missing for all its tokens with the free ones.")
def who_finds_no_room_stays_outside(part, rng):
    world = World(part, num_blocks=4)
    world.add(9)
    world.add(5)
    world.expect_chunks(world.schedule(), A=(0, 9))
    world.expect_queues("A", "B")
    same(f"{world.so_far}: can_admit(B)", world.scheduler.can_admit(world.requests[1]), False)


@rules.add("Exactly enough is enough: <=.")
def room_may_be_used_up(part, rng):
    world = World(part, num_blocks=4)
    world.add(9)
    world.add(4)
    world.expect_chunks(world.schedule(), A=(0, 9), B=(0, 4))
    world.expect_free(0)


@rules.add("Only waiting[0] may come in: nobody overtakes, or a large request would wait for ever.")
def nobody_overtakes(part, rng):
    world = World(part, num_blocks=5)
    for prompt in (9, 12, 1):
        world.add(prompt)
    world.expect_chunks(world.schedule(), A=(0, 9))
    world.expect_queues("A", "BC")
    world = World(part, plan_step=planned(("B", 4)))
    world.add(4)
    world.add(4)
    world.expect_chunks(world.schedule())
    world.expect_queues("", "AB")


@rules.add("Who is refused is skipped; those after it in plan_step's list may be running, and go on.")
def a_refused_request_does_not_stop_those_who_run(part, rng):
    world = World(part, num_blocks=4, plan_step=planned(("B", 9), ("A", 1)))
    world.add(3)
    world.take_in(world.schedule())
    world.take_in(world.schedule())
    world.add(13, max_tokens=3)
    step = world.schedule()
    world.expect_queues("A", "B")
    world.expect_chunks(step, A=(2, 1))


@rules.add("num_computed_tokens changes in update, when the step has run. schedule only plans.")
def schedule_counts_nothing_as_computed(part, rng):
    world = World(part)
    request = world.add(5)
    world.schedule()
    same(f"{world.so_far}: A.num_computed_tokens", request.num_computed_tokens, 0)
    same(f"{world.so_far}: A.num_tokens", request.num_tokens, 5)


@rules.add("Whoever comes in leaves waiting: pop it from one list, append it to the other.")
def nobody_is_let_in_twice(part, rng):
    world = World(part)
    world.add(5)
    world.take_in(world.schedule())
    for start in (5, 6, 7):
        step = world.schedule()
        world.expect_queues("A", "")
        world.expect_chunks(step, A=(start, 1))
        world.take_in(step)


@rules.add("Without a block there is no chunk: reserve returns None, and the request goes on later.")
def who_finds_no_block_is_left_out_of_the_plan(part, rng):
    world = World(part, num_blocks=2)
    world.add(4)
    world.add(3)
    world.take_in(world.schedule())
    step = world.schedule()
    world.expect_chunks(step, B=(3, 1))
    world.expect_queues("AB", "")
    world.take_in(step)
    world.expect_chunks(world.schedule())
    world.expect_queues("AB", "")


@rules.add("self.kv.give_moves_to(plan), once, when the plan is complete: copies of blocks go with it.")
def the_plan_takes_the_copies_along(part, rng):
    world = World(part)
    for prompt in (5, 3):
        world.add(prompt)
    for number in (1, 2):
        step = world.schedule()
        same(f"{world.so_far}: calls of give_moves_to", world.kv.told.count("give_moves_to"), number)
        same(f"{world.so_far}: chunks in the plan by then", world.kv.num_chunks_then, len(step.chunks))
        world.take_in(step)


@rules.add("Make the lists in __init__, on self.")
def two_schedulers_share_nothing(part, rng):
    first, second = World(part), World(part)
    first.add(5)
    first.schedule()
    second.expect_queues("", "")
    second.add(3)
    first.expect_queues("A", "")


def _by_hand(prompts: list[int], seats: int, num_blocks: int, num_steps: int) -> list[dict[str, tuple]]:
    """The chunks of each step: {name: (start, n)}."""
    waiting, running, free, steps = list(range(len(prompts))), [], num_blocks, []
    for _ in range(num_steps):
        chunks, room = {}, seats - len(running)
        for state in running:
            extra = state["computed"] // BLOCK + 1 - state["blocks"]
            if extra <= free:
                free -= extra
                state["blocks"] += extra
                chunks[state["name"]] = (state["computed"], 1)
                state["computed"] += 1
        while waiting and room and -(-prompts[waiting[0]] // BLOCK) <= free:
            number = waiting.pop(0)
            blocks, room = -(-prompts[number] // BLOCK), room - 1
            free -= blocks
            running.append({"name": chr(65 + number), "computed": prompts[number], "blocks": blocks})
            chunks[chr(65 + number)] = (0, prompts[number])
        steps.append(chunks)
    return steps


@rules.add("Play it through by hand: free blocks, seats, and who is first.")
def any_queue_is_served_in_order(part, rng):
    for _ in range(4):
        prompts = [rng.randint(1, 14) for _ in range(rng.randint(1, 7))]
        seats, num_blocks = rng.randint(1, 5), rng.randint(6, 14)
        want = _by_hand(prompts, seats, num_blocks, 7)
        world = World(part, num_blocks, seats, budget=200)
        for prompt in prompts:
            world.add(prompt)
        for chunks in want:
            step = world.schedule()
            world.expect_chunks(step, **dict(sorted(chunks.items())))
            world.take_in(step)
            world.check()
