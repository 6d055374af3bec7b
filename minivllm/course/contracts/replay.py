"""2.1 `replay(trace, num_slots, unit, contiguous)` → (internal, refused, external).

trace: (name, slots needed) when a request starts, (name, 0) when it ends. Sizes are rounded up to the
unit; a contiguous piece takes the lowest hole that is large enough.
"""

from __future__ import annotations

from .expect import show
from .rules import Broken, Rules

rules = Rules()


def _expect(part, want, trace, num_slots, unit, contiguous, what=("internal", "refused", "external")) -> None:
    called = f"replay({show(trace)}, {num_slots}, unit={unit}, contiguous={contiguous})"
    got = part(list(trace), num_slots, unit, contiguous)
    if not isinstance(got, tuple | list) or len(got) != 3:
        raise Broken(called, show(got), "three numbers: internal, refused, external")
    for name, value, wanted in zip(("internal", "refused", "external"), got, want, strict=True):
        if name in what and (value != wanted or type(value) not in (int, bool)):
            raise Broken(f"{called}: {name}", show(value), str(wanted))


def by_slots(trace, num_slots, unit, contiguous) -> tuple[int, int, int]:
    """Slot by slot, the slow way."""
    memory: list[str | None] = [None] * num_slots
    internal = refused = external = 0
    for name, length in trace:
        if length == 0:
            memory = [None if owner == name else owner for owner in memory]
            continue
        size = (length + unit - 1) // unit * unit
        places = [i for i, owner in enumerate(memory) if owner is None]
        enough = len(places) >= size
        if contiguous:
            starts = [i for i in places if memory[i : i + size] == [None] * size]
            places = list(range(starts[0], starts[0] + size)) if starts else []
        if len(places) < size:
            refused += 1
            external += enough
            continue
        internal += size - length
        for i in places[:size]:
            memory[i] = name
    return internal, refused, external


@rules.add("Nothing placed, nothing wasted: start all three counts at 0.")
def an_empty_trace_wastes_nothing(part, rng):
    _expect(part, (0, 0, 0), [], 64, 16, False)


@rules.add("size = length rounded up to a multiple of unit. Never used: size − length.")
def reserved_and_never_used_is_internal(part, rng):
    trace = [("A", 1), ("B", 16), ("C", 20)]
    for contiguous in (False, True):
        _expect(part, (15 + 0 + 12, 0, 0), trace, 96, 16, contiguous)
        _expect(part, (0, 0, 0), trace, 96, 1, contiguous)


@rules.add("A request that finds no place is refused: count it, and reserve nothing for it.")
def a_full_memory_refuses(part, rng):
    _expect(part, (24, 1, 0), [("A", 20), ("B", 20), ("C", 1)], 80, 32, True)
    _expect(part, (0, 2, 0), [("A", 5), ("B", 6), ("C", 3), ("D", 8)], 8, 1, False)


@rules.add("A piece may end exactly at the end of memory.")
def memory_can_be_filled_to_the_last_slot(part, rng):
    for contiguous in (False, True):
        _expect(part, (0, 0, 0), [("A", 3), ("B", 5)], 8, 1, contiguous)


@rules.add("A length of 0 is the end of that request: all that it reserved is free again.")
def what_ends_gives_its_slots_back(part, rng):
    trace = [("A", 30), ("B", 30), ("A", 0), ("C", 32), ("B", 0), ("D", 17)]
    for contiguous in (False, True):
        _expect(part, (2 + 2 + 0 + 15, 0, 0), trace, 64, 32, contiguous)


@rules.add("External: refused although num_slots − all that is reserved would be enough.")
def free_in_pieces_is_external(part, rng):
    trace = [("A", 3), ("B", 2), ("C", 3), ("A", 0), ("C", 0), ("D", 5)]
    _expect(part, (0, 1, 1), trace, 8, 1, True)
    _expect(part, (0, 1, 1), [*trace[:5], ("E", 6)], 8, 1, True)
    _expect(part, (0, 1, 0), [*trace[:5], ("E", 7)], 8, 1, True)


@rules.add("Without contiguous any free slots will do, so nothing is ever refused for lack of one piece.")
def blocks_know_no_external_fragmentation(part, rng):
    trace = [("A", 3), ("B", 2), ("C", 3), ("A", 0), ("C", 0), ("D", 6), ("E", 1)]
    _expect(part, (0, 1, 0), trace, 8, 1, False)


@rules.add("Two holes side by side are one hole. Look at what is held, sorted by its start.")
def neighbouring_holes_are_one(part, rng):
    trace = [("A", 2), ("B", 2), ("C", 2), ("D", 2), ("B", 0), ("C", 0), ("E", 4)]
    _expect(part, (0, 0, 0), trace, 8, 1, True)
    _expect(part, (0, 0, 0), [*trace, ("A", 0), ("E", 0), ("F", 6)], 8, 1, True)


@rules.add("Search from slot 0 upwards, and take the first hole that is large enough, not the best one.")
def the_lowest_hole_is_taken(part, rng):
    trace = [("A", 4), ("B", 1), ("C", 2), ("D", 1), ("A", 0), ("C", 0), ("E", 2), ("F", 4)]
    _expect(part, (0, 1, 1), trace, 8, 1, True)


@rules.add("A refused request holds nothing, so its end changes nothing.")
def the_end_of_a_refused_request_is_ignored(part, rng):
    trace = [("A", 6), ("B", 4), ("B", 0), ("C", 3), ("A", 0), ("D", 8)]
    for contiguous in (False, True):
        _expect(part, (0, 2, 0), trace, 8, 1, contiguous)


@rules.add("Keep one (start, size) for each request, not one entry for each slot.")
def memory_may_be_large(part, rng):
    mega = 1_000_000
    trace = []
    for i in range(60):
        trace.append((f"R{i}", rng.randint(1, 9) * mega))
        if i % 3 == 2:
            trace.append((f"R{i - 1}", 0))
    slots = 100 * mega
    want = by_slots([(name, n // mega) for name, n in trace], slots // mega, 1, True)
    want = want[0] * mega, *want[1:]
    _expect(part, want, trace, slots, mega, True)


@rules.add("Play the trace through by hand, a line of slots on paper for each event.")
def any_trace_is_counted_right(part, rng):
    for _ in range(25):
        num_slots, unit = rng.choice([(24, 1), (24, 4), (32, 8), (36, 3)])
        trace, running = [], []
        for i in range(14):
            if running and rng.random() < 0.4:
                trace.append((running.pop(rng.randrange(len(running))), 0))
            else:
                running.append(f"R{i}")
                trace.append((f"R{i}", rng.randint(1, 12)))
        for contiguous in (False, True):
            _expect(part, by_slots(trace, num_slots, unit, contiguous), trace, num_slots, unit, contiguous)
