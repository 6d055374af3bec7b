"""Contracts of lab 04: right answers in another style pass, wrong ones fail at the rule that explains it."""

import pytest

from minivllm.course.catalogue import find
from minivllm.course.checking import check_module

from .lab04_parts import RIGHT, WRONG
from .test_contracts import expect_caught, failing, part_from


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
    expect_caught(exercise_id, RIGHT[exercise_id], old, new, rule)


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
