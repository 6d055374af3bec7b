"""Mark one exercise, or one notebook: run the rules against a part in its own process, and count.

Points are max_points · rules passed / rules. The message names the first broken rule and its hint, and
the line of the student's own code that raised, if one did; no input and no expected value of a check.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from .. import catalogue
from ..catalogue import Exercise
from ..contracts.rules import Outcome, run_rule
from ..workspace import Workspace
from .execute import RunLimits
from .process import Limits, Nursery, PartLost, PartProcess
from .submission import NothingToGrade, Submission


@dataclass(frozen=True)
class Settings:
    """How to mark. `seed` draws the inputs of the rules; `execute` also runs the whole notebook."""

    seed: int = 1
    together: bool = False
    execute: bool = False
    limits: Limits = field(default_factory=Limits)
    run_limits: RunLimits = field(default_factory=RunLimits)


@dataclass
class Mark:
    """What one exercise is worth. `late`: the clock stopped it, so that a quieter machine may say more."""

    id: str
    points: float
    max_points: float
    message: str
    late: bool = False
    missing: list[str] = field(default_factory=list)  # what the machine could not enforce
    together: float | None = None  # points on top of the student's own earlier parts

    def as_dict(self) -> dict[str, Any]:
        exercise = {"id": self.id, "points": self.points, "max_points": self.max_points}
        extra = {} if self.together is None else {"points_together": self.together}
        return {**exercise, "message": self.message, **extra}


def nothing(exercise: Exercise, why: str) -> Mark:
    return Mark(exercise.id, 0, exercise.points, why)


def mark_exercise(submission: Submission, exercise: Exercise, nursery: Nursery, settings: Settings) -> Mark:
    """The mark of one exercise of a notebook."""
    if exercise.missing:
        return Mark(exercise.id, 0, 0, f"not graded here: {exercise.missing}; its points are not counted")
    try:
        text = submission.module_text(exercise)
    except NothingToGrade as reason:
        mark = nothing(exercise, str(reason))
        mark.together = 0 if settings.together else None
        return mark
    mark = mark_part(exercise, text, nursery, settings)
    if settings.together:
        uses_earlier = "workspace import part" in text
        own = _earlier(submission, exercise) if uses_earlier else {}
        chain = mark_part(exercise, text, nursery, settings, own) if own else mark
        mark.together, mark.late = chain.points, mark.late or chain.late
    return mark


def mark_part(
    exercise: Exercise,
    text: str,
    nursery: Nursery,
    settings: Settings,
    upstream: dict[str, str] | None = None,
) -> Mark:
    """Run all rules of the exercise on the module. Earlier exercises that it uses are the reference, or
    `upstream`."""
    rules = import_module(f"minivllm.course.contracts.{exercise.contract}").rules.rules
    process = PartProcess(nursery, exercise, text, settings.limits)
    process.upstream = upstream or {}
    passed, first, late = 0, "", False
    try:
        for rule in rules:
            try:
                outcome = _run(rule, process, settings.seed)
            except PartLost as lost:
                outcome = Outcome(rule.name, "broken", hint=rule.hint, got=f"{lost}. ")
                late |= lost.late
                process.end()
            passed += outcome.verdict == "passed"
            if outcome.verdict == "off limits":
                return nothing(exercise, f"not your own: {outcome.got}")
            if outcome.verdict != "passed" and not first:
                first = _feedback(outcome)
    finally:
        process.end()
    count = f"{passed} of {len(rules)} rules"
    message = f"{count}; first broken: {first}" if first else count
    points = round(exercise.points * passed / len(rules), 2)
    return Mark(exercise.id, points, exercise.points, message, late, process.missing)


def _earlier(submission: Submission, exercise: Exercise) -> dict[str, str]:
    """The student's own parts of earlier exercises of this lab: file name in a workspace → module."""
    own = {}
    for earlier in catalogue.of_lab(exercise.lab):
        if earlier.id == exercise.id:
            break
        with contextlib.suppress(NothingToGrade):
            own[Workspace().path(earlier).name] = submission.module_text(earlier)
    return own


def _run(rule: Any, process: PartProcess, seed: int) -> Outcome:
    """The outcome, with `got` reduced to what says nothing of the inputs."""
    outcome = run_rule(rule, _Loading(process), seed)
    if outcome.verdict == "off limits":
        return outcome
    outcome.got = ""
    if outcome.expected == "no exception" and process.line is not None and process.line.last_error:
        kind, line = process.line.last_error
        outcome.got = f"it raised {kind}{f' at the line `{line}`' if line else ''}. "
    if outcome.verdict == "unsolved":
        outcome.got, outcome.hint = "not implemented yet. ", ""
    return outcome


class _Loading:
    """Loads the part when the rule first uses it, so that what its module raises is the rule's outcome."""

    def __init__(self, process: PartProcess) -> None:
        self._process, self._part = process, None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._loaded()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded(), name)

    def _loaded(self) -> Any:
        if self._part is None:
            self._part = self._process.part()
        return self._part


def _feedback(outcome: Outcome) -> str:
    return f"{outcome.rule}. {outcome.got}{outcome.hint}".strip()
