"""Every lab and every exercise of the course, a file a lab.

A new lab adds a file here (`NAME`, `EXERCISES`) and a contract for each exercise, and nothing else. Files
are found by their names, lab00.py, lab01.py …, whose number is the lab's.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from .exercise import Exercise, load

_MODULES = {
    int(path.stem[3:]): import_module(f"{__name__}.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("lab[0-9][0-9].py"))
}
LABS: dict[int, str] = {number: module.NAME for number, module in _MODULES.items()}
EXERCISES: tuple[Exercise, ...] = tuple(e for module in _MODULES.values() for e in module.EXERCISES)


def of_lab(number: int) -> list[Exercise]:
    return [exercise for exercise in EXERCISES if exercise.lab == number]


def find(exercise_id: str) -> Exercise:
    """`ValueError` naming the known ids if there is none of this id."""
    for exercise in EXERCISES:
        if exercise.id == exercise_id:
            return exercise
    known = ", ".join(exercise.id for exercise in EXERCISES)
    raise ValueError(f"there is no exercise {exercise_id!r}; the exercises are {known}")


__all__ = ["EXERCISES", "LABS", "Exercise", "find", "load", "of_lab"]
