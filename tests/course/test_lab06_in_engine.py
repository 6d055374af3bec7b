"""The prefix caches of lab 06's solution under the engine's own bookkeeping, every KV slot shadowed.

The workloads share beginnings, fork, are preempted by recompute and by swap, and have salts. After every step
the simulation looks at each slot, and at each count of the manager and the cache.
"""

import random
from pathlib import Path

import pytest

from minivllm.course.catalogue import LABS, of_lab
from minivllm.course.grade.submission import Submission
from minivllm.course.workspace import Workspace
from tests.sim import Sim

SOLUTION = Path(__file__).parents[2] / "solutions" / f"{LABS[6]}.ipynb"


@pytest.fixture(autouse=True)
def solved(tmp_path, monkeypatch):
    """{exercise id: the solution's part}, all of the lab saved and loaded as a reader's are."""
    monkeypatch.setenv("MINIVLLM_WORKSPACE", str(tmp_path))
    workspace, submission = Workspace(), Submission(SOLUTION)
    for exercise in of_lab(6):
        workspace.keep(exercise, submission.module_text(exercise))
    return {exercise.id: workspace.load(exercise) for exercise in of_lab(6)}


def simulate(seed, kind, cache=None, blocks_of=None):
    """(tokens each request found, steps) of a random workload; `cache` in the place of minivllm's own."""
    rng = random.Random(seed)
    size = rng.choice([1, 2, 4])
    swap = {"preemption_mode": "swap", "num_host_blocks": 12} if rng.random() < 0.4 else {}
    num_blocks = 80 // size
    sim = Sim(num_blocks, size, enable_prefix_caching=True, prefix_cache=kind, **swap)
    if cache is not None:
        own = cache(size)
        own.cached_blocks, own.check = (lambda: blocks_of(own)), (lambda: None)
        sim.kv.prefix_cache = own
    beginnings = [[rng.randint(0, 3) for _ in range(rng.randint(1, 20))] for _ in range(4)]
    for _ in range(14):
        prompt = rng.choice(beginnings) + [rng.randint(0, 3) for _ in range(rng.randint(1, 8))]
        n = 2 if rng.random() < 0.2 else 1
        sim.add(prompt, rng.randint(1, 12), n=n, cache_salt=rng.choice([None, None, "a"]))
        for _ in range(rng.randint(0, 4)):
            if sim.scheduler.running or sim.scheduler.waiting:
                sim.step()
        if rng.random() < 0.1:
            sim.run()
            sim.kv.reset_prefix_cache()
    steps = sim.run()
    return {name: r.num_cached_tokens for name, r in sim.requests.items()}, steps, sim


@pytest.mark.parametrize("seed", range(12))
def test_the_solutions_chain_finds_what_minivllms_finds(seed, solved):
    found, steps, sim = simulate(seed, "hash", solved["6.4"], lambda cache: list(cache.cache.counts))
    assert (found, steps) == simulate(seed, "hash")[:2]
    assert sim.kv.num_free_blocks == sim.kv.num_blocks


@pytest.mark.parametrize("seed", range(12))
def test_the_solutions_tree_never_gives_a_request_another_ones_keys(seed, solved):
    found, _, sim = simulate(seed, "radix", solved["6.5"], lambda cache: list(cache.nodes))
    assert sim.kv.num_free_blocks == sim.kv.num_blocks


def test_workloads_hit_and_preempt():
    results = [simulate(seed, "hash") for seed in range(12)]
    assert sum(sum(found.values()) for found, _, _ in results) > 100
    assert sum(sim.scheduler.num_preemptions for _, _, sim in results) > 10
