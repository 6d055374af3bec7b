"""Where claims run: engines, made ready for one variant after another.

A claim asks for an engine with certain settings and does not know what executes its plans; a simulated
executor comes in by another `make_llm`. One loaded model serves all variants of paged engines, by
`reconfigure`; contiguous reservation needs a second one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

MAX_MODEL_LEN = 1280
MAX_BLOCKS = 512
# Of every variant: nothing is shared, cut or bounded unless the claim says so.
DEFAULTS = {
    "scheduler": "continuous",
    "preemption_mode": "recompute",
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "enable_prefix_caching": False,
    "enable_chunked_prefill": True,
}


class Machine:
    """`make_llm(**settings)` → `LLM`. `repetitions`: how often each variant is run; `on_step` is called
    after every step of any engine."""

    def __init__(
        self,
        make_llm: Callable[..., Any],
        repetitions: int = 3,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        if repetitions < 1:
            raise ValueError(f"repetitions is {repetitions}; run everything at least once")
        self.repetitions = repetitions
        self.on_step = on_step
        self._make_llm = make_llm
        self._llms: dict[Any, Any] = {}
        self._most_threads = torch.get_num_threads()

    def engine(self, num_blocks: int = MAX_BLOCKS, **settings: Any) -> Any:
        """The paged engine, idle and empty, with `DEFAULTS` and these settings."""
        if "paged" not in self._llms:
            self._llms["paged"] = self._make_llm(
                attention_backend="paged",
                max_model_len=MAX_MODEL_LEN,
                num_gpu_blocks_override=MAX_BLOCKS,
                # Host blocks are allocated only for an engine that begins with swapping.
                **{**DEFAULTS, "preemption_mode": "swap"},
            )
        engine = self._llms["paged"].engine
        engine.reconfigure(num_blocks, **{**DEFAULTS, **settings})
        return engine

    def contiguous_engine(self, num_requests: int, max_model_len: int) -> Any:
        """An engine that reserves `max_model_len` slots for each of at most `num_requests` requests."""
        key = (num_requests, max_model_len)
        if key not in self._llms:
            settings = {**DEFAULTS, "max_num_seqs": 4 * num_requests}  # memory is what bounds the batch
            self._llms[key] = self._make_llm(
                attention_backend="contiguous",
                max_model_len=max_model_len,
                num_gpu_blocks_override=num_requests,
                **settings,
            )
        engine = self._llms[key].engine
        engine.reconfigure(num_requests)
        return engine

    def settle_threads(self) -> int:
        """Let torch use as many threads as it had, or one if that is faster now, and say how many. On cores
        that others use, too, threads that wait for each other make a step many times longer."""
        if self._most_threads == 1:
            return 1
        x, weight = torch.ones(8, 1024), torch.ones(1024, 1024)
        times: dict[int, list[float]] = {1: [], self._most_threads: []}
        for _ in range(15):
            for threads, seconds in times.items():
                torch.set_num_threads(threads)
                torch.mm(x, weight)
                start = time.perf_counter()
                for _ in range(10):
                    torch.mm(x, weight)
                seconds.append(time.perf_counter() - start)
        best = min(times, key=lambda threads: median(times[threads]))
        torch.set_num_threads(best)
        return best

    def restore_threads(self) -> None:
        torch.set_num_threads(self._most_threads)

    def seconds_to_move_a_block(self, num_blocks: int = 32) -> float:
        """Copying one KV block to host memory, timed over some of them."""
        move = self.engine(preemption_mode="swap").executor.backend.move_blocks
        pairs = [(block, block) for block in range(num_blocks)]
        move(pairs, [], [])  # touches the memory
        times = []
        for _ in range(5):
            start = time.perf_counter()
            move(pairs, [], [])
            times.append(time.perf_counter() - start)
        return median(times) / num_blocks


def kv_cache_bytes(engine: Any) -> int:
    """Bytes of the tensors that hold keys and values."""
    return engine.executor.backend.data.nbytes


def kv_dtype_bytes(engine: Any) -> int:
    return engine.executor.backend.data.element_size()
