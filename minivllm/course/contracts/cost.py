"""0.2 `Cost(flops, num_bytes)` with `arithmetic_intensity()`, `is_compute_bound(gpu)`, `seconds(gpu)`.

A gpu has `flops` (FLOP/s) and `bandwidth` (bytes/s). Computing and moving overlap.
"""

from __future__ import annotations

from .expect import show
from .rules import Broken, Rules
from .small_shapes import equal, lent, machine

rules = Rules()


def _cost(flops, num_bytes) -> str:
    return f"Cost({flops:,}, {num_bytes:,})"


def _on(gpu) -> str:
    return f"gpu: {gpu.flops:,} FLOP/s, {gpu.bandwidth:,} bytes/s"


def _bound(part, flops, num_bytes, gpu, want: bool) -> None:
    got = part(flops, num_bytes).is_compute_bound(lent(gpu))
    if not isinstance(got, bool) or got is not want:
        raise Broken(f"{_cost(flops, num_bytes)}.is_compute_bound(gpu), {_on(gpu)}", show(got), str(want))


@rules.add("FLOPs divided by bytes.")
def intensity_is_flops_for_each_byte(part, rng):
    for flops, num_bytes in ((600, 200), (50, 200), (rng.randint(1, 999), rng.randint(1, 999))):
        called = f"{_cost(flops, num_bytes)}.arithmetic_intensity()"
        equal(called, part(flops, num_bytes).arithmetic_intensity(), flops / num_bytes)


@rules.add("With many FLOPs for each byte the arithmetic takes longer: flops / gpu.flops is the longer time.")
def much_arithmetic_on_few_bytes_is_compute_bound(part, rng):
    _bound(part, 5000, 10, machine(100, 10), True)
    _bound(part, 10**12, 10**9, machine(10**12, 10**11), True)


@rules.add(
    "With few FLOPs for each byte the bytes take longer: num_bytes / gpu.bandwidth is the longer time."
)
def little_arithmetic_on_many_bytes_is_not(part, rng):
    _bound(part, 10, 5000, machine(100, 10), False)
    _bound(part, 10**9, 10**9, machine(10**12, 10**11), False)


@rules.add("Compare with the gpu's own ridge, gpu.flops / gpu.bandwidth.")
def each_machine_has_a_ridge_of_its_own(part, rng):
    _bound(part, 2000, 100, machine(100, 10), True)
    _bound(part, 2000, 100, machine(1000, 10), False)
    _bound(part, 2000, 100, machine(1000, 100), True)


@rules.add("At the ridge both take the same time; that counts as compute-bound: at least as long, >=.")
def the_ridge_itself_counts_as_compute_bound(part, rng):
    _bound(part, 1024, 64, machine(4096, 256), True)
    _bound(part, 1023, 64, machine(4096, 256), False)


@rules.add("flops / gpu.flops when that is the longer one.")
def compute_bound_work_takes_the_time_of_its_flops(part, rng):
    gpu = machine(100, 10)
    equal(f"{_cost(5000, 10)}.seconds(gpu), {_on(gpu)}", part(5000, 10).seconds(lent(gpu)), 50.0, " s")


@rules.add("Computing and moving happen at the same time: the longer of the two, max, not their sum.")
def memory_bound_work_takes_the_time_of_its_bytes(part, rng):
    gpu = machine(100, 10)
    equal(f"{_cost(500, 600)}.seconds(gpu), {_on(gpu)}", part(500, 600).seconds(lent(gpu)), 60.0, " s")


@rules.add("Keep both numbers on self, for each Cost its own.")
def two_costs_share_nothing(part, rng):
    gpu = machine(100, 10)
    first, second = part(5000, 10), part(10, 5000)
    for cost, numbers, want in ((first, (5000, 10), 50.0), (second, (10, 5000), 500.0)):
        equal(f"two costs: {_cost(*numbers)}.seconds(gpu), {_on(gpu)}", cost.seconds(lent(gpu)), want, " s")


@rules.add("Three lines from two numbers: intensity, which of two times is longer, and that time.")
def any_work_on_any_machine(part, rng):
    for _ in range(50):
        flops, num_bytes = rng.randint(1, 10**6), rng.randint(1, 10**6)
        gpu = machine(rng.randint(1, 10**6), rng.randint(1, 10**6))
        computing, moving = flops / gpu.flops, num_bytes / gpu.bandwidth
        _bound(part, flops, num_bytes, gpu, computing >= moving)
        called = f"{_cost(flops, num_bytes)}.seconds(gpu), {_on(gpu)}"
        equal(called, part(flops, num_bytes).seconds(lent(gpu)), max(computing, moving), " s")
