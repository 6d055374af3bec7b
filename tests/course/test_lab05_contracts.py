"""Contracts of lab 05: right answers in another style pass, wrong ones fail at the rule that explains it."""

import pytest

from minivllm.course.catalogue import find, of_lab
from minivllm.course.contracts.small_queues import Queues, SmallRequest, decodes
from minivllm.course.contracts.small_shapes import machine, random_shape
from minivllm.course.reference import chunking
from minivllm.executor.cost import forward_cost
from minivllm.scheduler import planner

from .lab05_parts import RIGHT, WRONG
from .test_contracts import expect_caught, failing, failing_across_a_socket, part_from


@pytest.fixture(autouse=True)
def empty_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIVLLM_WORKSPACE", str(tmp_path))


@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes_with_any_seed(exercise_id):
    exercise = find(exercise_id)
    for seed in range(5):
        assert failing(exercise, part_from(RIGHT[exercise_id], exercise.name), seed) == []


@pytest.mark.parametrize("exercise_id, fault, rule, old, new", WRONG, ids=[f"{w[0]} {w[1]}" for w in WRONG])
def test_a_wrong_answer_fails_at_the_rule_that_explains_it(exercise_id, fault, rule, old, new):
    expect_caught(exercise_id, RIGHT[exercise_id], old, new, rule)


@pytest.mark.parametrize("exercise_id", RIGHT)
def test_requests_traces_and_models_can_be_lent_across_a_socket(exercise_id):
    exercise = find(exercise_id)
    assert failing_across_a_socket(exercise, part_from(RIGHT[exercise_id], exercise.name)) == []


@pytest.mark.parametrize("exercise_id", ["5.2", "5.4"])
def test_the_engines_own_planner_keeps_both_planners_contracts(exercise_id):
    for seed in range(5):
        assert failing(find(exercise_id), planner.plan_step, seed) == []


def test_a_plan_is_told_in_words_when_it_breaks_the_budget():
    rules = failing(find("5.2"), lambda running, waiting, budget, kv: [(r, 1) for r in running])
    overrun = next(outcome for outcome in rules if outcome.rule == "decodes keep to the budget")
    assert overrun.got == "D1 1, D2 1, D3 1, D4 1, D5 1, D6 1: 6 tokens"
    assert overrun.expected == "at most 4 tokens"
    assert "budget of 4; running: D1 misses 1, D2 misses 1" in overrun.called


def test_queues_say_who_is_a_decode_whatever_its_place():
    queues = Queues([SmallRequest("P", 9, 3), *decodes(2)], [SmallRequest("W", 1)])
    assert queues.decodes == ["D1", "D2"] and queues.prompts == ["P", "W"]
    assert queues.greedy(5) == {"D1": 1, "D2": 1, "P": 3}


def test_the_clock_is_the_cost_model_of_a_mixed_step():
    import random

    rng = random.Random(0)
    cfg, gpu = random_shape(rng), machine(10**8, 10**6)
    clock = chunking.StepClock(cfg, gpu, 2)
    step = [(8, 50), (1, 30), (1, 70)]
    assert clock.chunk_time(8, 50, [30, 70]) == forward_cost(cfg, step, 2, 2).seconds(gpu)
    for target in (clock.chunk_time(n, 60, [9]) for n in (1, 7, 60)):
        budget = clock.budget(target, 60, [9])
        assert clock.chunk_time(budget - 1, 60, [9]) <= target
        assert budget == 61 or clock.chunk_time(budget, 60, [9]) > target
    with pytest.raises(ValueError, match="one prompt token takes"):
        clock.budget(clock.chunk_time(1, 60, [9]) * 0.9, 60, [9])


def test_both_planners_of_the_lab_fill_the_same_part_of_the_engine():
    assert [e.id for e in of_lab(5) if e.engine_part == "plan_step"] == ["5.2", "5.4"]
