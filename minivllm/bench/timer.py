"""Time on a GPU: events on its own clock, a cold L2 cache, the median of many runs.

Work on a GPU is queued, so a host clock would time the queueing. Before each run a buffer far larger than
the L2 cache is overwritten: an engine's kernels find their data cold too, and the host gets time to queue
the run behind it, so that no gap between launches is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

# Seconds that one run of the action takes.
Timer = Callable[[Callable[[], object]], float]

FLUSH_BYTES = 2**30
WARM_UPS = 3


class CudaTimer:
    """A `Timer` on a CUDA device."""

    def __init__(self, device: torch.device, repeats: int = 20) -> None:
        self._repeats = repeats
        free, _ = torch.cuda.mem_get_info(device)
        self._flushed = torch.empty(min(FLUSH_BYTES, free // 8), dtype=torch.uint8, device=device)

    def __call__(self, action: Callable[[], object]) -> float:
        for _ in range(WARM_UPS):
            action()
        pairs = []
        for _ in range(self._repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._flushed.zero_()
            start.record()
            action()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize()
        return median(start.elapsed_time(end) for start, end in pairs) / 1e3


def copy_bandwidth(device: torch.device, timer: Timer, size: int = 2**30) -> float:
    """bytes/s of copying `size` bytes, those read and those written."""
    source = torch.empty(size, dtype=torch.uint8, device=device).random_(255)
    target = torch.empty_like(source)
    return 2 * size / timer(lambda: target.copy_(source))


def matmul_peak(device: torch.device, dtype: torch.dtype, timer: Timer, width: int = 8192) -> float:
    """FLOP/s of a product of two square matrices."""
    # Random numbers: products of zeros draw less power, and run faster than real ones.
    a, b = (torch.randn(width, width, dtype=dtype, device=device) for _ in range(2))
    return 2 * width**3 / timer(lambda: a @ b)
