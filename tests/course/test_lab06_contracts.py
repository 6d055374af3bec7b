"""Contracts of lab 06: right answers in another style pass, wrong ones fail at the rule that explains it."""

import pytest

from minivllm.course import child
from minivllm.course.catalogue import find
from minivllm.course.checking import check_module
from minivllm.kv.radix import RadixPrefixCache

from .lab06_parts import RIGHT
from .lab06_wrong import WRONG
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
def test_matches_and_pools_cross_a_socket(exercise_id):
    exercise = find(exercise_id)
    assert failing_across_a_socket(exercise, part_from(RIGHT[exercise_id], exercise.name)) == []


def test_a_tree_is_no_answer_where_the_queue_has_one_order():
    """What tells 6.4 from 6.5: partial hits, and no `begin`."""
    assert failing(find("6.4"), RadixPrefixCache) != []


def test_hashing_the_whole_prefix_for_each_block_is_ended_and_its_line_named(monkeypatch):
    monkeypatch.setenv(child.LIMIT_VARIABLE, "2")
    whole = RIGHT["6.1"].replace("tokens[i * block_size:", "tokens[0:")
    verdict = check_module(find("6.1"), whole)
    assert "a long prompt is named quickly" in verdict.text and "it was still at the line" in verdict.text
