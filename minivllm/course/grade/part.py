"""The part process: one student's class or function, and a socket over which it is called.

It runs in its scratch folder, confined, and loads part.py from there. It knows the exercise's name and what
is off limits, nothing of rules or points.
"""

from __future__ import annotations

import os
import socket
import traceback
from pathlib import Path
from typing import Any

from .. import NotImplementedYet  # noqa: F401 so that it is known by name
from ..off_limits import put_off_limits
from ..workspace import load_module
from .rpc import Endpoint
from .values import ROOT

MODULE = "part.py"


def main(sock: socket.socket, scratch: Path) -> None:
    source = str(scratch / MODULE)

    def line_of(error: BaseException) -> int | None:
        frames = traceback.extract_tb(error.__traceback__)
        return next((frame.lineno for frame in reversed(frames) if frame.filename == source), None)

    def load(name: str, paths: list[str]) -> Any:
        for path in paths:
            put_off_limits(path)
        endpoint.border.keep(ROOT, getattr(load_module(Path(source), "part_under_test"), name))

    def reset() -> None:
        endpoint.border.forget()
        endpoint.raised.clear()

    endpoint = Endpoint(sock, careful=False, line_of=line_of)
    try:
        endpoint.serve_for_ever({"load": load, "reset": reset})
    except SystemExit:
        os._exit(3)
