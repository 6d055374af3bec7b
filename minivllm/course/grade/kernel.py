"""A Jupyter kernel in a confined process: what runs a student's whole notebook.

Its sockets are files in the scratch folder (ipc), so it needs no network. Its home, its workspace and all
that it writes are there, too; it can read Python's files and the models, and nothing of the grader's.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from pathlib import Path

from .confine import Room

CONNECTION = "kernel.json"
# What every lab imports, loaded once before the fork.
PRELOADED = (
    "ipykernel.kernelapp",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "minivllm.llm",
    "minivllm.course.lab",
)
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


def preload() -> None:
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    for name in PRELOADED:
        importlib.import_module(name)


def room(models: Path) -> Room:
    """SmolLM2 in float32 twice over, a KV cache, and a check in a child process."""
    readable = (models, Path(sys.prefix) / "pyvenv.cfg")  # a check starts a Python of its own
    return Room(memory=8 << 30, open_files=512, processes=128, readable=readable)


def write_connection(scratch: Path, key: str) -> None:
    """The file from which kernel and client know their sockets."""
    connection = {"transport": "ipc", "ip": str(scratch / "socket"), "key": key}
    connection |= {name: number for number, name in enumerate(PORTS, 1)}
    connection |= {"signature_scheme": "hmac-sha256", "kernel_name": "python3"}
    (scratch / CONNECTION).write_text(json.dumps(connection))


def main(scratch: Path, models: Path) -> None:
    """Be a kernel until somebody ends this process."""
    os.environ["MINIVLLM_CACHE"] = str(models)
    # A check starts a Python, which may read this package and must not look at what lies beside it.
    (scratch / "python").mkdir()
    (scratch / "python" / "minivllm").symlink_to(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = str(scratch / "python")
    for name in (
        "IPYTHONDIR",
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "MPLCONFIGDIR",
    ):
        os.environ[name] = str(scratch / "home")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from ipykernel.kernelapp import IPKernelApp

    app = IPKernelApp.instance()
    app.initialize(["-f", str(scratch / CONNECTION)])
    app.start()
