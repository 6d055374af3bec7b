"""The reader's own engine on disk: `my_engine/`, one module for each part that has passed.

It lies beside labs/, or where `MINIVLLM_WORKSPACE` says, and git ignores it. Besides the modules it holds
one small file with what the last check of each exercise said and what the reader predicted, so that a
restarted kernel, or a lab opened out of order, loses nothing. Two kernels that note something at once take
turns, by a lock beside that file.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from filelock import FileLock

from .catalogue import Exercise, find

LOCK_S = 30.0  # nobody holds the lock for longer than it takes to write a page


class Workspace:
    """Reads and writes a workspace folder, which is made on the first write."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()

    def path(self, exercise: Exercise) -> Path:
        """Where the exercise's module is once it has passed: ex1_3_contiguous_kv_cache.py."""
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", exercise.name).lower()
        return self.folder / f"ex{exercise.id.replace('.', '_')}_{words}.py"

    def has(self, exercise: Exercise) -> bool:
        return self.path(exercise).is_file()

    def keep(self, exercise: Exercise, module_text: str) -> None:
        self._write(self.path(exercise), module_text)

    def load(self, exercise: Exercise) -> Any:
        """The reader's class or function, from the saved module as it now is."""
        path = self.path(exercise)
        return getattr(load_module(path, f"my_engine.{path.stem}"), exercise.name)

    def note(self, kind: str, exercise_id: str, value: Any) -> None:
        """Remember a value, kind being "checks" or "predictions"."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".progress.lock", timeout=LOCK_S):
            notes = self._notes()
            notes.setdefault(kind, {})[exercise_id] = value
            text = json.dumps(notes, indent=1, ensure_ascii=False) + "\n"
            self._write(self.folder / "progress.json", text)

    def noted(self, kind: str, exercise_id: str) -> Any:
        return self._notes().get(kind, {}).get(exercise_id)

    def _notes(self) -> dict[str, dict[str, Any]]:
        try:
            return json.loads((self.folder / "progress.json").read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            return {}

    def _write(self, path: Path, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def default_folder() -> Path:
    """`MINIVLLM_WORKSPACE`, else my_engine/ beside the labs/ or solutions/ that this process is in."""
    if os.environ.get("MINIVLLM_WORKSPACE"):
        return Path(os.environ["MINIVLLM_WORKSPACE"]).expanduser()
    here = Path.cwd()
    return (here.parent if here.name in ("labs", "solutions") else here) / "my_engine"


def part(exercise_id: str) -> Any:
    """The reader's part if it has passed here, else the reference."""
    exercise, workspace = find(exercise_id), Workspace()
    return workspace.load(exercise) if workspace.has(exercise) else exercise.load_reference()


def load_module(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
