"""The contracts catch small faults: a sample of what `python -m tests.course.mutants` tries."""

import random

from minivllm.course.catalogue import EXERCISES, of_lab

from . import mutants

SAMPLE = 60


def test_a_sample_of_mutants_is_caught():
    known = mutants.equivalent()
    everything = [mutant for exercise in EXERCISES for mutant in mutants.mutants_of(exercise)]
    sample = random.Random(0).sample([m for m in everything if m.key not in known], SAMPLE)
    survivors = [mutant.key for mutant in sample if mutants.survives(mutant)]
    assert len(survivors) <= 0.05 * SAMPLE, survivors


def test_the_solution_itself_survives():
    for exercise in of_lab(1):
        source = mutants.solution_of(exercise)
        assert mutants.survives(mutants.Mutant(exercise, "", "", source)), exercise.title


def test_every_listed_mutant_exists_and_has_a_reason():
    keys = {mutant.key for exercise in EXERCISES for mutant in mutants.mutants_of(exercise)}
    for key, reason in mutants.equivalent().items():
        assert key in keys, key
        assert len(reason) > 10, key
