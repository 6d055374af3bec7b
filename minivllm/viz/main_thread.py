"""Widgets' callbacks in the thread that runs the cells.

JupyterLab sends what a widget says to a thread of its own, a kernel subshell (Jupyter Enhancement Proposal
91, ipykernel 7), so that a slider answers while a cell runs. An engine is stepped by one thread at a time,
and matplotlib draws in one; so the picture waits until the cell has ended, as it did before subshells.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable


def in_main_thread(callback: Callable[[object], None]) -> Callable[[object], None]:
    """`callback`, handed to the event loop of the thread in which this function is called where another
    thread calls it. Outside a kernel nothing listens, and it is simply called."""
    home = threading.get_ident()
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return callback

    @functools.wraps(callback)
    def call(change: object) -> None:
        if threading.get_ident() == home:
            callback(change)
        else:
            loop.call_soon_threadsafe(callback, change)

    return call
