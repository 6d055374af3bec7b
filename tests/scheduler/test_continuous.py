"""What the scheduler promises, on bookkeeping alone."""

import random

import pytest

from minivllm.request import Status
from tests.sim import Sim


def tokens(plan):
    return {c.request.request_id: c.num_tokens for c in plan.chunks}


def test_prompt_is_chunked_to_the_budget_and_samples_once_complete():
    sim = Sim(max_num_batched_tokens=5)
    request = sim.add(prompt=12, max_tokens=3)
    assert [tokens(sim.step())["r0"] for _ in range(5)] == [5, 5, 2, 1, 1]
    assert request.finish_reason == "length" and request.num_output_tokens == 3


def test_decodes_come_first_and_the_prompt_gets_the_rest_of_the_budget():
    sim = Sim(max_num_batched_tokens=6)
    sim.add(prompt=3, max_tokens=8)
    sim.add(prompt=3, max_tokens=8)
    sim.step()
    sim.add(prompt=10, max_tokens=2)
    assert tokens(sim.step()) == {"r0": 1, "r1": 1, "r2": 4}


def test_requests_join_and_leave_between_steps():
    sim = Sim(max_num_seqs=2)
    for max_tokens in (1, 5, 5):
        sim.add(prompt=2, max_tokens=max_tokens)
    assert set(tokens(sim.step())) == {"r0", "r1"}
    assert set(tokens(sim.step())) == {"r1", "r2"}


def test_static_batch_admits_only_when_nothing_runs():
    sim = Sim(max_num_seqs=2, scheduler="static")
    for max_tokens in (1, 4, 4):
        sim.add(prompt=2, max_tokens=max_tokens)
    seen = []
    while sim.scheduler.running or sim.scheduler.waiting:
        seen.append(set(tokens(sim.step())))
    assert seen[:4] == [{"r0", "r1"}, {"r1"}, {"r1"}, {"r1"}]
    assert seen[4] == {"r2"}


def test_static_batch_is_full_even_when_its_prompts_exceed_the_budget():
    sim = Sim(max_num_seqs=4, scheduler="static", max_num_batched_tokens=6)
    for _ in range(6):
        sim.add(prompt=5, max_tokens=2)
    sim.step()
    assert len(sim.scheduler.running) == 4
    sim.run()


def test_request_that_can_never_fit_is_refused_with_the_numbers():
    sim = Sim(num_blocks=4, block_size=4)
    with pytest.raises(ValueError, match=r"takes 5 KV blocks of 4, the pool has 4"):
        sim.add(prompt=14, max_tokens=4)
    sim.add(prompt=13, max_tokens=4)  # 16 slots: the last token is never computed on
    sim.run()
    with pytest.raises(ValueError, match=r"max_model_len is 64"):
        sim.add(prompt=60, max_tokens=5)


def test_request_that_does_not_fit_now_waits_and_is_served_later():
    sim = Sim(num_blocks=4, block_size=4)
    sim.add(prompt=10, max_tokens=4)
    late = sim.add(prompt=10, max_tokens=4)
    sim.step()
    assert late.status is Status.WAITING
    sim.run()
    assert late.finish_reason == "length"


def test_latest_request_is_preempted_when_blocks_run_out_and_still_finishes():
    sim = Sim(num_blocks=6, block_size=2)
    first = sim.add(prompt=3, max_tokens=8)
    last = sim.add(prompt=3, max_tokens=8)
    sim.run()
    assert first.num_preemptions == 0 and last.num_preemptions >= 1
    assert first.num_output_tokens == last.num_output_tokens == 8
    assert sim.scheduler.num_preemptions == sum(len(plan.preempted) for plan in sim.plans)


def test_without_chunked_prefill_a_prompt_is_computed_in_one_step():
    sim = Sim(enable_chunked_prefill=False, max_num_batched_tokens=64, max_model_len=64, num_blocks=64)
    for length in (30, 40, 20):
        sim.add(prompt=length, max_tokens=3)
    sim.run()
    first_chunks = {}
    for plan in sim.plans:
        for chunk in plan.chunks:
            first_chunks.setdefault(chunk.request.request_id, chunk.num_tokens)
    assert first_chunks == {"r0": 30, "r1": 40, "r2": 20}


def test_abort_frees_all_blocks_whatever_the_request_is_doing():
    sim = Sim(num_blocks=8, block_size=2, max_num_batched_tokens=4)
    running, waiting = sim.add(6, 4), sim.add(12, 2)
    sim.step()
    for request in (running, waiting, running):
        sim.scheduler.abort(request)
        sim.scheduler.check()
    assert running.finish_reason == "abort"
    assert sim.kv.num_free_blocks == sim.kv.num_blocks


def test_a_request_aborted_while_its_step_runs_takes_no_token():
    sim = Sim()
    request = sim.add(prompt=3, max_tokens=4)
    plan = sim.scheduler.schedule()
    sim.scheduler.abort(request)
    assert sim.scheduler.update(plan, {"r0": [7]}) == []
    sim.scheduler.check()
    assert request.num_output_tokens == 0


@pytest.mark.parametrize("seed", range(20))
def test_random_interleavings_keep_every_invariant_and_end(seed):
    rng = random.Random(seed)
    sim = Sim(
        num_blocks=rng.choice([5, 9, 20]),
        block_size=rng.choice([1, 3, 4]),
        max_num_seqs=rng.randint(1, 8),
        max_num_batched_tokens=rng.choice([1, 2, 5, 16, 64]),
        scheduler=rng.choice(["continuous", "continuous", "static"]),
    )
    for _ in range(300):
        action = rng.random()
        if action < 0.25:
            slots = min(64, sim.kv.num_blocks * sim.kv.block_size)
            prompt_len = rng.randint(1, slots - 1)
            sim.add(prompt_len, rng.randint(1, slots - prompt_len))
        elif action < 0.3 and sim.requests:
            sim.scheduler.abort(rng.choice(list(sim.requests.values())))
        else:
            sim.step()
    sim.run()
    assert all(r.is_finished for r in sim.requests.values())
