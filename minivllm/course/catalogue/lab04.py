"""Lab 04: static and continuous batching, admission, preemption."""

from .exercise import Exercise

NAME = "04_continuous_batching"

_OWN = ("minivllm.scheduler.continuous:ContinuousScheduler",)

EXERCISES = (
    Exercise("4.1", "batch_cost", "course.reference.batching:batch_cost", "batch_cost", points=2),
    Exercise(
        "4.2",
        "StepScheduler",
        "course.reference.batching:StepScheduler",
        "step_scheduler",
        points=3,
        off_limits=_OWN,
    ),
    Exercise(
        "4.3",
        "Scheduler",
        "course.reference.batching:Scheduler",
        "scheduler",
        points=4,
        engine_part="scheduler",
        level="basic",
        off_limits=_OWN,
    ),
    Exercise(
        "4.4",
        "AdmittingScheduler",
        "course.reference.batching:AdmittingScheduler",
        "admitting_scheduler",
        points=2,
        engine_part="scheduler",
        level="chunked",
        off_limits=_OWN,
    ),
    Exercise(
        "4.5",
        "PreemptingScheduler",
        "course.reference.batching:PreemptingScheduler",
        "preempting_scheduler",
        points=3,
        core=False,
        engine_part="scheduler",
        level="preempting",
        off_limits=_OWN,
    ),
)
