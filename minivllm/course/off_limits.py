"""Make minivllm's own answer unusable in this process, so that a part cannot let it do its work.

It stops a part that forwards; it does not stop somebody who takes pains to get round it, as little as it
stops copying from a friend. Grades show correctness, not authorship.
"""

from __future__ import annotations

from importlib import import_module

from . import OffLimits


def put_off_limits(path: str) -> None:
    """Replace what "module:attribute" names by something that raises `OffLimits` when used."""
    module, _, name = path.partition(":")
    message = f"it forwards to {module}.{name}; that is the answer, the code has to be yours"

    class Forwarding:
        def __init_subclass__(cls, **kwargs):
            raise OffLimits(message)

        def __new__(cls, *args, **kwargs):
            raise OffLimits(message)

        def __class_getitem__(cls, grid):  # a kernel, launched
            raise OffLimits(message)

    setattr(import_module(module), name, Forwarding)
