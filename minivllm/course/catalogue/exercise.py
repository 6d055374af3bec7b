"""What the course knows of an exercise: its id, what the reader writes, and where the rest of it is.

An id such as "1.3" is what is graded, saved and shown. `reference` and `contract` are import paths, so
that the catalogue costs nothing to read; `engine_part` is the field of `Parts` that the reader's object
fills, if any, or "kernels.store_kv" for one entry of a field that is a dict. An exercise that needs a
package which a system does not have (triton outside Linux) is not checked there and costs no points;
`stand_in` then takes the part's place.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module, util
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
    level: str | None = None  # what a scheduler has shown by then: scheduler/levels.py
    needs: str | None = None  # a package
    stand_in: str | None = None  # "module:attribute" under minivllm, which does without it

    @property
    def lab(self) -> int:
        return int(self.id.split(".")[0])

    @property
    def title(self) -> str:
        return f"{self.id} {self.name}"

    @property
    def missing(self) -> str | None:
        """Why it cannot be checked on this system; None if it can."""
        if self.needs is None or util.find_spec(self.needs) is not None:
            return None
        return f"{self.needs} is not installed (it has no wheel for every system)"

    def load_reference(self) -> Any:
        """minivllm's own part, or what stands in for it where a package is missing."""
        return load(f"minivllm.{self.stand_in if self.missing else self.reference}")


def load(path: str) -> Any:
    """What "module:attribute" names."""
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
