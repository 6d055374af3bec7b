"""SamplingParams: what is refused, how it says so, and what is understood."""

import math

import pytest

from minivllm.sampling import SamplingParams


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0), ("n", 1.0), ("n", True), ("n", None),
        ("temperature", -0.1), ("temperature", math.nan), ("temperature", math.inf), ("temperature", "1"),
        ("temperature", True), ("temperature", None), ("temperature", 10**400),
        ("top_p", 0.0), ("top_p", -0.5), ("top_p", 1.0001), ("top_p", math.nan),
        ("top_k", -2), ("top_k", 1.5), ("top_k", None),
        ("min_p", -0.1), ("min_p", 1.1), ("min_p", math.nan),
        ("seed", 1.5), ("seed", "7"), ("seed", True),
        ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", 2.0),
        ("min_tokens", -1), ("min_tokens", None),
        ("logprobs", -1), ("logprobs", 21), ("logprobs", True),
        ("repetition_penalty", 0.0), ("repetition_penalty", -1.0), ("repetition_penalty", math.inf),
        ("presence_penalty", 2.1), ("presence_penalty", -2.1), ("presence_penalty", math.nan),
        ("frequency_penalty", 2.1), ("frequency_penalty", -2.1),
        ("stop", ""), ("stop", ["ok", ""]), ("stop", [3]), ("stop", 3), ("stop", [None]), ("stop", b"x"),
        ("stop_token_ids", [-1]), ("stop_token_ids", ["1"]), ("stop_token_ids", [1.0]), ("stop_token_ids", 3),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_name(name, value):
    with pytest.raises(ValueError, match=rf"^{name} "):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    "values",
    [
        {"n": 16}, {"temperature": 0}, {"temperature": 1e-6}, {"temperature": 100}, {"top_p": 1e-9},
        {"top_p": 1},
        {"top_k": -1}, {"top_k": 10**9}, {"min_p": 0}, {"min_p": 1}, {"seed": -5}, {"seed": 2**70},
        {"max_tokens": None, "min_tokens": 10**6}, {"min_tokens": 16}, {"logprobs": 0}, {"logprobs": 20},
        {"presence_penalty": -2, "frequency_penalty": 2}, {"repetition_penalty": 0.01}, {"stop": None},
        {"stop_token_ids": []}, {"stop_token_ids": (0, 5)},
    ],
)  # fmt: skip
def test_values_at_the_limits_are_taken_as_they_are(values):
    params = SamplingParams(**values)
    assert {name: getattr(params, name) for name in values} == values


def test_messages_name_the_value_and_the_limit():
    for values, words in [
        ({"top_p": 1.5}, ["top_p", "1.5", "above 0", "at most 1"]),
        ({"temperature": -1}, ["temperature", "-1", "at least 0", "finite"]),
        ({"logprobs": 50}, ["logprobs", "50", "from 0 to 20"]),
        ({"n": 0}, ["n is 0", "at least 1"]),
        ({"min_tokens": 9, "max_tokens": 4}, ["9", "4", "lower min_tokens or raise max_tokens"]),
        ({"stop": 7}, ["stop", "7", "list of strings"]),
    ]:
        with pytest.raises(ValueError) as error:
            SamplingParams(**values)
        assert all(word in str(error.value) for word in words), str(error.value)


def test_stop_strings_are_a_tuple_whether_one_or_several_were_given():
    assert SamplingParams(stop="END").stop_strings == ("END",)
    assert SamplingParams(stop=["a", "b"]).stop_strings == ("a", "b")
    assert SamplingParams().stop_strings == ()


def test_seed_of_minus_one_is_no_seed():
    assert SamplingParams(seed=-1).seed is None


def test_greedy_and_penalties_are_recognised():
    assert SamplingParams(temperature=0).is_greedy and not SamplingParams(temperature=1e-9).is_greedy
    assert not SamplingParams(repetition_penalty=1).has_penalties
    for name, value in [("repetition_penalty", 1.1), ("presence_penalty", -0.1), ("frequency_penalty", 0.1)]:
        assert SamplingParams(**{name: value}).has_penalties
