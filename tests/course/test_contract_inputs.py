"""What a part does to its inputs must not change what is expected of it.

Two parts are run on every contract. One answers right and then scribbles over what it was given: only the
rules that say that inputs stay as they are may break, and those must. The other scribbles first and then
answers for the scribbled inputs, so that a rule which works out what it expects after the call would
agree with it: it must break every rule that the same wrong answer breaks without scribbling.
"""

from importlib import import_module
from types import SimpleNamespace

import pytest
import torch

from minivllm.course.catalogue import EXERCISES

# Words of the names of rules that say what a part must leave alone.
LEFT_ALONE = ("left alone", "stays the callers")


def copied(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    if type(value) in (list, dict, tuple):
        items = value.items() if isinstance(value, dict) else value
        return type(value)(copied(item) for item in items)
    return SimpleNamespace(**vars(value)) if type(value) is SimpleNamespace else value


def scribble(value):
    """Write into whatever plain thing can be written into, whole numbers staying in range."""
    if isinstance(value, torch.Tensor):
        if not value.is_inference():
            value.zero_()
    elif type(value) is list:
        for i, item in enumerate(value):
            scribble(item)
            value[i] = 0 if type(item) is int else item
    elif type(value) is tuple:
        for item in value:
            scribble(item)
    elif type(value) is dict:
        for key, item in value.items():
            scribble(item)
            value[key] = 0 if type(item) is int else item
    elif type(value) is SimpleNamespace:
        for name, item in vars(value).items():
            setattr(value, name, 1 if isinstance(item, int | float) else item)


def answers_then_scribbles(call):
    def wrapped(*args, **kwargs):
        result = copied(call(*copied(args), **kwargs))
        scribble(args)
        return result

    return wrapped


def scribbles_then_answers(call):
    def wrapped(*args, **kwargs):
        scribble(args)
        return call(*args, **kwargs)

    return wrapped


def answers_for_scribbled_copies(call):
    def wrapped(*args, **kwargs):
        mine = copied(args)
        scribble(mine)
        return call(*mine, **kwargs)

    return wrapped


def part(exercise, around):
    """The reference with `around` around each of its calls; of a class, around each of its methods."""
    reference = exercise.load_reference()
    if not isinstance(reference, type):
        return around(reference)

    class Part:
        def __init__(self, *args, **kwargs):
            self.inner = reference(*args, **kwargs)

        def __getattr__(self, name):
            value = getattr(self.inner, name)
            return around(value) if callable(value) else value

    return Part


def broken(exercise, around):
    rules = import_module(f"minivllm.course.contracts.{exercise.contract}").rules
    return {o.rule for o in rules.run(part(exercise, around), 3) if o.verdict != "passed"}


def names_inputs(rule):
    return any(words in rule for words in LEFT_ALONE)


# Parts of later labs are given queues and caches, which are theirs to change.
@pytest.mark.parametrize("exercise", [e for e in EXERCISES if e.lab <= 2], ids=lambda e: e.title)
def test_a_right_answer_that_scribbles_breaks_the_rules_about_inputs_and_no_others(exercise):
    rules = import_module(f"minivllm.course.contracts.{exercise.contract}").rules.rules
    assert broken(exercise, answers_then_scribbles) == {r.name for r in rules if names_inputs(r.name)}


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.title)
def test_an_answer_for_scribbled_inputs_is_as_wrong_as_one_for_scribbled_copies(exercise):
    assert broken(exercise, answers_for_scribbled_copies) <= broken(exercise, scribbles_then_answers)
