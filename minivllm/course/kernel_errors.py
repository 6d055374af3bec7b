"""What went wrong inside a Triton kernel, without the interpreter's wrapping.

The interpreter raises an `InterpreterError` that holds the repr of what happened, from where the kernel was
launched; the exception itself, with the kernel's own line, is its cause.
"""

from __future__ import annotations


def in_the_kernel(error: Exception) -> Exception:
    """The exception that a kernel raised, if the interpreter has wrapped it; else the exception given."""
    while type(error).__name__ == "InterpreterError" and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error
