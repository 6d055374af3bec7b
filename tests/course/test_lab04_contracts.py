"""Contracts of lab 04: right answers in another style pass, wrong ones fail at the rule that explains it."""

import time

import pytest

from minivllm.course.catalogue import find, of_lab
from minivllm.course.checking import check_module

from .lab04_parts import RIGHT, WRONG
from .test_contracts import failing, part_from


@pytest.fixture(autouse=True)
def empty_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIVLLM_WORKSPACE", str(tmp_path))


@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes_with_any_seed(exercise_id):
    part = part_from(RIGHT[exercise_id], find(exercise_id).name)
    for seed in range(10):
        assert failing(find(exercise_id), part, seed) == []


@pytest.mark.parametrize("exercise_id, fault, rule, old, new", WRONG, ids=[f"{w[0]} {w[1]}" for w in WRONG])
def test_a_wrong_answer_fails_at_the_rule_that_explains_it(exercise_id, fault, rule, old, new):
    assert old in RIGHT[exercise_id]
    part = part_from(RIGHT[exercise_id].replace(old, new), find(exercise_id).name)
    first = failing(find(exercise_id), part)[0]
    assert first.rule == rule
    assert first.verdict == "broken" and first.got and first.expected and first.hint


@pytest.mark.parametrize("exercise", of_lab(4), ids=lambda e: e.title)
def test_a_check_takes_well_under_five_seconds_beyond_starting(exercise):
    start = time.process_time()
    assert failing(exercise, exercise.load_reference()) == []
    assert time.process_time() - start < 2


def test_minivllms_own_scheduler_is_no_answer():
    source = (
        "from minivllm.scheduler.continuous import ContinuousScheduler\n"
        "class Scheduler(ContinuousScheduler):\n    pass\n"
    )
    assert (
        "it forwards to minivllm.scheduler.continuous.ContinuousScheduler"
        in check_module(find("4.3"), source).text
    )


def test_later_classes_stand_on_the_readers_earlier_ones():
    assert check_module(find("4.5"), RIGHT["4.5"]).text == "✓ 4.5 PreemptingScheduler: 15 of 15"
