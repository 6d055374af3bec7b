"""gpu-check: resuming, time limits, and what it says where there is no GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from minivllm.bench.gpu_check import TOTAL_SECONDS, Part, check, parts, run_part
from minivllm.bench.gpu_check_table import table

HERE = {"gpu": "a GPU", "torch": "2.11", "triton": "3.6", "code": "abc"}
TODO = [Part("first", ("1",), 50), Part("second", ("2",), 50)]


def outcome(status="ok", result=None):
    return {"status": status, "seconds": 1, "result": result, "output": ""}


def test_a_second_call_does_only_what_failed_or_is_missing(tmp_path):
    out, done = tmp_path / "sub" / "report.json", []

    def run(part, timeout):
        done.append(part.name)
        assert timeout == 50
        return outcome("failed" if part.name == "first" and len(done) == 1 else "ok")

    for expected in (["first", "second"], ["first", "second", "first"], ["first", "second", "first"]):
        report = check(out, TODO, HERE, run)
        assert done == expected and json.loads(out.read_text()) == report
    check(out, [*TODO, Part("third", ("3",), 50)], HERE, run)
    assert done[3:] == ["third"]
    check(out, TODO, {**HERE, "code": "changed"}, run)
    assert done[4:] == ["first", "second"]


def test_results_are_kept_when_a_later_part_breaks_the_run(tmp_path):
    def run(part, timeout):
        if part.name == "second":
            raise KeyboardInterrupt
        return outcome()

    with pytest.raises(KeyboardInterrupt):
        check(tmp_path / "report.json", TODO, HERE, run)
    assert list(json.loads((tmp_path / "report.json").read_text())["parts"]) == ["first"]


def test_a_damaged_file_is_started_anew(tmp_path):
    (tmp_path / "report.json").write_text("{")
    assert len(check(tmp_path / "report.json", TODO, HERE, lambda part, timeout: outcome())["parts"]) == 2


def test_all_parts_together_stay_under_five_minutes(tmp_path):
    whole = parts(Path("scratch"), has_default_model=True)
    assert sum(part.timeout for part in whole) <= TOTAL_SECONDS < 300
    now, limits = [0.0], []

    def run(part, timeout):
        limits.append(timeout)
        now[0] += 200
        return outcome()

    report = check(
        tmp_path / "report.json", [*TODO, Part("third", ("3",), 50)], HERE, run, clock=lambda: now[0]
    )
    assert limits == [50, 50] and "third" not in report["parts"]
    assert "no time left; call again" in table(report, ["third"])


@pytest.mark.parametrize(
    "code,is_test,status,result",
    [
        ("print('noise'); print('{\"measured\": [1]}')", False, "ok", {"measured": [1]}),
        ("print('{\"measured\": null}')", False, "not measured", {"measured": None}),
        ("import sys; sys.exit(3)", False, "failed", None),
        ("print('== 3 passed, 1 skipped in 2s ==')", True, "ok", "3 passed, 1 skipped in 2s"),
        ("print('4 skipped in 2s')", True, "not measured", "4 skipped in 2s"),
        ("print('1 failed'); raise SystemExit(1)", True, "failed", "1 failed"),
        ("import time; print('half', flush=True); time.sleep(60)", False, "timed out", None),
    ],
)
def test_what_a_child_process_says_becomes_a_status(code, is_test, status, result):
    report = run_part(Part("part", ("-c", code), 9, is_test), timeout=1.5 if status == "timed out" else 60)
    assert (report["status"], report["result"]) == (status, result)
    if status == "timed out":
        assert "half" in report["output"] and "stopped after" in report["output"]


def test_the_table_has_a_line_for_each_figure_and_each_missing_one():
    speed = {"ms": 0.5, "gb_per_s": 2000.0, "tflop_per_s": 3.0, "bound": "memory", "percent_of_roof": 81.0}
    kernel = {
        "kernel": "paged_decode", "dtype": "bfloat16", "num_seqs": 64, "query_len": 1, "context_len": 4096,
        **speed, "peers": {"torch SDPA": speed, "FlashInfer": {"error": "x"}},
    }  # fmt: skip
    skipped = {"kernel": "paged_decode", "dtype": "bfloat16", "num_seqs": 1, "skipped": "takes 9 GiB"}
    step = {
        "batch": 8,
        "ms_per_step": 2.0,
        "times_roof": 1.2,
        "output_tokens_per_s": 4000.0,
        "cuda_graphs": True,
    }
    report = {
        "machine": HERE,
        "parts": {
            "tests/gpu": outcome("ok", "9 passed"),
            "decode": outcome("ok", {"roofs": {}, "measured": [kernel, skipped]}),
            "engine": outcome("ok", {"model": "llama-3b", "measured": [step]}),
            "broken": {**outcome("failed"), "output": "trace\nCUDA error"},
            "nothing": outcome("not measured", {"measured": None}),
        },
    }
    text = table(report, [*report["parts"], "absent"])
    for words in (
        "9 passed", "64 × 1 × 4,096 bfloat16", "0.500 ms, 2,000 GB/s, 81 % of the roof; torch SDPA 81 %",
        "not measured: takes 9 GiB", "llama-3b, batch 8, CUDA graphs",
        "2.00 ms a step, 1.20 × the weight-read", "failed: CUDA error", "nothing", "call again",
    ):  # fmt: skip
        assert words in text
    assert "FlashInfer" not in text
    assert len(text.splitlines()) == 2 + 7


def test_without_a_gpu_it_runs_through_and_says_not_measured(tmp_path):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    todo = [p for p in parts(tmp_path, has_default_model=False) if p.name in ("tests/gpu", "paged_decode")]
    report = check(tmp_path / "report.json", todo, {**HERE, "gpu": None})
    assert [part["status"] for part in report["parts"].values()] == ["not measured"] * 2, report
    lines = table(report, list(report["parts"])).splitlines()
    assert "a machine without a GPU" in lines[0] and all("not measured" in line for line in lines[2:])


def test_the_command_needs_no_package_that_a_gpu_machine_may_lack():
    """No network there: gguf, jupyter and matplotlib are not installed."""
    code = (
        "import sys, minivllm.bench.gpu_check, minivllm.bench.gpu_engine, minivllm.bench.kernels\n"
        "print([m for m in ('gguf', 'matplotlib', 'IPython', 'transformers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
