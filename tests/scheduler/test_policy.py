"""Who comes first under each policy, and that nobody waits for ever."""

import random

import pytest

from minivllm.request import Request
from minivllm.sampling import SamplingParams
from minivllm.scheduler.policy import AGEING, PATIENT_TTFT, StepTimeGuard
from tests.sim import Sim


def finishing_order(sim):
    order = []
    while sim.scheduler.running or sim.scheduler.waiting:
        sim.step()
        order += [i for i, r in sim.requests.items() if r.is_finished and i not in order]
    return order


def one_at_a_time(policy):
    return Sim(policy=policy, max_num_seqs=1, num_blocks=64)


def test_first_come_first_served():
    sim = one_at_a_time("fcfs")
    for priority in (5, 0, -5):
        sim.add(3, 2, priority=priority)
    assert finishing_order(sim) == ["r0", "r1", "r2"]


def test_smaller_priority_goes_first_and_equal_ones_in_order_of_arrival():
    sim = one_at_a_time("priority")
    for priority in (1, 0, 1, -1, 0):
        sim.add(3, 2, priority=priority)
    assert finishing_order(sim) == ["r3", "r1", "r4", "r0", "r2"]


def test_ageing_bounds_how_many_better_requests_overtake():
    sim = one_at_a_time("priority")
    patient = sim.add(1, 1, priority=1, request_id="patient")
    overtaken_by = 0
    while not patient.is_finished:
        sim.add(1, 1, priority=0)  # another urgent one arrives in every step
        sim.step()
        overtaken_by += 1
    assert AGEING - 2 <= overtaken_by <= AGEING + 2


def test_earliest_deadline_goes_first_and_no_target_is_a_distant_one():
    sim = one_at_a_time("slo")
    sim.add(3, 2, arrival_time=0.0)
    sim.add(3, 2, arrival_time=1.0, ttft_target=5.0)
    sim.add(3, 2, arrival_time=2.0, ttft_target=0.5)
    sim.add(3, 2, arrival_time=PATIENT_TTFT - 1, ttft_target=0.5)
    sim.add(3, 2, arrival_time=PATIENT_TTFT + 1, ttft_target=0.5)
    assert finishing_order(sim) == ["r2", "r1", "r3", "r0", "r4"]


def test_blocks_are_taken_from_whoever_comes_last_in_the_order():
    sim = Sim(policy="priority", num_blocks=8, block_size=2, max_num_batched_tokens=64)
    low = sim.add(5, 8, priority=2)
    high = sim.add(5, 8, priority=-2)
    sim.run()
    assert (high.num_preemptions, low.num_preemptions > 0) == (0, True)


def test_a_target_between_tokens_shortens_the_step():
    guard = StepTimeGuard()

    def decoding(itl_target):
        request = Request("r", [1, 2], SamplingParams(max_tokens=9), itl_target=itl_target)
        request.append(3)
        return request

    running = [decoding(None), decoding(0.05), decoding(0.2)]
    assert guard.budget(running, 512) == 512  # nothing is known yet
    guard.observe(num_tokens=100, seconds=0.1)
    assert guard.budget(running, 512) == 50
    assert guard.budget(running[:1], 512) == 512
    assert guard.budget([decoding(1e-6)], 512) == 2  # a decode, and a prompt goes on
    for _ in range(60):
        guard.observe(num_tokens=100, seconds=0.2)
    assert guard.budget(running, 512) == 25


@pytest.mark.parametrize("seed", range(10))
def test_latency_sensitive_work_passes_throughput_work_and_both_end(seed):
    rng = random.Random(seed)
    sim = Sim(policy="slo", max_num_seqs=3, num_blocks=20, block_size=4, max_num_batched_tokens=12)
    batch = [sim.add(20, 20, arrival_time=0.0) for _ in range(12)]
    for _ in range(5):
        sim.step()
    urgent = sim.add(4, 2, arrival_time=0.1, ttft_target=0.2)
    while not urgent.is_finished:
        sim.step()
    assert sum(r.is_finished for r in batch) <= 3, "it waited for more than those who ran"
    for _ in range(rng.randint(1, 10)):
        sim.add(rng.randint(1, 10), rng.randint(1, 5), arrival_time=0.2, ttft_target=0.2)
    sim.run()
