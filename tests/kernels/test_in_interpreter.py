"""Runs tests/kernels/interpreted_*.py in a process that has chosen Triton's interpreter."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.glob("interpreted_*.py"))


def version(package):
    return tuple(int(number) for number in importlib.metadata.version(package).split(".")[:2])


def why_skipped(path):
    """The reason why the file cannot run here, or None."""
    if importlib.util.find_spec("triton") is None:
        return "triton has no wheel for this system"
    if path.stem != "interpreted_elementwise" and version("triton") <= (3, 6) and version("numpy") >= (2, 4):
        return "triton 3.6's interpreter has no loop up to a bound from memory with numpy >= 2.4"
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_kernels_in_the_interpreter(path):
    reason = why_skipped(path)
    if reason is not None:
        pytest.skip(reason)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(path)]
    root = Path(__file__).parents[2]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-1000:]
    assert " passed" in run.stdout
