"""Lab 05: the stall behind a long prompt, and a token budget against it."""

from .exercise import Exercise

NAME = "05_chunked_prefill"

EXERCISES = (
    Exercise("5.1", "latencies", "course.reference.chunking:latencies", "latencies", points=2),
    Exercise(
        "5.2",
        "plan_step",
        "course.reference.chunking:plan_step",
        "plan_step",
        points=4,
        engine_part="plan_step",
        off_limits=("minivllm.scheduler.planner:plan_step",),
    ),
    Exercise(
        "5.3",
        "StepClock",
        "course.reference.chunking:StepClock",
        "step_clock",
        points=3,
        off_limits=("minivllm.executor.cost:forward_cost",),
    ),
    Exercise(
        "5.4",
        "fair_plan_step",
        "scheduler.planner:plan_step",
        "fair_plan_step",
        points=3,
        core=False,
        engine_part="plan_step",
    ),
)
