"""The course: what a lab calls while its reader builds the engine.

`lab = course.open(1)` is the one object that a notebook talks to: it checks a part, keeps it once it
passes, hands out the reader's own part or the reference, and puts the parts into the real engine.
`NotImplementedYet` is what a stub raises, so that an exercise nobody has begun is told from a wrong one.
"""

from importlib import import_module

__all__ = ["Lab", "NotImplementedYet", "OffLimits", "open"]


class NotImplementedYet(Exception):
    """This part of an exercise is still the stub."""


class OffLimits(Exception):
    """The part lets something else do its work: the spec, minivllm's own part, or a ready-made one."""


def open(number: int):
    """The lab of that number, ready to check. `ValueError` names the labs that there are."""
    return import_module("minivllm.course.lab").Lab(number)


def __getattr__(name: str):
    if name == "Lab":
        return import_module("minivllm.course.lab").Lab
    raise AttributeError(f"module 'minivllm.course' has no attribute {name!r}")
