"""Run a student's whole notebook, top to bottom, and say how far it got. It changes no points.

The cells are the student's, but each check cell is the lab's own again, whether it was edited, deleted or
copied, and the kernel is Python's, whatever the notebook's metadata name. They run in a confined kernel
(kernel.py) with an empty workspace, under limits on memory, and on computing and waiting for a cell and
for the notebook. The first cell that raises, or that takes too much, ends the run. What the kernel sends
is only looked at: it cannot earn anything.
"""

from __future__ import annotations

import contextlib
import queue
import re
import secrets
import select
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...model.fetch import cache_dir
from .. import catalogue
from ..source import Definition
from . import kernel
from .process import Nursery, cpu_of
from .submission import Submission

MAX_MESSAGE = 64 << 20
PLACE = re.compile(r"Cell In\s?\[(\d+)\], line (\d+)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
START_S = 60.0


@dataclass(frozen=True)
class RunLimits:
    """Seconds: of the kernel's processor time, and of the clock, which counts checks, too."""

    cell_cpu_s: float = 60.0
    cell_wall_s: float = 150.0
    notebook_cpu_s: float = 240.0
    notebook_wall_s: float = 600.0


class Stopped(Exception):
    """The run ended inside a cell; the text says why."""


def execute(submission: Submission, lab: int, nursery: Nursery, limits: RunLimits) -> dict[str, Any]:
    """{"cells_run", "cells", "stopped"}: how many code cells ran to their end, of how many, and None or
    {"cell" (counted from 1), "error", "line" (of the student's code, or "")} of the one that did not."""
    cells = canonical_cells(submission, lab)
    run = _Run(nursery, limits)
    done = 0
    try:
        run.start()
        for text in cells:
            run.cell(text)
            done += 1
    except Stopped as stopped:
        where = {"cell": done + 1, "error": str(stopped), "line": run.line}
        return {"cells_run": done, "cells": len(cells), "stopped": where}
    finally:
        run.end()
    return {"cells_run": done, "cells": len(cells), "stopped": None}


def in_words(result: dict[str, Any]) -> str:
    """One line for a table."""
    stopped, count = result["stopped"], f"{result['cells_run']} of {result['cells']} code cells ran"
    if stopped is None:
        return count
    if stopped["cell"] is None:
        return stopped["error"]
    line = f" at the line `{stopped['line']}`" if stopped["line"] else ""
    return f"{count}; cell {stopped['cell']}: {stopped['error']}{line}"


def canonical_cells(submission: Submission, lab: int) -> list[str]:
    """The code cells as they are run: the student's, with the lab's own check cells behind the parts."""
    cells = [(source.text, source.grade_id or "") for source in submission.sources]
    for exercise in catalogue.of_lab(lab):
        mark, check = exercise.id.replace(".", "-"), f"lab.check({exercise.name})"
        places = [i for i, (_, grade_id) in enumerate(cells) if grade_id == f"check-{mark}"]
        places = places or [i for i, (text, _) in enumerate(cells) if text.strip() == check]
        if places:
            cells[places[0]] = (check, f"check-{mark}")
            cells = [cell for i, cell in enumerate(cells) if i not in places[1:]]
        elif (home := _place_of_part(submission, cells, exercise.name)) is not None:
            cells.insert(home + 1, (check, f"check-{mark}"))
    return [text for text, _ in cells if text.strip()]


def _place_of_part(submission: Submission, cells: list[tuple[str, str]], name: str) -> int | None:
    defining = [s.text for s in submission.sources if s.cell and s.cell.binding(name, Definition)]
    return next((i for i in reversed(range(len(cells))) if cells[i][0] in defining), None)


class _Run:
    """A kernel in a process of its own, and its client."""

    def __init__(self, nursery: Nursery, limits: RunLimits) -> None:
        self.nursery, self.limits = nursery, limits
        self.client = self.ours = None
        self.pid, self.line = 0, ""
        self.texts: dict[int, str] = {}  # execution count → cell

    def start(self) -> None:
        import zmq
        from jupyter_client import BlockingKernelClient

        folder = Path(tempfile.mkdtemp(prefix="minivllm-run-"))
        for name in ("home", "my_engine"):
            (folder / name).mkdir()
        kernel.write_connection(folder, secrets.token_hex(16))
        connection = str(folder / kernel.CONNECTION)
        self.ours, theirs = socket.socketpair()
        self._begin(self.limits.cell_cpu_s, START_S)
        self.started = time.monotonic()
        with theirs:
            cpu_s = self.limits.notebook_cpu_s
            answer = self.nursery.start(folder, theirs, cpu_s, kernel=str(cache_dir()))
        if answer["missing"] is None:
            raise Stopped("the kernel could not be confined, so nothing was run")
        self.pid = answer["pid"]
        context = zmq.Context()
        context.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE)
        self.client = BlockingKernelClient(connection_file=connection, context=context)
        self.client.load_connection_file()
        self.client.start_channels(stdin=False, hb=False)
        heard, asked = False, 0.0
        while not heard:  # until what the kernel publishes arrives
            if time.monotonic() - asked > 0.5:
                self.client.kernel_info()
                asked = time.monotonic()
            heard = self._next() is not None

    def cell(self, text: str) -> None:
        """Run one cell to its end. `Stopped` if it does not come there by itself."""
        self._begin(self.limits.cell_cpu_s, self.limits.cell_wall_s)
        asked, error = self.client.execute(text, allow_stdin=False), None
        while True:
            message = self._next()
            if message is None or message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "execute_input":
                self.texts[content.get("execution_count")] = text
            elif kind == "error":
                error = content
            elif kind == "status" and content.get("execution_state") == "idle":
                break
        if error is not None:
            self.line = self._line_of(error)
            value = " ".join(str(error.get("evalue")).split())
            name = str(error.get("ename"))[:80]
            raise Stopped(f"{name}: {value[:200]}" if value else name)

    def end(self) -> None:
        if self.client is not None:
            self.client.stop_channels()
            self.client.context.destroy(linger=0)
        if self.ours is not None:
            self.ours.close()
        self.nursery.end()

    def _begin(self, cpu_s: float, wall_s: float) -> None:
        self.cpu, self.wall = cpu_of(self.pid) + cpu_s, time.monotonic() + wall_s
        self.cpu_s, self.wall_s = cpu_s, wall_s

    def _next(self) -> dict[str, Any] | None:
        """What the kernel publishes next; None if that takes long or is no message."""
        self._watch()
        with contextlib.suppress(queue.Empty, ValueError, TypeError, KeyError):
            message = self.client.get_iopub_msg(timeout=0.1)
            if all(isinstance(message[part], dict) for part in ("header", "parent_header", "content")):
                return message
        return None

    def _watch(self) -> None:
        limits, now, cpu = self.limits, time.monotonic(), cpu_of(self.pid)
        if cpu > self.cpu:
            raise Stopped(f"no end after {self.cpu_s:g} s of computing")
        if now > self.wall:
            raise Stopped(f"no end after {self.wall_s:g} s")
        if cpu > limits.notebook_cpu_s:
            raise Stopped(f"the notebook took over {limits.notebook_cpu_s:g} s of computing")
        if now - self.started > limits.notebook_wall_s:
            raise Stopped(f"the notebook took over {limits.notebook_wall_s:g} s")
        if select.select([self.ours], [], [], 0)[0]:
            raise Stopped("its kernel ended (out of memory, or ended by the code itself)")

    def _line_of(self, error: dict[str, Any]) -> str:
        """The deepest line of a cell in the traceback."""
        traceback = error.get("traceback")
        text = "\n".join(map(str, traceback)) if isinstance(traceback, list) else ""
        for count, number in reversed(PLACE.findall(COLOURS.sub("", text))):
            lines = self.texts.get(int(count), "").splitlines()
            if 0 < int(number) <= len(lines):
                return lines[int(number) - 1].strip()[:200]
        return ""
