"""A widget's callback runs in the thread of the cells, whichever thread the message came to. The thread of
the cells is one made here: pytest's own has a running loop once a browser test has started Playwright."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from minivllm.viz.main_thread import in_main_thread


def from_another_thread(function, *arguments):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


def test_a_call_from_another_thread_waits_for_the_thread_of_the_cells():
    seen = []

    async def cell():
        callback = in_main_thread(lambda change: seen.append((change, threading.current_thread())))
        from_another_thread(callback, "slider")
        assert seen == [], "the cell is still running"
        await asyncio.sleep(0)  # the cell ends, and its thread takes what has come meanwhile
        assert seen == [("slider", threading.current_thread())]
        callback("button")  # from the thread of the cells: at once
        assert [change for change, _ in seen] == ["slider", "button"]

    from_another_thread(lambda: asyncio.run(cell()))


def test_outside_a_kernel_a_callback_is_simply_called():
    seen = []
    callback = from_another_thread(in_main_thread, seen.append)
    callback(1)
    from_another_thread(callback, 2)
    assert seen == [1, 2]
