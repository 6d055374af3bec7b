"""Runs tests/kernels/interpreted_*.py in a process that has chosen Triton's interpreter."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.glob("interpreted_*.py"))


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton has no wheel for this system")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_kernels_in_the_interpreter(path):
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(path)]
    root = Path(__file__).parents[2]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-1000:]
    assert " passed" in run.stdout
