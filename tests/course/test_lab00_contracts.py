"""Contracts of lab 00: right answers of several styles pass, wrong ones fail at the rule that explains it."""

import random
import time
from importlib import import_module
from types import SimpleNamespace

import pytest

from minivllm.course import child
from minivllm.course.catalogue import find, of_lab
from minivllm.course.checking import check_module
from minivllm.course.contracts import small_shapes
from minivllm.executor.cost import flops_and_bytes

from .lab00_parts import FLOORS, FORWARD, RIGHT, WRONG


def part_from(exercise_id, source):
    namespace = {}
    exec(source, namespace)
    return namespace[find(exercise_id).name]


def failing(exercise_id, part, seed=0):
    rules = import_module(f"minivllm.course.contracts.{find(exercise_id).contract}").rules
    return [outcome for outcome in rules.run(part, seed) if outcome.verdict != "passed"]


@pytest.fixture(autouse=True)
def empty_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIVLLM_WORKSPACE", str(tmp_path))


@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes_with_any_seed(exercise_id):
    for seed in range(5):
        assert failing(exercise_id, part_from(exercise_id, RIGHT[exercise_id]), seed) == []


@pytest.mark.parametrize("exercise_id, fault, rule, old, new", WRONG, ids=[f"{w[0]} {w[1]}" for w in WRONG])
def test_a_wrong_answer_fails_at_the_rule_that_explains_it(exercise_id, fault, rule, old, new):
    assert RIGHT[exercise_id].count(old) == 1
    first = failing(exercise_id, part_from(exercise_id, RIGHT[exercise_id].replace(old, new)))[0]
    assert first.rule == rule
    assert first.verdict == "broken" and first.got and first.expected and first.hint


@pytest.mark.parametrize("exercise", of_lab(0), ids=lambda e: e.title)
def test_a_check_takes_well_under_five_seconds_beyond_starting(exercise):
    start = time.process_time()
    assert failing(exercise.id, exercise.load_reference()) == []
    assert time.process_time() - start < 2  # of the processor, whatever else the machine does


@pytest.mark.parametrize("seed", range(20))
def test_contracts_count_as_the_package_does(seed):
    rng = random.Random(seed)
    cfg, context, batch = small_shapes.random_shape(rng), rng.randint(1, 50), rng.randint(1, 5)
    n = rng.randint(1, context)
    counted = (
        small_shapes.flops_of(cfg, n, context, batch),
        small_shapes.bytes_of(cfg, n, context, 2, batch),
    )
    assert flops_and_bytes(cfg, n, context, 2, batch) == counted


def test_what_parts_are_given_is_numbers_and_a_name():
    for given in (small_shapes.shape(), small_shapes.large_shape(), small_shapes.machine(1.0, 2.0)):
        assert type(given) is SimpleNamespace
        assert all(isinstance(value, int | float | str) for value in vars(given).values())


def test_walking_through_every_request_is_ended_and_its_line_named(monkeypatch):
    monkeypatch.setenv(child.LIMIT_VARIABLE, "2")
    slow = "sum(1 for _ in range(batch)) // 10**12"
    verdict = check_module(find("0.1"), FORWARD.replace("flops += ", f"flops += {slow} + "))
    assert verdict.text.startswith("✗ 0.1 flops_and_bytes: 13 of 14")
    assert "a large batch of long prompts is counted at once" in verdict.text


def test_forward_cost_is_no_answer():
    source = (
        "from minivllm.executor.cost import forward_cost\n"
        "def flops_and_bytes(cfg, num_tokens, context_len, dtype_bytes, batch=1):\n"
        "    cost = forward_cost(cfg, [(num_tokens, context_len)] * batch, dtype_bytes, dtype_bytes)\n"
        "    return cost.flops, cost.num_bytes\n"
    )
    assert "it forwards to minivllm.executor.cost.forward_cost" in check_module(find("0.1"), source).text


def test_earlier_parts_are_there_in_a_check_of_the_last():
    assert check_module(find("0.5"), FLOORS).text == "✓ 0.5 ttft_and_itl_floor: 8 of 8"
