"""A check runs in a child process; whatever the part does there, what comes back is a short text."""

import pytest

from minivllm.course import child
from minivllm.course.catalogue import find
from minivllm.course.checking import check_module

from .wrong_parts import RIGHT, WRONG


def check(exercise_id, source):
    return check_module(find(exercise_id), source)


def wrong(fault):
    return next(w[3] for w in WRONG if w[1] == fault)


def test_a_right_part_passes_with_a_count_of_its_rules():
    verdict = check("1.3", RIGHT["1.3"])
    assert (verdict.state, verdict.text) == ("passing", "✓ 1.3 ContiguousKVCache: 11 of 11")


def test_a_wrong_part_is_told_rule_call_answer_expectation_and_hint():
    lines = check("1.3", wrong("last slot refused")).text.splitlines()
    assert lines[0] == "✗ 1.3 ContiguousKVCache: 7 of 11"
    assert [line.split()[0] for line in lines[1:]] == ["rule", "called", "came", "expected", "hint"]


def test_an_exception_is_shown_with_the_line_of_the_part_and_no_traceback():
    text = check("1.1", "def attention_one_step(q, k, v):\n    return q @ v.missing\n").text
    assert (
        "AttributeError: 'Tensor' object has no attribute 'missing', at the line `return q @ v.missing`"
        in text
    )
    assert "Traceback" not in text


def test_what_the_part_printed_is_shown_when_it_fails():
    text = check("1.1", "def attention_one_step(q, k, v):\n    print('shape', list(q.shape))\n").text
    assert "printed    shape [" in text


def test_an_endless_loop_is_ended_and_its_line_named(monkeypatch):
    monkeypatch.setenv(child.LIMIT_VARIABLE, "1")
    text = check("1.2", "def generate_recompute(model, prompt, n):\n    while True:\n        n += 1\n").text
    assert (
        "0 of 8" in text
        and "it returns n new tokens" in text
        and "it was still at the line `" in text
        and "Does the loop ever end?" in text
    )


@pytest.mark.parametrize(
    "line", ["import sys; sys.exit(0)", "import os; os._exit(0)", "import os; os.abort()"]
)
def test_a_part_that_ends_the_process_only_fails(line):
    verdict = check("1.2", f"def generate_recompute(model, prompt, n):\n    {line}\n")
    assert verdict.state == "failing" and "the process ended" in verdict.text


@pytest.mark.parametrize(
    "source",
    [
        "from minivllm.attention.contiguous import ContiguousKVCache",
        "from minivllm.attention import contiguous\n"
        "class ContiguousKVCache(contiguous.ContiguousKVCache): ...",
        "def ContiguousKVCache(*args, **kwargs):\n"
        "    from minivllm.attention import contiguous\n"
        "    return contiguous.ContiguousKVCache(*args, **kwargs)",
        "from minivllm.course.catalogue import find\nContiguousKVCache = find('1.3').load_reference()",
    ],
    ids=["import", "subclass", "late import", "catalogue"],
)
def test_a_part_that_forwards_to_minivllms_own_is_named_as_such(source):
    verdict = check("1.3", source)
    assert (
        verdict.state == "failing"
        and "it forwards to minivllm.attention.contiguous.ContiguousKVCache" in verdict.text
    )


def test_ready_made_attention_is_no_answer_to_an_attention_exercise():
    source = (
        "import torch.nn.functional as F\ndef attention_one_step(q, k, v):\n"
        "    k, v = k.transpose(0, 1), v.transpose(0, 1)\n"
        "    return F.scaled_dot_product_attention(q[:, None], k, v, enable_gqa=True)[:, 0]"
    )
    assert "it forwards to torch.nn.functional.scaled_dot_product_attention" in check("1.1", source).text


def test_a_stub_that_is_reached_makes_the_exercise_unsolved():
    stub = (
        "    def clear(self):\n        from minivllm import course\n        raise course.NotImplementedYet\n"
    )
    source = RIGHT["1.3"].replace(
        "    def clear(self):\n        self.lengths = [0] * len(self.lengths)\n", stub
    )
    verdict = check("1.3", source)
    assert (verdict.state, verdict.text) == ("unsolved", "✗ 1.3 not implemented yet (clear)")
