"""Machines as a roofline sees them: how much they compute, how fast they read, how much they hold.

Three numbers are enough to say how fast a forward can be at best (Williams, Waterman and Patterson,
2009), and they are on every data sheet. Sheets print tensor-core peaks "with sparsity" in large letters;
here are the dense ones, half of that. `this_machine` measures the numbers of the CPU that it runs on.
No GPU is needed to use this file, and no torch but for measuring.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Hardware:
    """`flops`: FLOP/s of dense matrix products of 2-byte numbers; `bandwidth`: bytes/s between the
    arithmetic and the main memory; `memory`: bytes of it. A sheet's GB and TB are powers of ten here."""

    name: str
    flops: float
    bandwidth: float
    memory: int

    @property
    def ridge(self) -> float:
        """FLOPs a byte at which computing takes as long as moving: the roof's corner."""
        return self.flops / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """FLOP/s that work of this arithmetic intensity (FLOPs a byte) can reach at most."""
        return min(self.flops, intensity * self.bandwidth)


GB = 10**9

# NVIDIA H100 Tensor Core GPU data sheet, SXM: BF16 1,979 TFLOPS with sparsity, 3.35 TB/s, 80 GB.
H100 = Hardware("H100 SXM", 989.4e12, 3.35e12, 80 * GB)
# NVIDIA H200 Tensor Core GPU data sheet, SXM: BF16 1,979 TFLOPS with sparsity, 4.8 TB/s, 141 GB.
H200 = Hardware("H200 SXM", 989.4e12, 4.8e12, 141 * GB)
# NVIDIA A100 Tensor Core GPU data sheet, 80GB SXM: BF16 312 TFLOPS, 2,039 GB/s.
A100 = Hardware("A100 SXM 80 GB", 312e12, 2.039e12, 80 * GB)
# NVIDIA L40S data sheet: BF16 362 TFLOPS, 864 GB/s, 48 GB.
L40S = Hardware("L40S", 362e12, 864e9, 48 * GB)
# NVIDIA L4 Tensor Core GPU data sheet: BF16 242 TFLOPS with sparsity, 300 GB/s, 24 GB.
L4 = Hardware("L4", 121e12, 300e9, 24 * GB)
# NVIDIA T4 Tensor Core GPU data sheet: FP16 65 TFLOPS (it has no BF16), 320 GB/s, 16 GB.
T4 = Hardware("T4", 65e12, 320e9, 16 * GB)
# AMD Instinct MI300X data sheet: BF16 1,307.4 TFLOPS, 5.3 TB/s, 192 GB.
MI300X = Hardware("MI300X", 1307.4e12, 5.3e12, 192 * GB)

HARDWARE = {gpu.name: gpu for gpu in (H100, H200, A100, L40S, L4, T4, MI300X)}


def find(name: str) -> Hardware:
    """The machine of that name. `ValueError` naming those that are known."""
    if name not in HARDWARE:
        known = ", ".join(HARDWARE)
        raise ValueError(f"no hardware is called {name!r}; known are {known}; or make a Hardware of your own")
    return HARDWARE[name]


def this_machine(seconds: float = 0.3) -> Hardware:
    """This CPU in fp32, as the engine uses it and with torch's present number of threads, measured.

    FLOP/s is the best of a few matrix products, through torch and through the engine's `Linear`;
    bandwidth the best of copying (bytes read and written) and of a matrix times a vector (bytes read).
    `seconds` is the time for each of the four; all of it takes under 2 s."""
    import torch

    from ..model.linear import Linear

    rows, width, mega = 512, 1536, 2**20
    x, weight = torch.randn(rows, width), torch.randn(width, width)
    linear, product_flops = Linear(weight), 2 * rows * width * width
    big = torch.ones(32 * mega // 1024, 1024)  # 128 MiB: no cache of a CPU core holds it
    target, vector, size = torch.empty_like(big), torch.ones(1024), big.nbytes
    with torch.inference_mode():
        flops = max(
            product_flops / _best(lambda: linear(x), seconds),
            product_flops / _best(lambda: torch.mm(x, weight), seconds),
        )
        bandwidth = max(
            2 * size / _best(lambda: target.copy_(big), seconds),
            size / _best(lambda: torch.mv(big, vector), seconds),
        )
    return Hardware("this machine", flops, bandwidth, _memory_bytes())


def _best(action, seconds: float) -> float:
    """Seconds of the fastest of at least three calls."""
    action()  # the first one allocates
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def _memory_bytes() -> int:
    """All of the main memory; 0 on systems that do not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0
