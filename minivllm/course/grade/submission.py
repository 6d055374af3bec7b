"""What a student's notebook says, read without running it and without believing its metadata.

An exercise's part is the last cell that defines it by name and is no stub any more; among those, a cell
with the lab's own `solve-1-3` mark comes first. So a lost mark, a copied cell, a check that was edited or
deleted and outputs that were typed in change nothing. Its helpers and imports are collected from the other
cells, as `lab.check` does. A file that is no notebook is a submission with nothing in it, and says so.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import catalogue
from ..catalogue import Exercise
from ..source import Cell, collect, stubs_in, without_line_magics

MAX_BYTES = 64 << 20
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


class NothingToGrade(Exception):
    """There is no part for this exercise; the text says why."""


@dataclass
class _Source:
    text: str
    grade_id: str | None
    cell: Cell | None = None  # None: it is not Python
    fault: str = ""


class Submission:
    """One notebook. `problem` says why it could not be read, if so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self.sources: list[_Source] = []
        try:
            self.sources = [_parsed(source) for source in _code_cells(path)]
        except (OSError, *UNREADABLE) as error:
            reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
            self.problem = f"not a notebook: {reason or type(error).__name__}"[:200]

    def lab(self) -> int | None:
        """Which lab it is: by its cells' marks, by course.open(…), or by a name like 01_naive_kv_cache."""
        marks = [source.grade_id or "" for source in self.sources]
        found = [re.match(r"(?:solve|check)-(\d+)-", mark) for mark in marks]
        found += [re.search(r"\bcourse\.open\(\s*(\d+)\s*\)", source.text) for source in self.sources]
        found += [re.match(r"0*(\d+)[_\-. ]", name) for name in (self.path.name, self.path.parent.name)]
        numbers = [int(match[1]) for match in found if match]
        return next((number for number in numbers if number in catalogue.LABS), None)

    def module_text(self, exercise: Exercise) -> str:
        """A module that defines the exercise's part. `NothingToGrade` if none of it is written."""
        if self.problem:
            raise NothingToGrade(self.problem)
        home = self._home(exercise)
        cells = [source.cell for source in reversed(self.sources) if source.cell is not None]
        try:
            return collect(home, cells, exercise, {})
        except UNREADABLE as error:
            raise NothingToGrade(f"{exercise.name} cannot be read: {type(error).__name__}") from None

    def _home(self, exercise: Exercise) -> Cell:
        marked = f"solve-{exercise.id.replace('.', '-')}"
        found = []
        for place, source in enumerate(self.sources):
            halves = source.cell.halves(exercise.name) if source.cell else []
            if halves:
                done = not any(map(_is_stub, halves))
                found.append((done, source.grade_id == marked, place, source.cell))
        if found and max(found, key=lambda entry: entry[:3])[0]:
            return max(found, key=lambda entry: entry[:3])[3]
        if found:
            raise NothingToGrade("not implemented yet")
        named = re.compile(rf"^\s*(?:class|(?:async )?def)\s+{exercise.name}\b", re.M)
        for source in self.sources:
            if source.cell is None and (source.grade_id == marked or named.search(source.text)):
                raise NothingToGrade(f"the cell that defines {exercise.name} is no Python: {source.fault}")
        raise NothingToGrade(f"no cell defines {exercise.name}")


def _code_cells(path: Path) -> list[_Source]:
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"the file has more than {MAX_BYTES >> 20} MB")
    text = path.read_text(encoding="utf-8-sig")
    if not text.strip():
        raise ValueError("the file is empty")
    notebook = json.loads(text)
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise ValueError("it has no list of cells")
    code = [cell for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    return [_Source(_joined(cell.get("source")), _grade_id(cell)) for cell in code]


def _joined(source: Any) -> str:
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str))


def _grade_id(cell: dict[str, Any]) -> str | None:
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    return grade_id if isinstance(grade_id, str) else None


def _parsed(source: _Source) -> _Source:
    """With its statements, line magics left out."""
    for text in (source.text, without_line_magics(source.text)):
        try:
            source.cell = Cell(text)
            break
        except UNREADABLE as error:
            line = f"line {error.lineno}: " if isinstance(error, SyntaxError) else ""
            source.fault = f"{line}{getattr(error, 'msg', None) or type(error).__name__}"
    return source


def _is_stub(definition: ast.stmt) -> bool:
    """Nothing in it is written: every function of it begins by raising `NotImplementedYet`."""
    functions = [node.name for node in ast.walk(definition) if isinstance(node, ast.FunctionDef)]
    return bool(functions) and len(stubs_in(definition)) == len(functions)
