"""Every exercise of the course: its id, what the reader writes, and where everything else about it is.

An id such as "1.3" is what is graded, saved and shown. `reference` and `contract` are import paths, so
that this list costs nothing to read; `engine_part` is the field of `Parts` that the reader's object
fills, if any. A new lab adds its exercises here and a contract for each, and nothing else.
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


LABS = {1: "01_naive_kv_cache"}

EXERCISES = (
    Exercise(
        "1.1",
        "attention_one_step",
        "course.reference.naive:attention_one_step",
        "attention_one_step",
        points=2,
        off_limits=(
            "minivllm.attention.dense:causal_attention",
            "torch.nn.functional:scaled_dot_product_attention",
        ),
    ),
    Exercise(
        "1.2",
        "generate_recompute",
        "course.reference.naive:generate_recompute",
        "generate_recompute",
        points=2,
    ),
    Exercise(
        "1.3",
        "ContiguousKVCache",
        "attention.contiguous:ContiguousKVCache",
        "contiguous_kv_cache",
        points=4,
        engine_part="kv_cache",
    ),
    Exercise("1.4", "generate_cached", "course.reference.naive:generate_cached", "generate_cached", points=3),
    Exercise(
        "1.5",
        "batched_attention",
        "course.reference.naive:batched_attention",
        "batched_attention",
        points=1,
        core=False,
        off_limits=(
            "minivllm.attention.dense:causal_attention",
            "torch.nn.functional:scaled_dot_product_attention",
        ),
    ),
)


def of_lab(number: int) -> list[Exercise]:
    return [exercise for exercise in EXERCISES if exercise.lab == number]


def find(exercise_id: str) -> Exercise:
    """`ValueError` naming the known ids if there is none of this id."""
    for exercise in EXERCISES:
        if exercise.id == exercise_id:
            return exercise
    known = ", ".join(exercise.id for exercise in EXERCISES)
    raise ValueError(f"there is no exercise {exercise_id!r}; the exercises are {known}")


def load(path: str) -> Any:
    """What "module:attribute" names."""
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
