"""Lab 02: blocks, tables, attention through them, and sharing."""

from .exercise import Exercise

NAME = "02_paging"

EXERCISES = (
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
