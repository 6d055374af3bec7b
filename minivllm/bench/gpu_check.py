"""gpu-check: everything that needs a GPU, by one command, in under five minutes, without a network.

Tests, kernel benchmarks and an engine benchmark run as child processes, each with its own time limit, and
after each of them one JSON file is written. So a crash or a hang costs one part, and a second call does
only what failed or is missing, as long as machine and code are the same. Without a GPU it runs
through all the same, and says "not measured".
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from ..config import DEFAULT_MODEL
from ..model.fetch import cache_dir
from .gpu_check_table import table

ROOT = Path(__file__).parents[2]
TOTAL_SECONDS = 290
OTHER_KERNELS = ("paged_prefill", "store_kv", "rms_norm", "rotary", "silu_mul")


@dataclass(frozen=True)
class Part:
    """A child process: `command` follows the Python executable; what it prints last is JSON, or with
    `is_test` pytest's summary. `timeout` is seconds."""

    name: str
    command: tuple[str, ...]
    timeout: float
    is_test: bool = False


def parts(scratch: Path, has_default_model: bool) -> list[Part]:
    """All parts, the most telling first; their time limits add up to less than five minutes."""
    bench = ("-m", "minivllm", "bench", "kernels", "--measured-only", "--json", "--kernel")
    engine = ("-m", "minivllm.bench.gpu_engine", "--scratch", str(scratch))
    tests = ("-m", "pytest", "tests/gpu", "-q", "-p", "no:cacheprovider")
    found = [
        Part("tests/gpu", tests, 110, is_test=True),
        Part("paged_decode", (*bench, "paged_decode"), 40),
        Part("engine with CUDA graphs", engine, 45),
        Part("engine without CUDA graphs", (*engine, "--eager"), 35),
        Part("other kernels", (*bench, *OTHER_KERNELS), 35),
    ]
    if has_default_model:
        found.append(Part(f"engine, {DEFAULT_MODEL}", (*engine, "--model", DEFAULT_MODEL), 25))
    return found


def machine() -> dict[str, Any]:
    """What results belong to: the GPU, the versions, and a checksum of the code."""
    probe = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    versions = {}
    for name in ("torch", "triton"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    code = sha256()
    for path in sorted([*(ROOT / "minivllm").rglob("*.py"), *(ROOT / "tests" / "gpu").rglob("*.py")]):
        code.update(path.read_bytes())
    return {"gpu": run.stdout.strip() or None, **versions, "code": code.hexdigest()[:16]}


def run_part(part: Part, timeout: float) -> dict[str, Any]:
    """{"status": "ok", "failed", "timed out" or "not measured", "seconds", "result", "output"}."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "0"}
    start = time.monotonic()
    try:
        run = subprocess.run(
            [sys.executable, *part.command], cwd=ROOT, env=environment, timeout=timeout,
            capture_output=True, text=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        text = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout
        status, result, output = "timed out", None, f"{text or ''}\nstopped after {timeout:.0f} s"
    else:
        status, result = (_read_tests if part.is_test else _read_json)(run)
        output = "" if status == "ok" and not part.is_test else run.stdout + run.stderr
    seconds = time.monotonic() - start
    return {"status": status, "seconds": seconds, "result": result, "output": output[-3000:]}


def _read_json(run: subprocess.CompletedProcess) -> tuple[str, Any]:
    lines = run.stdout.strip().splitlines()
    if run.returncode or not lines:
        return "failed", None
    result = json.loads(lines[-1])
    return ("not measured" if result["measured"] is None else "ok"), result


def _read_tests(run: subprocess.CompletedProcess) -> tuple[str, Any]:
    lines = run.stdout.strip().splitlines()
    summary = lines[-1].strip("= ") if lines else "no output"
    if run.returncode:
        return "failed", summary
    return ("ok" if " passed" in summary else "not measured"), summary


def check(
    out: Path,
    todo: list[Part],
    here: dict[str, Any],
    run: Callable[[Part, float], dict[str, Any]] = run_part,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Run what `out` does not have yet, writing it after every part. {"machine", "parts": {name: …}}."""
    report = _read(out, here)
    deadline = clock() + TOTAL_SECONDS
    for part in todo:
        left = deadline - clock()
        if report["parts"].get(part.name, {}).get("status") == "ok" or left < 1:
            continue
        print(f"gpu-check: {part.name} …", file=sys.stderr, flush=True)
        report["parts"][part.name] = run(part, min(part.timeout, left))
        _write(out, report)
    return report


def _read(out: Path, here: dict[str, Any]) -> dict[str, Any]:
    try:
        report = json.loads(out.read_text(encoding="utf-8"))
        if report["machine"] == here:
            return report
    except (OSError, ValueError, KeyError, TypeError):
        pass  # nothing there, or nothing that can be used
    return {"machine": here, "parts": {}}


def _write(out: Path, report: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_suffix(".tmp")
    temporary.write_text(json.dumps(report, indent=1), encoding="utf-8")
    temporary.replace(out)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m minivllm.bench.gpu_check", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path("build/gpu_check.json"), help="where results are kept"
    )
    parser.add_argument("--fresh", action="store_true", help="do everything again")
    options = parser.parse_args(argv)
    out = options.out.absolute()
    if options.fresh:
        out.unlink(missing_ok=True)
    scratch = cache_dir() / "gpu_check"
    has_default_model = (cache_dir() / "models" / DEFAULT_MODEL / "model.safetensors").is_file()
    todo = parts(scratch, has_default_model)
    report = check(out, todo, machine())
    print(table(report, [part.name for part in todo]))
    print(f"results are in {out}; a second call does what failed or is missing")
    failed = [p for p in report["parts"].values() if p["status"] in ("failed", "timed out")]
    if not failed:
        shutil.rmtree(scratch, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
