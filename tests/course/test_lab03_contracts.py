"""Lab 03: its contracts, in a process that interprets kernels; what a check of a kernel says; stubs."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minivllm.course.catalogue import LABS, find
from minivllm.course.checking import check_module
from minivllm.course.grade.submission import NothingToGrade, Submission
from minivllm.course.lab import Lab
from minivllm.course.workspace import Workspace

from .test_contracts import failing

ROOT = Path(__file__).parents[2]
NEEDS_TRITON = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton has no wheel for this system"
)
COMBINE = """
import torch
def combine_partials(a, b):
    m = torch.stack([a[0], b[0]]).amax(0)
    pieces = [(torch.where(p[0] == m, 1.0, torch.exp(p[0] - m)), p) for p in (a, b)]
    return m, sum(f * p[1] for f, p in pieces), sum(f.unsqueeze(-1) * p[2] for f, p in pieces)
"""


def solution(exercise_id):
    return Submission(ROOT / "solutions" / f"{LABS[3]}.ipynb").module_text(find(exercise_id))


@NEEDS_TRITON
def test_contracts_hold_where_kernels_are_interpreted():
    names = "store_kv or rms_norm or paged_decode or paged_prefill"
    for arguments in (
        ["interpreted_lab03.py"],
        ["test_contracts.py", "test_contract_inputs.py", "-k", names],
    ):
        files = [str(Path("tests/course") / a) if a.endswith(".py") else a for a in arguments]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
        assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-1000:]
        assert " passed" in run.stdout


def combine(source):
    namespace = {}
    exec(source, namespace)
    return namespace["combine_partials"]


def test_a_combination_in_another_style_passes():
    assert failing(find("3.3"), combine(COMBINE)) == []


@pytest.mark.parametrize(
    "old, new, rule",
    [
        (".amax(0)", ".amin(0)", "two halves make the whole"),
        ("p[2] for f, p", "p[2] / p[1][..., None] for f, p", "two halves make the whole"),
        ("torch.exp(p[0] - m)", "torch.exp(p[0]) / torch.exp(m)", "large scores do not overflow"),
        ("torch.where(p[0] == m, 1.0, torch.exp(p[0] - m))", "torch.exp(p[0] - m)", "two parts without keys "
         "are one without keys"),
        ("f.unsqueeze(-1) * p[2]", "p[2].mul_(f.unsqueeze(-1))", "the inputs are left alone"),
    ],
)  # fmt: skip
def test_a_wrong_combination_fails_at_the_rule_that_explains_it(old, new, rule):
    assert COMBINE.count(old) == 1
    assert failing(find("3.3"), combine(COMBINE.replace(old, new)))[0].rule == rule


@NEEDS_TRITON
def test_a_kernel_is_checked_in_the_interpreter_whatever_this_process_does(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert check_module(find("3.1"), solution("3.1")).text == "✓ 3.1 store_kv: 9 of 9"


@NEEDS_TRITON
@pytest.mark.parametrize(
    "old, new, words",
    [
        ("inside = column < ROW", "inside = colum < ROW", "NameError: colum is not defined"),
        ("slot * ROW + column, key", "slot * ROW + 2**40 + column, key", "writes outside its tensors"),
        ("key = tl.load(", "key = torch.load(", "at the line `key = torch.load(k + token"),
    ],
)  # fmt: skip
def test_what_goes_wrong_inside_a_kernel_is_said(old, new, words):
    text = solution("3.1")
    assert text.count(old) == 1
    said = check_module(find("3.1"), text.replace(old, new)).text
    assert words in said.replace("name 'colum'", "colum") and "InterpreterError" not in said


@NEEDS_TRITON
def test_minivllms_own_kernel_is_no_answer():
    source = (
        "import triton\nfrom minivllm.kernels.store_kv import store_kv_kernel\n"
        "def store_kv(k, v, k_cache, v_cache, slot_mapping):\n"
        "    row = k.shape[1] * k.shape[2]\n"
        "    numbers = k.stride(0), v.stride(0), row\n"
        "    sizes = dict(ROW=row, ROW_PAD=triton.next_power_of_2(row))\n"
        "    store_kv_kernel[(len(k),)](k, v, k_cache, v_cache, slot_mapping, *numbers, **sizes)\n"
    )
    assert (
        "it forwards to minivllm.kernels.store_kv.store_kv_kernel" in check_module(find("3.1"), source).text
    )


@pytest.mark.parametrize("exercise_id", ["3.1", "3.2", "3.4", "3.5", "3.6"])
def test_a_kernel_that_is_a_stub_is_not_graded_though_its_wrapper_is_written(exercise_id):
    with pytest.raises(NothingToGrade, match="not implemented yet"):
        Submission(ROOT / "labs" / f"{LABS[3]}.ipynb").module_text(find(exercise_id))


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIVLLM_WORKSPACE", str(tmp_path))
    return Lab(3)


@NEEDS_TRITON
def test_the_engine_takes_the_readers_kernels_when_it_runs_on_kernels(lab, monkeypatch, capsys):
    Workspace().keep(find("3.1"), "def store_kv(*args): ...\n")
    made = []
    monkeypatch.setattr("minivllm.llm.LLM", lambda model, parts, **settings: made.append(parts))
    lab.engine(attention_backend="triton")
    assert list(made[0].kernels) == ["store_kv"] and made[0].kernels["store_kv"].__module__ != "minivllm"
    said = capsys.readouterr().out
    assert "engine: kernels.store_kv is yours (3.1 store_kv)" in said
    assert "engine: kernels.paged_decode is minivllm's (3.4 paged_decode)" in said
    lab.engine(attention_backend="paged")
    assert made[1].kernels is None and "kernels" not in capsys.readouterr().out
