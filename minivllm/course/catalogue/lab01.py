"""Lab 01: attention for one step, and a cache that is one piece."""

from .exercise import Exercise

NAME = "01_naive_kv_cache"

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
