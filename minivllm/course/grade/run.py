"""Mark many notebooks, each in a process of its own, and lose none of them.

A marker reports each exercise as it is done. If it ends before it is through, the exercise that it was at
gets no points and a new marker does the rest, so a submission that brings down its marker costs itself
that exercise and others nothing. A notebook in which the clock (not processor time) stopped something
beside others is marked once more, alone, at the end. Running the whole notebook comes last, if asked for:
what it brings down, no points depend on.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import resource
import sys
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .. import catalogue
from .execute import execute
from .mark import Mark, Settings, mark_exercise, nothing
from .process import Nursery
from .submission import Submission

MARKER_MEMORY = 4 << 30
RUN = "run"
ENDED = "marking this exercise ended the process that did it"


@dataclass
class Paper:
    """One notebook on its way through the marking."""

    path: Path
    lab: int | None = None
    problem: str = ""
    marks: dict[str, Mark] = field(default_factory=dict)
    at: str = ""  # id of the exercise being marked, or RUN
    execution: dict[str, Any] | None = None  # what execute.py says

    def as_dict(self) -> dict[str, Any]:
        marks = list(self.marks.values())
        points, most = sum(mark.points for mark in marks), sum(mark.max_points for mark in marks)
        exercises = [mark.as_dict() for mark in marks]
        notebook = {"notebook": str(self.path), "points": round(points, 2), "max_points": most}
        extra = {} if self.execution is None else {"execution": self.execution}
        return {**notebook, "exercises": exercises, **extra}


def mark_all(paths: list[Path], jobs: int, settings: Settings, progress: bool = False) -> list[Paper]:
    """A marked paper for each path, in that order."""
    for exercise in catalogue.EXERCISES:  # once here, not once in each marker
        import_module(f"minivllm.course.contracts.{exercise.contract}")
    papers = [Paper(path) for path in paths]
    with tqdm(total=len(papers), unit="notebook", disable=not progress) as bar:
        _mark(papers, max(1, min(jobs, len(papers))), settings, bar)
        late = [paper for paper in papers if any(mark.late for mark in paper.marks.values())]
        if jobs > 1 and len(papers) > 1 and late:
            again = [Paper(paper.path) for paper in late]
            bar.total += len(again)
            _mark(again, 1, replace(settings, execute=False), bar)
            for paper, second in zip(late, again, strict=True):
                for id, mark in second.marks.items():
                    if mark.points >= paper.marks[id].points:
                        paper.marks[id] = mark
    _fill(papers)
    return papers


def _mark(papers: list[Paper], jobs: int, settings: Settings, bar: tqdm) -> None:
    waiting, running = deque(papers), {}
    with contextlib.ExitStack() as stack:
        free = [stack.enter_context(_Slot()) for _ in range(jobs)]
        while waiting or running:
            while waiting and free:
                slot = free.pop()
                running[slot.start(waiting.popleft(), settings)] = slot
            for connection in wait(list(running), timeout=1):
                if running[connection].hear():
                    free.append(running.pop(connection))
                    _finish(free[-1], waiting, bar)
            for connection, slot in list(running.items()):
                if slot.is_overdue():
                    slot.process.kill()
                    running.pop(connection)
                    free.append(slot)
                    _finish(slot, waiting, bar)


def _finish(slot: _Slot, waiting: deque, bar: tqdm) -> None:
    """The marker of this slot has ended. Its paper is done, or goes back for what is left."""
    paper, whole = slot.paper, slot.end()
    if not whole and paper.at == RUN:
        stopped = {"cell": None, "error": "running the notebook ended the process that did it", "line": ""}
        paper.execution = {"cells_run": 0, "cells": 0, "stopped": stopped}
    elif not whole and paper.lab is not None and paper.at:
        paper.marks[paper.at] = nothing(catalogue.find(paper.at), ENDED)
        waiting.appendleft(paper)
        return
    elif not whole:
        paper.problem = paper.problem or "reading this notebook ended the process that did it"
    bar.update()


def _fill(papers: list[Paper]) -> None:
    """A file that says nothing of itself is taken for the lab that most of the others are."""
    known = Counter(paper.lab for paper in papers if paper.lab is not None)
    for paper in papers:
        if paper.lab is None and known:
            paper.lab = known.most_common(1)[0][0]
        for exercise in catalogue.of_lab(paper.lab) if paper.lab is not None else ():
            paper.marks.setdefault(exercise.id, nothing(exercise, paper.problem or "not marked"))
        paper.marks = {id: paper.marks[id] for id in sorted(paper.marks, key=_order)}


def _order(id: str) -> list[int]:
    return [int(number) for number in id.split(".")]


class _Slot:
    """Room for one marker at a time, with a nursery of its own."""

    def __init__(self) -> None:
        # Where fork is safe, a marker starts with everything imported.
        self.context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self.nursery = self._new_nursery()
        self.process = None

    def __enter__(self) -> _Slot:
        return self

    def __exit__(self, *error: Any) -> None:
        if self.process is not None and self.process.is_alive():
            self.process.kill()
        if self.nursery:
            self.nursery.close()

    def start(self, paper: Paper, settings: Settings) -> Connection:
        self.paper, self.whole = paper, False
        limits, exercises = settings.limits, len(catalogue.EXERCISES)
        self.deadline = time.monotonic() + 60 + exercises * 2 * (limits.part_wall_s + limits.call_wall_s)
        self.deadline += 2 * settings.run_limits.notebook_wall_s if settings.execute else 0
        self.connection, theirs = self.context.Pipe(duplex=False)
        done = list(paper.marks)
        arguments = (theirs, self.nursery, str(paper.path), settings, done)
        self.process = self.context.Process(target=_marker, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        return self.connection

    def hear(self) -> bool:
        """Take in one report. True when there is no more to come."""
        try:
            said = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return True
        if "lab" in said:
            self.paper.lab, self.paper.problem = said["lab"], said["problem"]
        self.paper.at = said.get("at", self.paper.at)
        self.whole = said.get("whole", False)
        self.paper.execution = said.get("execution", self.paper.execution)
        if "mark" in said:
            mark = Mark(**said["mark"])
            self.paper.marks[mark.id] = mark
        return False

    def is_overdue(self) -> bool:
        return time.monotonic() > self.deadline

    def end(self) -> bool:
        """Whether the marker got through. A nursery whose marker did not is not used again."""
        self.process.join()
        self.connection.close()
        if self.nursery and not self.whole:
            self.nursery.close()
            self.nursery = self._new_nursery()
        return self.whole

    def _new_nursery(self) -> Nursery | None:
        return Nursery() if sys.platform == "linux" else None


def _marker(
    connection: Connection, nursery: Nursery | None, path: str, settings: Settings, done: list
) -> None:
    """The process that marks one notebook."""

    def say(**line: Any) -> None:
        connection.send_bytes(json.dumps(line).encode())

    with contextlib.suppress(ValueError, OSError, AttributeError):
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MARKER_MEMORY, size + MARKER_MEMORY))
    own = None if nursery else Nursery()
    try:
        submission = Submission(Path(path))
        lab = submission.lab()
        say(lab=lab, problem=submission.problem)
        if lab is not None:
            for exercise in [e for e in catalogue.of_lab(lab) if e.id not in done]:
                say(at=exercise.id)
                say(mark=asdict(mark_exercise(submission, exercise, nursery or own, settings)))
            if settings.execute and not submission.problem:
                say(at=RUN)
                say(execution=execute(submission, lab, nursery or own, settings.run_limits))
        say(whole=True)
    finally:
        if own:
            own.close()
