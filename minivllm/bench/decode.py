"""What one decode step of the whole engine takes, against the time in which the weights can be read.

A decode step of a small batch does little but read every weight once, so bytes of weights / bandwidth is its
roof. Timed is `Engine.step`: schedule, upload, forward, sampling, update. Its last act is to wait for the
sampled tokens, so a host clock is right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from ..engine import Engine
from ..executor.cost import matrix_weights
from ..sampling import SamplingParams

WARM_UPS = 5


def step_seconds(
    engine: Engine,
    num_seqs: int,
    prompt_len: int = 64,
    num_steps: int = 30,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Median seconds of `num_steps` steps in which `num_seqs` requests decode together. The first steps,
    in which prompts are computed, kernels compiled and graphs captured, are not counted."""
    params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)  # as many as there is room for
    vocab_size = engine.model_config.vocab_size
    ids = [
        engine.add_request([(7 * i + 13 * j + 1) % vocab_size for j in range(prompt_len)], params)
        for i in range(num_seqs)
    ]
    while not _all_decode(engine, num_seqs):
        if any(output.finished for output in engine.step()):
            raise ValueError(
                f"{num_seqs} requests never decode together in {engine.kv.num_blocks} blocks; raise "
                "max_model_len, max_num_seqs or num_gpu_blocks_override"
            )
    for _ in range(WARM_UPS):
        engine.step()
    times = []
    for _ in range(num_steps):
        start = clock()
        engine.step()
        times.append(clock() - start)
    for request_id in ids:
        engine.abort(request_id)
    return median(times)


def _all_decode(engine: Engine, num_seqs: int) -> bool:
    running = engine.scheduler.running
    return len(running) == num_seqs and all(request.num_output_tokens > 0 for request in running)


def measure(
    engine: Engine, batch_sizes: Iterable[int], bandwidth: float, seconds: Callable[..., float] = step_seconds
) -> list[dict[str, Any]]:
    """A row for each batch size that the engine takes: {"batch", "ms_per_step", "weight_read_ms",
    "times_roof", "output_tokens_per_s", "cuda_graphs"}. `bandwidth` is bytes/s, measured."""
    weights = sum(matrix_weights(engine.model_config)) * engine.executor.model.dtype.itemsize
    roof, rows = weights / bandwidth, []
    for batch in batch_sizes:
        if batch > engine.config.max_num_seqs:
            continue
        taken = seconds(engine, batch)
        rows.append(
            {
                "batch": batch,
                "ms_per_step": taken * 1e3,
                "weight_read_ms": roof * 1e3,
                "times_roof": taken / roof,
                "output_tokens_per_s": batch / taken,
                "cuda_graphs": engine.executor.graphs is not None,
            }
        )
    return rows
