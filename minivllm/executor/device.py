"""All that the executor asks of CUDA, in one thin class, so that the rest can be read and tested without.

Four things: numbers are sent from pinned memory without waiting, a forward is captured as a CUDA graph,
memory is measured, and the compute capability decides the dtype. Nothing here decides anything else; a
fake with the same methods stands in for it in the tests.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from .memory import MemoryUse

FIRST_WITH_BF16 = (8, 0)  # Ampere; before it bf16 is emulated, and slow


class Gpu:
    """One CUDA device. Errors are those of torch."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._graph_pool = None

    @property
    def capability(self) -> tuple[int, int]:
        return torch.cuda.get_device_capability(self.device)

    def send(self, numbers: np.ndarray, target: torch.Tensor | None = None) -> torch.Tensor:
        """Copy int64 numbers to the device, into `target` if given, and return at once. The staging
        memory is new each time: torch's pinned allocator reuses it only after the copy is done, so no
        later step can overwrite numbers that are still on their way."""
        staging = torch.empty(len(numbers), dtype=torch.int64, pin_memory=True)
        staging.numpy()[:] = numbers
        if target is None:
            return staging.to(self.device, non_blocking=True)
        return target.copy_(staging, non_blocking=True)

    def capture(self, forward: Callable[[], None]) -> Callable[[], None]:
        """Run `forward` once, so that kernels are compiled and libraries set up, then capture it. Calling
        the result does it all again by one launch, on the tensors that it used. All graphs share one
        memory pool, since they never run at the same time."""
        if self._graph_pool is None:
            self._graph_pool = torch.cuda.graph_pool_handle()
        forward()
        graph = torch.cuda.CUDAGraph()
        # thread_local: another thread's CUDA calls, say those of a server, do not end the capture.
        with torch.cuda.graph(graph, pool=self._graph_pool, capture_error_mode="thread_local"):
            forward()
        return graph.replay

    def measure(self, step: Callable[[], object]) -> MemoryUse:
        """Memory while `step` runs, for the KV budget."""
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_reserved(self.device)
        step()
        torch.cuda.synchronize(self.device)
        peak = torch.cuda.max_memory_reserved(self.device)
        free, total = torch.cuda.mem_get_info(self.device)
        others = total - free - torch.cuda.memory_reserved(self.device)
        torch.cuda.empty_cache()
        return MemoryUse(total=total, resting=before, peak=peak, others=max(0, others))


def auto_dtype(capability: tuple[int, int]) -> torch.dtype:
    """What dtype="auto" means on a GPU of this compute capability: bf16 where it is native, else fp16."""
    return torch.bfloat16 if capability >= FIRST_WITH_BF16 else torch.float16


def check_dtype(dtype: torch.dtype, capability: tuple[int, int]) -> None:
    """`ValueError` for bf16 on a GPU that would emulate it."""
    if dtype == torch.bfloat16 and capability < FIRST_WITH_BF16:
        raise ValueError(
            f"dtype is 'bfloat16', but this GPU has compute capability {capability[0]}.{capability[1]}, and "
            "native bf16 begins with 8.0; use dtype='float16' or 'auto'"
        )
