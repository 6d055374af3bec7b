"""Contracts hold for the reference and for a reader's right answer, and catch wrong ones by name."""

import socket
import threading
from importlib import import_module

import pytest

from minivllm.course.catalogue import EXERCISES, find
from minivllm.course.grade.rpc import Endpoint
from minivllm.course.grade.values import ROOT, Remote
from minivllm.kernels import interpreting

from .wrong_parts import RIGHT, WRONG

# Kernels run in the interpreter, in a process that has chosen it (test_lab03_contracts.py).
RUNNABLE = [exercise for exercise in EXERCISES if exercise.needs != "triton" or interpreting()]


def rules_of(exercise):
    return import_module(f"minivllm.course.contracts.{exercise.contract}").rules


def part_from(source, name):
    namespace = {}
    exec(source, namespace)
    return namespace[name]


def failing(exercise, part, seed=0):
    return [outcome for outcome in rules_of(exercise).run(part, seed) if outcome.verdict != "passed"]


def expect_caught(exercise_id, right, old, new, rule):
    """The right answer with one change is caught at `rule`, with words."""
    assert right.count(old) == 1, old
    exercise = find(exercise_id)
    first = failing(exercise, part_from(right.replace(old, new), exercise.name))[0]
    assert first.rule == rule
    assert first.verdict == "broken" and first.got and first.expected and first.hint


def failing_across_a_socket(exercise, part):
    """As `failing`, with the part at the other end of the grader's line."""
    ours, theirs = socket.socketpair()
    other = Endpoint(theirs, careful=False)
    other.border.keep(ROOT, part)
    threading.Thread(target=other.serve_for_ever, args=({},), daemon=True).start()
    with ours:
        return failing(exercise, Remote(Endpoint(ours, careful=True), ROOT, "part", True))


@pytest.mark.parametrize("exercise", RUNNABLE, ids=lambda e: e.title)
def test_the_reference_keeps_every_rule_for_any_seed(exercise):
    for seed in range(5):
        assert failing(exercise, exercise.load_reference(), seed) == []


@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes(exercise_id):
    exercise = find(exercise_id)
    assert failing(exercise, part_from(RIGHT[exercise_id], exercise.name)) == []


@pytest.mark.parametrize("exercise_id, fault, rule, source", WRONG, ids=[f"{w[0]} {w[1]}" for w in WRONG])
def test_a_wrong_answer_fails_at_the_rule_that_explains_it(exercise_id, fault, rule, source):
    exercise = find(exercise_id)
    first = failing(exercise, part_from(source, exercise.name))[0]
    assert first.rule == rule
    assert first.verdict == "broken" and first.got and first.expected and first.hint


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.title)
def test_a_part_that_returns_nothing_breaks_most_rules(exercise):
    class Nothing:
        def __init__(self, *args, **kwargs): ...

        def append(self, *args): ...

        def view(self, *args): ...

        def clear(self): ...

    part = Nothing if exercise.name[0].isupper() else lambda *args: None
    assert len(failing(exercise, part)) >= len(rules_of(exercise)) // 2


def test_what_a_rule_says_is_the_same_each_time():
    exercise = find("1.3")
    part = part_from(
        next(source for _, fault, _, source in WRONG if fault == "length set, not added"), exercise.name
    )
    assert failing(exercise, part) == failing(exercise, part)


def test_another_seed_brings_other_inputs():
    exercise, seen = find("1.2"), []

    def spy(model, prompt, n):
        seen.append(tuple(prompt))
        return exercise.load_reference()(model, prompt, n)

    for seed in (0, 1):
        list(rules_of(exercise).run(spy, seed))
    half = len(seen) // 2
    assert seen[:half] != seen[half:]
