"""Ctrl-C between two steps, not in the middle of one.

An interrupt that falls between taking a block and noting who has it would lose the block. So while a batch
runs, the first Ctrl-C only asks to stop, and the loop stops where everything adds up; a second one does
not wait.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Gives a function to call at safe points: it raises `KeyboardInterrupt` if Ctrl-C was pressed. Outside
    the main thread, where Python delivers no signals, it does nothing."""
    asked = threading.Event()

    def handler(number, frame) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    def stop_if_asked() -> None:
        if asked.is_set():
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    # Somebody's own handler, or none that was set from Python, is left alone.
    ours = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, handler)
    try:
        yield stop_if_asked
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
