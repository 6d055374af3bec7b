"""What the course knows of an exercise: its id, what the reader writes, and where the rest of it is.

An id such as "1.3" is what is graded, saved and shown. `reference` and `contract` are import paths, so
that the catalogue costs nothing to read; `engine_part` is the field of `Parts` that the reader's object
fills, if any.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Exercise:
    id: str
    name: str
    reference: str  # "module:attribute" under minivllm
    contract: str  # module under minivllm.course.contracts
    points: int
    core: bool = True
    engine_part: str | None = None
    # Imports that would answer the exercise for the reader, besides the reference itself.
    off_limits: tuple[str, ...] = ()

    @property
    def lab(self) -> int:
        return int(self.id.split(".")[0])

    @property
    def title(self) -> str:
        return f"{self.id} {self.name}"

    def load_reference(self) -> Any:
        return load(f"minivllm.{self.reference}")


def load(path: str) -> Any:
    """What "module:attribute" names."""
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
