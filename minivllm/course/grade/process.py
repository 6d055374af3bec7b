"""The marker's side of a part process: start it, call it, measure it, end it.

A part that ends, hangs, or sends nonsense raises `PartLost` in whatever rule is calling it. That is no
`Exception`, so no rule can take it for the part's answer; the rule is broken, and the next one gets a new
process, as long as the part's time is not used up.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..catalogue import Exercise
from .part import MODULE
from .rpc import Endpoint
from .tensors import BadMessage
from .values import ROOT, Remote

CLOSE_S = 10.0


@dataclass(frozen=True)
class Limits:
    """Seconds: of processor time, which neighbours on a busy machine cannot use up, and of the clock."""

    call_cpu_s: float = 4.0
    part_cpu_s: float = 10.0
    call_wall_s: float = 20.0
    part_wall_s: float = 60.0


class PartLost(BaseException):
    """The part process gave no answer. `late` if it was stopped by the clock alone."""

    def __init__(self, text: str, late: bool = False) -> None:
        super().__init__(text)
        self.late = late


class Nursery:
    """The process that starts part processes; one for each marker that runs at a time."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair()
        with theirs:
            package = str(Path(__file__).parents[3])
            settings = {"PYTHONPATH": package, "PATH": os.defpath, "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
            settings |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1", "PYTHONDONTWRITEBYTECODE": "1"}
            command = [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]
            command += ["-m", "minivllm.course.grade.nursery", str(theirs.fileno())]
            null = subprocess.DEVNULL
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=settings, cwd="/", stdin=null, stdout=null
            )

    def start(self, folder: Path, sock: socket.socket, cpu_s: float, **more: str) -> dict[str, Any]:
        request = json.dumps({"start": str(folder), "cpu_s": cpu_s, **more}).encode()
        socket.send_fds(self.control, [request + b"\n"], [sock.fileno()])
        return self._answer()

    def end(self) -> None:
        """End the part process, if there is one, and all that it started."""
        self.control.sendall(b'{"end": true}\n')
        self._answer()

    def close(self) -> None:
        """It ends its part process, and then itself, when nobody holds the socket any more."""
        self.control.close()
        try:
            self.process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _answer(self) -> dict[str, Any]:
        data = b""
        while not data.endswith(b"\n"):
            piece = self.control.recv(1 << 16)
            if not piece:
                raise EOFError("the nursery has ended")
            data += piece
        return json.loads(data)


class PartProcess:
    """One exercise's part, in a process that is started when it is first needed."""

    def __init__(self, nursery: Nursery, exercise: Exercise, text: str, limits: Limits) -> None:
        self.nursery, self.exercise, self.text, self.limits = nursery, exercise, text, limits
        self.upstream: dict[str, str] = {}  # further modules for its workspace: file name → text
        self.missing: list[str] = []  # what could not be enforced
        self.line: _Line | None = None
        self.pid, self.cpu_before, self.started = 0, 0.0, time.monotonic()
        self.call_started = self.call_cpu = 0.0

    def part(self) -> Remote:
        """The class or function, on which a rule can be run. `PartLost` if it cannot be loaded in time;
        the exception that its module raises, if it does."""
        if self.line is None:
            self._start()
            paths = [f"minivllm.{self.exercise.reference}", *self.exercise.off_limits]
            self.line.request({"do": "load"}, (self.exercise.name, paths))
        else:
            self.line.request({"do": "reset"})
            self.line.border.forget()
            self.line.raised.clear()
        self.line.last_error = None
        return Remote(self.line, ROOT, self.exercise.name, True)

    def end(self) -> None:
        if self.line is not None:
            self.cpu_before += self._cpu()
            self.line.sock.close()
            self.nursery.end()
            self.line, self.pid = None, 0

    def begin_call(self) -> None:
        self.call_started, self.call_cpu = time.monotonic(), self._cpu()

    def check_time(self) -> None:
        now, cpu, limits = time.monotonic(), self._cpu(), self.limits
        if cpu - self.call_cpu > limits.call_cpu_s:
            raise PartLost(f"no answer after {limits.call_cpu_s:g} s of computing")
        if self.cpu_before + cpu > limits.part_cpu_s:
            raise PartLost(f"all its checks together took over {limits.part_cpu_s:g} s of computing")
        if now - self.call_started > limits.call_wall_s:
            raise PartLost(f"no answer after {limits.call_wall_s:g} s", late=True)
        if now - self.started > limits.part_wall_s:
            raise PartLost(f"all its checks together took over {limits.part_wall_s:g} s", late=True)

    def _start(self) -> None:
        self.begin_call()
        self.check_time()
        self.folder = Path(tempfile.mkdtemp(prefix="minivllm-part-"))
        (self.folder / MODULE).write_text(self.text, encoding="utf-8")
        (self.folder / "my_engine").mkdir()
        for name, text in self.upstream.items():
            (self.folder / "my_engine" / name).write_text(text, encoding="utf-8")
        ours, theirs = socket.socketpair()
        with theirs:
            cpu_s = self.limits.part_cpu_s - self.cpu_before
            answer = self.nursery.start(self.folder, theirs, cpu_s)
        self.line = _Line(ours, self)
        if answer["missing"] is None:
            raise PartLost("the process could not be confined, so it was not run")
        self.pid, self.missing = answer["pid"], answer["missing"]

    def _cpu(self) -> float:
        return cpu_of(self.pid)


def cpu_of(pid: int) -> float:
    """Seconds of processor time of a process; 0 where the system does not say (its own limit holds)."""
    with contextlib.suppress(OSError, AttributeError):
        if pid and sys.platform == "linux":
            return time.clock_gettime((~pid << 3) | 2)
    return 0.0


class _Line(Endpoint):
    """The socket to the part, watched by the clock."""

    def __init__(self, sock: socket.socket, process: PartProcess) -> None:
        super().__init__(sock, careful=True, wait=process.check_time)
        self.process = process
        self.last_error: tuple[str, str] | None = None  # (type, line of the part) of what it raised

    def request(self, message: dict[str, Any], args: tuple = (), kwargs: Any = None) -> Any:
        if not self.border.in_progress:
            self.process.begin_call()
        try:
            return super().request(message, args, kwargs)
        except EOFError:
            raise PartLost("its process ended instead of answering") from None
        except BadMessage as error:
            raise PartLost(f"its process sent what is no answer ({error})") from None

    def _error_from(self, answer: Any) -> BaseException:
        error = super()._error_from(answer)
        number, lines = answer.get("line"), self.process.text.splitlines()
        line = lines[number - 1].strip() if type(number) is int and 0 < number <= len(lines) else ""
        self.last_error = (getattr(error, "part_kind", type(error).__name__), line)
        return error
