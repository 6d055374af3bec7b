"""Lab 00: what a forward costs, and what memory holds."""

from .exercise import Exercise

NAME = "00_inference_is_not_training"

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
)
