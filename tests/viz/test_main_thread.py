"""A widget's callback runs in the thread of the cells, whichever thread the message came to."""

import asyncio
import threading

from minivllm.viz.main_thread import in_main_thread


def from_another_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()


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

    asyncio.run(cell())


def test_outside_a_kernel_a_callback_is_simply_called():
    seen = []
    in_main_thread(seen.append)(1)
    from_another_thread(in_main_thread(seen.append), 2)
    assert seen == [1, 2]
