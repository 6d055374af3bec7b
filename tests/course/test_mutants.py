"""The contracts catch small faults: a sample of what `python -m tests.course.mutants` tries."""

import importlib.util
import random
import subprocess
import sys

import pytest

from minivllm.course.catalogue import EXERCISES, of_lab

from . import mutants

SAMPLE = 60
KERNELS = [exercise.id for exercise in EXERCISES if exercise.needs == "triton"]


def test_a_sample_of_mutants_is_caught():
    known = mutants.equivalent()
    plain = [exercise for exercise in EXERCISES if exercise.id not in KERNELS]
    everything = [mutant for exercise in plain for mutant in mutants.mutants_of(exercise)]
    sample = random.Random(0).sample([m for m in everything if m.key not in known], SAMPLE)
    survivors = [mutant.key for mutant in sample if mutants.survives(mutant)]
    assert len(survivors) <= 0.05 * SAMPLE, survivors


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton has no wheel for this system")
def test_a_sample_of_mutants_of_kernels_is_caught():
    """In a process that interprets them."""
    command = [sys.executable, "-m", "tests.course.mutants", *KERNELS, "--sample", "20"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=mutants.ROOT)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]


def test_the_solution_itself_survives():
    for exercise in of_lab(1):
        source = mutants.solution_of(exercise)
        assert mutants.survives(mutants.Mutant(exercise, "", "", source)), exercise.title


def test_every_listed_mutant_exists_and_has_a_reason():
    keys = {mutant.key for exercise in EXERCISES for mutant in mutants.mutants_of(exercise)}
    for key, reason in mutants.equivalent().items():
        assert key in keys, key
        assert len(reason) > 10, key
