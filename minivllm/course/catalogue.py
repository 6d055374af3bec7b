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


LABS = {0: "00_inference_is_not_training", 1: "01_naive_kv_cache", 2: "02_paging"}

EXERCISES = (
    Exercise(
        "0.1",
        "flops_and_bytes",
        "executor.cost:flops_and_bytes",
        "flops_and_bytes",
        points=3,
        off_limits=("minivllm.executor.cost:forward_cost",),
    ),
    Exercise("0.2", "Cost", "executor.cost:Cost", "cost", points=2),
    Exercise("0.3", "kv_bytes_per_token", "executor.cost:kv_bytes_per_token", "kv_bytes_per_token", points=1),
    Exercise(
        "0.4",
        "max_concurrent_requests",
        "executor.cost:max_concurrent_requests",
        "max_concurrent_requests",
        points=2,
    ),
    Exercise(
        "0.5",
        "ttft_and_itl_floor",
        "executor.cost:ttft_and_itl_floor",
        "ttft_and_itl_floor",
        points=2,
        core=False,
    ),
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
    Exercise("2.1", "replay", "course.reference.paging:replay", "replay", points=2),
    Exercise(
        "2.2",
        "BlockPool",
        "course.reference.paging:BlockPool",
        "block_pool",
        points=3,
        off_limits=("minivllm.kv.blocks:BlockPool",),
    ),
    Exercise("2.3", "BlockTable", "kv.blocks:BlockTable", "block_table", points=3, engine_part="block_table"),
    Exercise(
        "2.4",
        "paged_attention",
        "attention.paged:paged_attention",
        "paged_attention",
        points=4,
        engine_part="paged_attention",
    ),
    Exercise(
        "2.5",
        "SharedBlockPool",
        "course.reference.paging:SharedBlockPool",
        "shared_block_pool",
        points=3,
        core=False,
        engine_part="block_pool",
        off_limits=("minivllm.kv.blocks:BlockPool",),
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
