"""4.4 `AdmittingScheduler`: 4.3 with a `can_admit(request)` that looks ahead.

A request may come in if the free blocks suffice for all its known tokens, for what the running requests
still miss of theirs, and for a reserve of one block for each running request.
"""

from __future__ import annotations

from functools import partial

from ...scheduler.planner import plan_step as minivllms_plan_step
from .expect import same
from .rules import Rules
from .small_engine import BLOCK, World, ends_of, planned

rules = Rules()


def _asked(world, name: str, want: bool) -> None:
    got = world.scheduler.can_admit(world.named(name))
    free = world.kv.num_free_blocks
    same(f"{world.so_far}: can_admit({name}) with {free} free blocks", got, want)


@rules.add("When nobody runs nothing is promised and nothing is reserved: the whole pool may be used.")
def the_first_may_take_the_whole_pool(part, rng):
    world = World(part, num_blocks=3)
    world.add(12, max_tokens=1)
    _asked(world, "A", True)
    world.expect_chunks(world.schedule(), A=(0, 12))
    world.expect_queues("A", "")


@rules.add("One block for each request that runs, len(self.running): it may need one more before long.")
def a_reserve_is_kept_for_those_who_run(part, rng):
    for runners in (1, 2, 3):
        for num_blocks, want in ((2 * runners, False), (2 * runners + 1, True)):
            world = World(part, num_blocks)
            for _ in range(runners):
                world.add(3)
            world.step()
            _asked(world, world.add(4).request_id, want)


@rules.add("What is missing of a prompt in pieces is promised to it: blocks_missing of each running request.")
def the_rest_of_a_prompt_is_promised(part, rng):
    for num_blocks, want in ((5, False), (6, True)):
        world = World(part, num_blocks, plan_step=planned(("A", 4)))
        world.add(12)
        world.step()
        world.add(8)
        _asked(world, "B", want)


@rules.add("Add up blocks_missing over all who run, not only over the first or the last.")
def every_running_request_has_its_promise(part, rng):
    for num_blocks, want in ((9, False), (10, True)):
        world = World(part, num_blocks, plan_step=planned(("A", 4), ("B", 2)))
        world.add(9)
        world.add(7)
        world.step()
        world.add(9)
        world.expect_queues("AB", "C")
        _asked(world, "C", want)


@rules.add("A decode whose next token begins a new block misses that block, too.")
def a_decode_is_promised_its_next_block(part, rng):
    for num_blocks, want in ((4, False), (5, True)):
        world = World(part, num_blocks)
        world.add(4)
        world.step()
        world.add(8)
        _asked(world, "B", want)


@rules.add("All known tokens count, and only those: nobody knows yet how long the answer gets.")
def the_answer_that_is_still_to_come_is_not_counted(part, rng):
    world = World(part, num_blocks=20)
    world.add(3)
    world.step()
    world.add(8, max_tokens=60)
    _asked(world, "B", True)


@rules.add("can_admit only asks. It opens no table, takes no block, and moves nobody.")
def asking_changes_nothing(part, rng):
    world = World(part, num_blocks=6, seats=1)
    world.add(5)
    world.add(9)
    world.step()
    for _ in range(3):
        world.scheduler.can_admit(world.named("B"))
    world.expect_queues("A", "B")
    world.expect_free(4)
    same(f"{world.so_far}: who has a table", sorted(world.kv.tables), ["A"])


@rules.add("schedule asks self.can_admit for whoever is first, and stops there: nobody overtakes.")
def who_is_refused_holds_the_queue(part, rng):
    world = World(part, num_blocks=7)
    for prompt in (9, 13, 1):
        world.add(prompt)
    world.expect_chunks(world.schedule(), A=(0, 9))
    world.expect_queues("A", "BC")


@rules.add("Promise the rest, or two half prompts wait for each other's blocks for ever.")
def prompts_in_pieces_all_get_through(part, rng):
    for _ in range(3):
        num_blocks, in_pieces = rng.randint(6, 9), partial(minivllms_plan_step, max_chunk=rng.randint(2, 5))
        world = World(part, num_blocks, seats=4, plan_step=in_pieces)
        for _ in range(4):
            world.add(rng.randint(4, 4 * BLOCK + 3), max_tokens=1)
        world.run(200)


@rules.add("update and abort are inherited; a wide pool changes nothing about who ends when.")
def the_rest_is_as_before(part, rng):
    for _ in range(2):
        seats, lengths = rng.randint(1, 3), [rng.randint(1, 5) for _ in range(4)]
        want = max(ends_of(lengths, seats))
        world = World(part, num_blocks=100, seats=seats, budget=200)
        for length in lengths:
            world.add(rng.randint(1, 9), length)
        called = f"{seats} seats, answers of {lengths} tokens: steps"
        same(called, len(world.run(100)), want)
    world = World(part, num_blocks=20)
    request = world.add(9)
    world.step()
    world.abort(request)
    world.expect_queues("", "")
    world.expect_free(20)
