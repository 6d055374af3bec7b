"""`python -m minivllm.course.grade.nursery FD`: starts part processes, and ends them with all they started.

It has imported torch once, so a fork takes milliseconds where a start takes seconds. It has its own clean
environment, has never seen a contract, a seed or a submission, and so a part process, its copy, has nothing
to find in its memory. It is a subreaper (Linux): what a part leaves behind becomes its child, and is ended.

Asked over a socket, one JSON object a line: {"start": folder, "cpu_s": s} with one socket beside it
answers {"pid", "missing"}; {"end": true} answers {"cpu_s"} when nothing is left. With "kernel": folder of
the models, what is started is a Jupyter kernel instead (kernel.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

from . import kernel

# What parts of the labs import, loaded once here instead of once in each process.
PRELOADED = (
    "torch",
    "numpy",
    "minivllm.attention.dense",
    "minivllm.course.grade.part",
    "minivllm.kv.blocks",
)
END_S = 10.0
_SUBREAPER = 36


def main(descriptor: str) -> None:
    control = socket.socket(fileno=int(descriptor))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    for name in PRELOADED:
        importlib.import_module(name)
    with contextlib.suppress(ImportError):  # not on every system; whoever needs it is not graded there
        importlib.import_module("triton")
    sys.modules["torch"].set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the grader's; it closes the socket
    child, scratch = 0, ""
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 1)
        while data and not data.endswith(b"\n"):
            data += control.recv(1 << 16)
        if not data:
            _end(child, scratch)
            return
        request = json.loads(data)
        if "start" in request:
            scratch = request["start"]
            if "kernel" in request:
                kernel.preload()
            child, answer = _start(control, descriptors[0], request)
        else:
            answer = _end(child, scratch)
            child = 0
        control.sendall(json.dumps(answer).encode() + b"\n")


def _start(control: socket.socket, descriptor: int, request: dict) -> tuple[int, dict]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            control.close()
            os.close(reading)
            _become(descriptor, writing, Path(request["start"]), request)
        finally:
            os._exit(0)
    os.close(writing)
    os.close(descriptor)
    with open(reading, "rb") as pipe:
        said = pipe.read(1 << 16)
    return child, {"pid": child, "missing": json.loads(said) if said else None}


def _become(descriptor: int, writing: int, scratch: Path, request: dict) -> None:
    """The part process, or the kernel, that was asked for."""
    from . import confine, part

    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    kept = sorted({0, 1, 2, descriptor, writing})
    for low, high in zip(kept, [*kept[1:], 4096], strict=True):
        os.closerange(low + 1, high)
    os.chdir(scratch)
    folder = str(scratch)
    settings = {"HOME": folder, "TMPDIR": folder, "USER": "part", "LOGNAME": "part"}
    os.environ.update({**settings, "MINIVLLM_WORKSPACE": str(scratch / "my_engine")})
    models = Path(request["kernel"]) if "kernel" in request else None
    room = kernel.room(models) if models else None
    missing = confine.confine(scratch, request["cpu_s"], room)
    os.write(writing, json.dumps(missing).encode())
    os.close(writing)
    if room is None:
        part.main(socket.socket(fileno=descriptor), scratch)
    else:
        kernel.main(scratch, models)


def _end(child: int, scratch: str) -> dict[str, float]:
    """Kill the child, its group, and everything that became ours when its parent ended; then take its
    scratch folder away."""
    deadline = time.monotonic() + END_S
    if child:
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(child, signal.SIGKILL)
    while time.monotonic() < deadline:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            break
        time.sleep(0.001)
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"cpu_s": used.ru_utime + used.ru_stime}


def _children() -> list[int]:
    """Processes whose parent is this one."""
    found = []
    for entry in os.listdir("/proc") if os.path.exists("/proc/self/stat") else ():
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                    found.append(int(entry))
    return found


if __name__ == "__main__":
    main(sys.argv[1])
