"""4.5 `PreemptingScheduler`: 4.4 that takes blocks back when there are none.

The victim is the last in `running` that has no chunk in this plan yet; that may be the request itself,
which then gets nothing. A victim loses its blocks and all that was computed, keeps its tokens, and waits
in order of arrival.
"""

from __future__ import annotations

from ...request import Status
from .expect import same
from .rules import Broken, Rules
from .small_engine import BLOCK, FIRST_TOKEN, World, ends_of, planned

rules = Rules()


def _full(part, prompts: list[int], num_blocks: int, *wishes: tuple[str, int]) -> World:
    """All prompts computed, and as many blocks as they fill. Later steps follow `wishes`, if any."""
    plans = [planned(*((chr(65 + i), n) for i, n in enumerate(prompts)))]

    def plan_step(running, waiting, budget, kv):
        return plans[-1](running, waiting, budget, kv)

    spare = len(prompts) * (len(prompts) + 1)  # so that admission lets all of them in
    world = World(part, num_blocks + spare, seats=9, plan_step=plan_step if wishes else None)
    for prompt in prompts:
        world.add(prompt, max_tokens=9)
    world.step()
    world.kv.pool.allocate(spare)
    world.story[0] = f"{num_blocks} blocks of {BLOCK}, max_num_seqs 9"
    world.tell(f"all run; {world.kv.num_free_blocks} blocks are free")
    plans.append(planned(*wishes))
    return world


def _lost(world, step, names: str, tokens: int) -> None:
    same(f"{world.so_far}: plan.preempted", step.preempted, list(names))
    same(f"{world.so_far}: plan.num_lost_tokens", step.num_lost_tokens, tokens)


@rules.add("Only when reserve returns None: while there are blocks nobody has to go.")
def nobody_is_preempted_while_there_are_blocks(part, rng):
    world = _full(part, [4, 3, 4], 5)
    step = world.schedule()
    world.expect_queues("ABC", "")
    world.expect_chunks(step, A=(4, 1), B=(3, 1), C=(4, 1))
    _lost(world, step, "", 0)


@rules.add("The last in running gives its blocks up; then reserve is asked again.")
def the_latest_makes_room(part, rng):
    world = _full(part, [4, 3], 2)
    step = world.schedule()
    world.expect_chunks(step, A=(4, 1))
    world.expect_queues("A", "B")
    world.expect_free(0)


@rules.add("Write it into the plan: its id to plan.preempted, what it had computed to plan.num_lost_tokens.")
def the_plan_says_who_was_preempted_and_what_is_lost(part, rng):
    world = _full(part, [4, 7], 3)
    _lost(world, world.schedule(), "B", 7)


@rules.add("A victim waits: status WAITING, num_computed_tokens 0, and one more in num_preemptions.")
def a_victim_starts_again_from_nothing(part, rng):
    world = _full(part, [4, 7], 3)
    world.schedule()
    victim = world.named("B")
    same(f"{world.so_far}: B.num_computed_tokens", victim.num_computed_tokens, 0)
    same(f"{world.so_far}: B.num_preemptions", victim.num_preemptions, 1)
    same(f"{world.so_far}: A.num_preemptions", world.named("A").num_preemptions, 0)
    if victim.status is not Status.WAITING:
        raise Broken(f"{world.so_far}: B.status", str(victim.status), str(Status.WAITING))


@rules.add("Its tokens, prompt and answer so far, stay: only keys and values are lost.")
def a_victim_keeps_its_tokens(part, rng):
    world = _full(part, [4, 7], 3)
    before = list(world.named("B").token_ids)
    world.schedule()
    same(f"{world.so_far}: tokens of B", list(world.named("B").token_ids), before)
    if world.named("B").token_ids[-1] != FIRST_TOKEN + 7:
        raise Broken(f"{world.so_far}: last token of B", "another one", "the one that was sampled")


@rules.add("When there is room again it computes all it knows, answer included, and goes on.")
def a_victim_comes_back_and_goes_on(part, rng):
    world = World(part, num_blocks=4)
    world.add(4, max_tokens=3)
    world.add(6, max_tokens=7)
    story = [world.step() for _ in range(5)]
    preempted = [step.preempted for step in story]
    world.run(40)
    victim = world.named("B")
    want = [FIRST_TOKEN + 6 + i for i in range(7)]
    same(f"4 blocks; A (4 + 3), B (6 + 7), preempted {preempted}: B's answer", victim.output_token_ids, want)


@rules.add("No more victims than needed: ask reserve again after each.")
def no_more_than_needed_are_preempted(part, rng):
    world = _full(part, [4, 3, 3, 3], 4)
    step = world.schedule()
    _lost(world, step, "D", 3)
    world.expect_queues("ABC", "D")
    world.expect_chunks(step, A=(4, 1), B=(3, 1), C=(3, 1))


@rules.add("One victim may not be enough: while, not if.")
def several_may_have_to_go(part, rng):
    world = _full(part, [4, 3, 3, 3], 4, ("A", 9))
    world.named("A").token_ids.extend([7] * 8)  # nine tokens to compute: three blocks more
    step = world.schedule()
    world.expect_chunks(step, A=(4, 9))
    same(f"{world.so_far}: running", world.queues()[0], ["A"])
    same(f"{world.so_far}: preempted, sorted", sorted(step.preempted), list("BCD"))


@rules.add("Who has a chunk in this plan is no victim of it: look at plan.chunks.")
def whoever_is_in_the_plan_is_safe(part, rng):
    world = _full(part, [4, 3, 3], 3, ("C", 1), ("A", 1), ("B", 1))
    step = world.schedule()
    world.expect_chunks(step, A=(4, 1), C=(3, 1))
    world.expect_queues("AC", "B")
    _lost(world, step, "B", 3)


@rules.add("If it is itself the last one outside the plan, it gives up its own blocks and gets no chunk.")
def a_request_may_be_its_own_victim(part, rng):
    world = _full(part, [3, 4], 2, ("A", 1), ("B", 1))
    step = world.schedule()
    world.expect_chunks(step, A=(3, 1))
    world.expect_queues("A", "B")
    _lost(world, step, "B", 4)
    world = _full(part, [4, 3], 2, ("B", 1), ("A", 1))
    step = world.schedule()
    world.expect_chunks(step, B=(3, 1))
    world.expect_queues("B", "A")
    _lost(world, step, "A", 4)


@rules.add("Back among the waiting in order of arrival: before all who came later.")
def victims_wait_in_order_of_arrival(part, rng):
    world = _full(part, [4, 3, 3, 3], 4, ("A", 9))
    world.named("A").token_ids.extend([7] * 8)
    world.add(2)
    world.schedule()
    world.expect_queues("A", "BCDE")
    world = _full(part, [4, 3, 3], 3, ("C", 1), ("A", 9))
    world.named("A").token_ids.extend([7] * 8)
    world.add(2)
    world.schedule()
    world.expect_queues("C", "ABD")


@rules.add("Whoever waits behind a victim stays behind it, however small: only waiting[0] may come in.")
def nobody_comes_in_ahead_of_a_victim(part, rng):
    world = _full(part, [4, 11], 4, ("A", 1), ("B", 1), ("C", 1))
    world.add(1)
    step = world.schedule()
    world.expect_chunks(step, A=(4, 1))
    world.expect_queues("A", "BC")


@rules.add("A victim that plan_step had given tokens gets none in this step.")
def a_victim_of_this_step_is_not_in_its_plan(part, rng):
    world = _full(part, [4, 3, 3], 3, ("A", 1), ("C", 1), ("B", 1))
    step = world.schedule()
    world.expect_chunks(step, A=(4, 1), B=(3, 1))
    world.expect_queues("AB", "C")


@rules.add("The engine's loop is inherited: step, abort and the ends are as before where memory is wide.")
def the_rest_is_as_before(part, rng):
    for _ in range(2):
        seats, lengths = rng.randint(1, 3), [rng.randint(1, 5) for _ in range(4)]
        want = max(ends_of(lengths, seats))
        world = World(part, num_blocks=100, seats=seats, budget=200)
        for length in lengths:
            world.add(rng.randint(1, 9), length)
        same(f"{seats} seats, answers of {lengths} tokens: steps", len(world.run(100)), want)
    world = _full(part, [4, 7], 3)
    world.schedule()
    world.abort(world.named("B"))
    world.expect_queues("A", "")
    world.expect_ended(world.named("B"), "abort")


@rules.add("Somebody goes on in every step, and the first who came is never the loser for long.")
def a_pool_for_one_and_a_half_requests_still_serves_all(part, rng):
    for _ in range(2):
        lengths = [(rng.randint(3, 9), rng.randint(3, 9)) for _ in range(4)]
        most = max(-(-(p + n - 1) // 4) for p, n in lengths)
        world = World(part, num_blocks=most + most // 2, seats=rng.randint(2, 4), budget=rng.randint(3, 12))
        requests = [world.add(p, n) for p, n in lengths]
        world.run(400)
        for request in requests:
            want = [FIRST_TOKEN + request.num_prompt_tokens + i for i in range(request.max_tokens)]
            same(f"{world.story[0]}: answer of {request.request_id}", request.output_token_ids, want)
