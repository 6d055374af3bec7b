"""4.1 `batch_cost(lengths, num_slots, continuous=False)` → (steps, idle slot-steps, step of each end).

Request i takes a slot for lengths[i] steps, in the order of the list. Static: a batch of `num_slots` starts
when the batch before it has ended. Continuous: a slot that is free is taken in the next step.
"""

from __future__ import annotations

from .expect import show
from .rules import Broken, Rules
from .small_engine import ends_of

rules = Rules()
WHAT = ("steps", "idle slot-steps", "the ends")


def _want(lengths: list[int], num_slots: int, continuous: bool) -> tuple[int, int, list[int]]:
    """Step by step."""
    if continuous:
        ends = ends_of(lengths, num_slots)
    else:
        ends, start = [], 0
        for first in range(0, len(lengths), num_slots):
            batch = lengths[first : first + num_slots]
            ends += [start + length for length in batch]
            start += max(batch)
    steps = max(ends, default=0)
    return steps, steps * num_slots - sum(lengths), ends


def _expect(part, lengths, num_slots, continuous, what=WHAT, want=None) -> None:
    want = want or _want(lengths, num_slots, continuous)
    called = f"batch_cost({show(lengths)}, {num_slots}, continuous={continuous})"
    got = part(list(lengths), num_slots, continuous)
    if not isinstance(got, tuple | list) or len(got) != 3:
        raise Broken(called, show(got), "three things: steps, idle slot-steps, the ends")
    for name, value, wanted in zip(WHAT, got, want, strict=True):
        if name in what and (type(value) is not type(wanted) or value != wanted):
            raise Broken(f"{called}: {name}", show(value), show(wanted))


@rules.add("No request, no step: 0 steps, 0 idle, no ends. max of an empty list raises; it takes default=0.")
def nothing_to_do_takes_no_step(part, rng):
    for continuous in (False, True):
        _expect(part, [], 4, continuous)


@rules.add("A static batch lasts as long as its longest request.")
def a_static_batch_lasts_as_long_as_its_longest_request(part, rng):
    _expect(part, [3, 7, 2, 5], 4, False, WHAT[:1])
    _expect(part, [6], 1, False, WHAT[:1])


@rules.add(
    "The next batch starts when the last of the batch before it has ended: add up the longest of each."
)
def static_batches_follow_each_other(part, rng):
    _expect(part, [9, 7, 1, 2, 5, 4], 2, False, WHAT[:1])
    _expect(part, [5, 5, 9], 2, False, WHAT[:1])


@rules.add("A slot is idle in every step in which it has no request: all slot-steps less the lengths.")
def a_slot_without_a_request_is_idle(part, rng):
    for lengths, slots in (([3, 7, 2, 5], 4), ([2, 3, 4, 5, 7], 4), ([2], 8)):
        _expect(part, lengths, slots, False, WHAT[:2])


@rules.add("A request ends `length` steps after its start, however long others of its batch go on.")
def a_request_ends_with_its_own_last_step(part, rng):
    _expect(part, [1, 3, 4, 5, 6, 9], 2, False)


@rules.add(
    "Continuous: a slot that is free takes the next request in the next step, without waiting for others."
)
def a_free_slot_is_taken_in_the_next_step(part, rng):
    _expect(part, [2, 3, 5, 7], 2, True)
    _expect(part, [1, 1, 1, 1], 2, True)


@rules.add("Requests are taken in the order of the list; do not sort them.")
def requests_are_taken_in_their_order(part, rng):
    for continuous in (False, True):
        _expect(part, [1, 2, 3, 9], 2, continuous)
        _expect(part, [9, 3, 2, 1], 2, continuous)


@rules.add("The next request goes to the slot that is free first: min over the slots, or a heap.")
def the_next_request_takes_the_slot_that_is_free_first(part, rng):
    _expect(part, [9, 2, 4, 3, 3], 3, True)
    _expect(part, [2, 9, 4, 6, 1, 1], 3, True)


@rules.add("continuous is False unless it is given.")
def static_is_what_you_get_without_asking(part, rng):
    want = _want([1, 6, 2], 2, False)
    got = part([1, 6, 2], 2)
    if list(got) != list(want):
        raise Broken("batch_cost([1, 6, 2], 2)", show(got), show(want))


@rules.add("Do not change the list that you are given: no pop, no sort in place.")
def the_lengths_are_left_alone(part, rng):
    for continuous in (False, True):
        lengths = [4, 1, 3]
        part(lengths, 2, continuous)
        if lengths != [4, 1, 3]:
            raise Broken("batch_cost(lengths, 2), lengths afterwards", show(lengths), "[4, 1, 3]")


@rules.add("Keep one number for each slot, the step after which it is free; do not go through the steps.")
def answers_may_be_long(part, rng):
    mega, small = 10**9, [rng.randint(1, 30) for _ in range(60)]
    for continuous in (False, True):
        steps, idle, ends = _want(small, 8, continuous)
        want = steps * mega, idle * mega, [end * mega for end in ends]
        _expect(part, [n * mega for n in small], 8, continuous, want=want)


@rules.add("Draw the slots as rows and the steps as columns, and fill them by hand.")
def any_lengths_are_counted_right(part, rng):
    for _ in range(30):
        slots = rng.randint(1, 6)
        lengths = [rng.choice([1, 2, 3, rng.randint(1, 40)]) for _ in range(rng.randint(1, 20))]
        for continuous in (False, True):
            _expect(part, lengths, slots, continuous)
