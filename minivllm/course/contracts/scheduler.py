"""4.3 `Scheduler`: 4.2 with `update(plan, sampled)` → [(request, token)] and `abort(request)`.

`update` takes in a step that has run: counts, tokens, and whoever has ended leaves at once. A request that
has ended owns nothing, and its status is FINISHED.
"""

from __future__ import annotations

from .expect import same
from .rules import Rules
from .small_engine import FIRST_TOKEN, World, ends_of, planned

rules = Rules()


@rules.add("request.num_computed_tokens = chunk.start + chunk.num_tokens, for every chunk of the plan.")
def what_was_computed_is_counted(part, rng):
    world = World(part)
    requests = [world.add(prompt) for prompt in (5, 3)]
    world.step()
    same(f"{world.so_far}: num_computed_tokens", [r.num_computed_tokens for r in requests], [5, 3])


@rules.add("sampled[request_id] is a list of tokens; request.append(token) for each.")
def a_sampled_token_joins_its_request(part, rng):
    world = World(part)
    requests = [world.add(prompt) for prompt in (5, 3)]
    world.step()
    want = [FIRST_TOKEN + 5, FIRST_TOKEN + 3]
    same(f"{world.so_far}: last tokens", [r.token_ids[-1] for r in requests], want)
    same(f"{world.so_far}: num_tokens", [r.num_tokens for r in requests], [6, 4])


@rules.add("Return a (request, token) pair for every token that was appended, in the order of the plan.")
def update_returns_the_new_tokens(part, rng):
    world = World(part)
    for prompt in (5, 3):
        world.add(prompt)
    for number in (0, 1):
        got = world.update(world.schedule())
        want = [("A", FIRST_TOKEN + 5 + number), ("B", FIRST_TOKEN + 3 + number)]
        same(f"{world.so_far}: returned", sorted(got), want)


@rules.add("A part of a prompt samples nothing: its id is not in sampled, so use sampled.get(id, []).")
def who_has_not_caught_up_gets_no_token(part, rng):
    world = World(part, plan_step=planned(("A", 3), ("B", 2)))
    first, second = world.add(5), world.add(2)
    got = world.update(world.schedule())
    same(f"{world.so_far}: returned", got, [("B", FIRST_TOKEN + 2)])
    same(f"{world.so_far}: A.num_computed_tokens", first.num_computed_tokens, 3)
    same(f"{world.so_far}: num_tokens", [first.num_tokens, second.num_tokens], [5, 3])
    world.expect_queues("AB", "")


@rules.add("The token that was sampled is what the next step computes: one token from where it stopped.")
def the_next_step_goes_on_from_there(part, rng):
    world = World(part)
    world.add(5)
    world.step()
    for start in (5, 6):
        step = world.schedule()
        world.expect_chunks(step, A=(start, 1))
        world.update(step)


@rules.add("request.append sets finish_reason when it was the last token; then the request leaves running.")
def who_has_all_its_tokens_ends(part, rng):
    world = World(part)
    request = world.add(5, max_tokens=2)
    world.add(3, max_tokens=9)
    world.step()
    world.expect_queues("AB", "")
    got = world.update(world.schedule())
    same(f"{world.so_far}: returned", sorted(got), [("A", FIRST_TOKEN + 6), ("B", FIRST_TOKEN + 4)])
    world.expect_queues("B", "")
    world.expect_ended(request, "length")


@rules.add("self.kv.free(request) as soon as it has ended.")
def who_ends_gives_its_blocks_back(part, rng):
    world = World(part, num_blocks=6)
    world.add(9, max_tokens=1)
    world.add(3, max_tokens=9)
    world.step()
    world.expect_free(5)


@rules.add("A stop token ends a request early. Ask finish_reason after each token, do not count tokens.")
def a_stop_token_ends_it_early(part, rng):
    world = World(part)
    request = world.add(5, max_tokens=9, stop_ids=frozenset({FIRST_TOKEN + 6}))
    world.step()
    world.step()
    world.expect_queues("", "")
    world.expect_ended(request, "stop")
    world.expect_free(64)


@rules.add("No waiting for the batch: the seat is free in the next schedule.")
def the_next_request_comes_in_at_the_next_step(part, rng):
    world = World(part, seats=2)
    for prompt, max_tokens in ((5, 2), (3, 9), (4, 9)):
        world.add(prompt, max_tokens)
    world.step()
    world.step()
    step = world.schedule()
    world.expect_queues("BC", "")
    world.expect_chunks(step, B=(4, 1), C=(0, 4))


@rules.add("The blocks of who ended serve the next one in the next schedule.")
def freed_blocks_are_used_at_the_next_step(part, rng):
    world = World(part, num_blocks=3)
    world.add(9, max_tokens=1)
    world.add(5, max_tokens=2)
    world.step()
    world.expect_chunks(world.schedule(), B=(0, 5))


@rules.add("Do not take out of a list while you go through it: the next one is passed over.")
def several_may_end_in_one_step(part, rng):
    world = World(part)
    for prompt in (5, 3, 4, 2):
        world.add(prompt, max_tokens=1)
    got = world.update(world.schedule())
    same(f"{world.so_far}: who got a token", sorted(name for name, _ in got), list("ABCD"))
    world.expect_queues("", "")
    world.expect_free(64)


@rules.add("self.kv.settle(plan) once in every update, before anything is freed: the step has run.")
def the_kv_manager_hears_that_the_step_has_run(part, rng):
    world = World(part)
    world.add(5, max_tokens=2)
    want = []
    for told in (["give_moves_to", "settle"], ["give_moves_to", "settle", "free A"]):
        world.step()
        want += told
        same(f"{world.so_far}: calls of kv", list(world.kv.told), want)


@rules.add("abort takes a running request out and frees its blocks at once, not in the next step.")
def abort_frees_everything_at_once(part, rng):
    world = World(part, num_blocks=8)
    world.add(9, max_tokens=9)
    request = world.add(7, max_tokens=9)
    world.step()
    world.abort(request)
    world.expect_queues("A", "")
    world.expect_free(5)
    world.expect_ended(request, "abort")
    step = world.schedule()
    world.expect_chunks(step, A=(9, 1))


@rules.add("A request that waits is in another list.")
def who_waits_can_be_aborted(part, rng):
    world = World(part, seats=1)
    requests = [world.add(prompt) for prompt in (5, 3, 4)]
    world.step()
    world.abort(requests[1])
    world.expect_queues("A", "C")
    world.expect_ended(requests[1], "abort")


@rules.add("The engine aborts after a stop string, too, with a reason set: keep it.")
def abort_keeps_a_reason_that_is_there(part, rng):
    world = World(part)
    request = world.add(5)
    world.step()
    request.finish_reason = "stop"
    world.abort(request)
    world.expect_ended(request, "stop")


@rules.add("It may have ended by itself just now: then abort does nothing.")
def aborting_what_has_ended_changes_nothing(part, rng):
    world = World(part)
    request = world.add(5, max_tokens=1)
    world.add(3)
    world.step()
    world.abort(request)
    world.expect_ended(request, "length")
    world.expect_queues("B", "")
    aborted = world.add(4)
    for _ in range(2):
        world.abort(aborted)
    world.expect_queues("B", "")
    same(f"{world.so_far}: blocks freed for", [t for t in world.kv.told if t == "free A"], ["free A"])


@rules.add("A request may be aborted while its step runs: update must pass it over (request.is_finished).")
def who_is_aborted_while_the_step_runs_stays_out(part, rng):
    world = World(part)
    request, _ = world.add(5), world.add(3)
    step = world.schedule()
    world.abort(request)
    got = world.update(step)
    same(f"{world.so_far}: returned", got, [("B", FIRST_TOKEN + 3)])
    same(f"{world.so_far}: A.num_tokens", request.num_tokens, 5)
    same(f"{world.so_far}: A.num_computed_tokens", request.num_computed_tokens, 0)
    world.expect_queues("B", "")
    world.expect_ended(request, "abort")
    world.expect_free(63)


@rules.add("What 4.2 does stays as it is: let the class inherit it.")
def the_rest_is_as_before(part, rng):
    world = World(part, num_blocks=8, seats=2)
    for prompt in (9, 13, 2):
        world.add(prompt, 2)
    step = world.schedule()
    world.expect_chunks(step, A=(0, 9), B=(0, 13))
    world.expect_queues("AB", "C")
    world.update(step)
    world.check()


@rules.add("Seats are never idle while somebody waits. Compare with batch_cost of 4.1, continuous.")
def the_ends_are_those_of_continuous_batching(part, rng):
    for _ in range(2):
        seats = rng.randint(2, 3)
        lengths = [rng.choice([1, 2, rng.randint(1, 8)]) for _ in range(rng.randint(5, 6))]
        want = ends_of(lengths, seats)
        world = World(part, num_blocks=100, seats=seats, budget=200)
        requests = [world.add(rng.randint(1, 9), length) for length in lengths]
        ends = {}
        for number in range(1, max(want) + 1):
            world.step()
            world.check()
            for request in requests:
                if request.is_finished:
                    ends.setdefault(request.request_id, number)
        called = f"{seats} seats, answers of {lengths} tokens: the step in which each ends"
        same(called, [ends.get(request.request_id) for request in requests], want)


@rules.add("Everything that a request owns goes with it, whichever way it ends.")
def nothing_is_left_behind(part, rng):
    for _ in range(2):
        world = World(part, num_blocks=100, seats=3)
        requests = [world.add(rng.randint(1, 12), rng.randint(1, 6)) for _ in range(5)]
        for _ in range(12):
            step = world.schedule()
            if rng.random() < 0.3:
                world.abort(rng.choice(requests))
            world.update(step)
            if rng.random() < 0.3:
                world.abort(rng.choice(requests))
            world.check()
            if all(request.is_finished for request in requests):
                break
        world.run(60)
