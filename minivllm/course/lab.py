"""`Lab`: what a notebook says to the course, and what the course says back.

Everything is printed as plain text, the same on every machine, so that a notebook's output can be
compared and read aloud. Nothing here raises for what a reader wrote: a wrong part is a message.
"""

from __future__ import annotations

import ast
import sys
from typing import Any

from ..config import DEFAULT_MODEL
from ..parts import Parts
from ..scheduler.levels import AboveLevel
from . import OffLimits, catalogue
from .catalogue import Exercise
from .checking import Verdict, check_module, unsolved
from .grade.one import mark_in_a_process
from .source import SourceNotFound, module_text, stubs_in
from .workspace import Workspace

MARKS = {"passing": "✓", "failing": "✗", "unsolved": "·", "not here": "-"}


class Lab:
    """One lab, `number` being its number. `ValueError` names the labs that there are."""

    def __init__(self, number: int, workspace: Workspace | None = None) -> None:
        if number not in catalogue.LABS:
            known = ", ".join(map(str, catalogue.LABS))
            raise ValueError(f"there is no lab {number!r}; the labs are {known}")
        self.number = number
        self.exercises = catalogue.of_lab(number)
        self.workspace = workspace or Workspace()

    def check(self, part: Any, exercise_id: str | None = None) -> None:
        """Check a class or function that you wrote, print what came of it, and keep it if it passes."""
        try:
            exercise = self._exercise_of(part, exercise_id)
            if exercise.missing:
                print(f"- {exercise.id} not checked here: {exercise.missing}; it costs no points")
                return
            verdict = self._check(part, exercise)
            noted = {"state": verdict.state, "passed": verdict.passed, "num_rules": verdict.num_rules}
            self.workspace.note("checks", exercise.id, noted)
            print(verdict.text)
        except Exception as error:  # a check must not stop the notebook
            print(f"✗ not checked: {error}")

    def part(self, exercise_id: str) -> Any:
        """Your part if it has passed, else the reference; prints which."""
        exercise = catalogue.find(exercise_id)
        mine = self._mine(exercise)
        if mine is None:
            print(f"{exercise.title}: {self._why_reference(exercise)}")
            return exercise.load_reference()
        failing = self._state(exercise) == "failing"
        print(f"{exercise.title}: yours{', the version that passed' if failing else ''}")
        return mine

    def reference(self, exercise_id: str) -> Any:
        """The course's own answer. Read it after yours passes."""
        return catalogue.find(exercise_id).load_reference()

    def engine(self, model: str = DEFAULT_MODEL, **settings: Any):
        """An `LLM` with your parts where they pass and minivllm's for the rest; prints which is which. Of
        several exercises for one part the last that passes counts. A scheduler of yours that has not
        shown what the settings ask for stays out, too."""
        from ..llm import LLM

        parts: dict[str, Any] = {}
        for engine_part, exercises in self._by_engine_part().items():
            field, _, name = engine_part.partition(".")
            if field == "kernels" and settings.get("attention_backend") != "triton":
                continue  # nothing would call them
            found = [(e, mine) for e in exercises if (mine := self._mine(e)) is not None]
            exercise, mine = found[-1] if found else (exercises[-1], None)
            whose = "yours" if found else "minivllm's"
            print(f"engine: {engine_part} is {whose} ({exercise.title})")
            if found and name:
                parts.setdefault(field, {})[name] = mine
            elif found:
                parts[field] = mine
                parts |= {"scheduler_level": exercise.level} if exercise.level else {}
        try:
            return LLM(model, parts=Parts(**parts), **settings)
        except AboveLevel as error:
            print(f"engine: scheduler is minivllm's after all: {error}")
            del parts["scheduler"], parts["scheduler_level"]
            return LLM(model, parts=Parts(**parts), **settings)

    def predict(self, exercise_id: str, value: Any) -> None:
        """Keep a prediction, made before the measurement. None is none."""
        if value is None or (isinstance(value, list | tuple) and None in value):
            print(f"{exercise_id}: no prediction yet. Type a number and run this cell again.")
            return
        self.workspace.note("predictions", exercise_id, value)
        print(f"{exercise_id}: you predict {value}")

    def compare(self, exercise_id: str, measured: Any) -> None:
        """Print the prediction beside what was measured."""
        predicted = self.workspace.noted("predictions", exercise_id)
        said = "you made no prediction" if predicted is None else f"you predicted {predicted}"
        print(f"{exercise_id}: {said}; it is {measured}")

    def progress(self) -> None:
        """Print this lab's chain of exercises and where you are on it."""
        for exercise in self.exercises:
            state = self._state(exercise)
            path = "core" if exercise.core else "extra"
            head = f"{MARKS[state]} {exercise.title:<24} {path:<6} {exercise.points} pt"
            print(f"{head}  {self._detail(exercise, state)}")
        here = [exercise for exercise in self.exercises if not exercise.missing]
        done = [exercise for exercise in here if self.workspace.has(exercise)]
        points = sum(exercise.points for exercise in done)
        total = sum(exercise.points for exercise in here)
        print(f"{len(done)} of {len(here)} parts are yours, {points} of {total} points")

    def grade(self, exercise_id: str) -> float:
        """Points for the part that the notebook now defines, as nbgrader's hidden tests want them: more
        than 0 in part or in full; `AssertionError` for none. Nothing is printed and nothing is kept."""
        exercise = catalogue.find(exercise_id)
        assert not exercise.missing, f"{exercise_id}: cannot be graded here, {exercise.missing}"
        part = vars(sys.modules["__main__"]).get(exercise.name)
        own = not str(getattr(part, "__module__", "")).startswith("minivllm.")
        assert part is not None and own, f"{exercise_id}: no points, there is no {exercise.name} of yours"
        text, definition = module_text(part, exercise)
        assert exercise.name not in stubs_in(definition), f"{exercise_id}: no points, not implemented yet"
        mark = mark_in_a_process(exercise, text)
        assert mark["points"] > 0, f"{exercise_id}: no points, {mark['message']}"
        return mark["points"]

    def _check(self, part: Any, exercise: Exercise) -> Verdict:
        if str(getattr(part, "__module__", "")).startswith("minivllm."):
            text = f"✗ {exercise.id} this is minivllm's own {exercise.name}; write one yourself"
            return Verdict("failing", 0, 0, text)
        try:
            text, _ = module_text(part, exercise)
        except (SourceNotFound, OffLimits) as error:
            return Verdict("failing", 0, 0, f"✗ {exercise.id} not checked: {error}")
        stubs = stubs_in(ast.parse(text))  # in it, or in a kernel that it launches
        if stubs:
            return unsolved(exercise, stubs)
        verdict = check_module(exercise, text)
        if verdict.state == "passing":
            self.workspace.keep(exercise, text)
        return verdict

    def _exercise_of(self, part: Any, exercise_id: str | None) -> Exercise:
        if exercise_id is not None:
            return catalogue.find(exercise_id)
        name = getattr(part, "__name__", None)
        for exercise in self.exercises:
            if exercise.name == name:
                return exercise
        names = ", ".join(exercise.name for exercise in self.exercises)
        raise ValueError(f"lab.check takes {names}, the class or function itself; this is {part!r:.80}")

    def _by_engine_part(self) -> dict[str, list[Exercise]]:
        """The exercises up to this lab that fill a part of the engine, by the part."""
        found: dict[str, list[Exercise]] = {}
        for exercise in catalogue.EXERCISES:
            if exercise.engine_part and exercise.lab <= self.number:
                found.setdefault(exercise.engine_part, []).append(exercise)
        return found

    def _mine(self, exercise: Exercise) -> Any:
        """The saved part, or None; one that no longer loads, or lacks a package here, is not there."""
        if exercise.missing or not self.workspace.has(exercise):
            return None
        try:
            return self.workspace.load(exercise)
        except Exception as error:
            print(f"{exercise.title}: {self.workspace.path(exercise).name} does not load ({error})")
            return None

    def _state(self, exercise: Exercise) -> str:
        if exercise.missing:
            return "not here"
        return (self.workspace.noted("checks", exercise.id) or {}).get("state", "unsolved")

    def _why_reference(self, exercise: Exercise) -> str:
        if exercise.missing:
            return f"a stand-in in torch ({exercise.missing})"
        why = {"unsolved": "is not done yet", "failing": "does not pass yet", "passing": "is not there"}
        return f"the reference (yours {why[self._state(exercise)]})"

    def _detail(self, exercise: Exercise, state: str) -> str:
        noted = self.workspace.noted("checks", exercise.id) or {}
        if state == "failing" and self.workspace.has(exercise):
            return f"{noted['passed']} of {noted['num_rules']} rules; the version that passed is kept"
        if state == "failing" and noted["num_rules"]:
            return f"{noted['passed']} of {noted['num_rules']} rules"
        return state
