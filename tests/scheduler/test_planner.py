"""The token budget on its own: requests that are only numbers, no blocks."""

import random

import pytest

from minivllm.request import Request
from minivllm.sampling import SamplingParams
from minivllm.scheduler.planner import PREFILL_PATIENCE, plan_step


class Tokens:
    """The one thing that the planner asks of a KV manager."""

    def num_missing_tokens(self, request):
        return request.num_tokens - request.num_computed_tokens


def request(number, num_tokens, computed=0, skipped=0):
    made = Request(f"r{number}", [1] * num_tokens, SamplingParams(), arrival=number)
    made.num_computed_tokens = computed
    made.num_skipped_steps = skipped
    return made


def plan(running, waiting, budget, **options):
    wishes = plan_step(running, waiting, budget, Tokens(), **options)
    return {r.request_id: n for r, n in wishes}


def test_every_decode_is_served_while_the_budget_allows_it():
    decodes = [request(i, 9, 8) for i in range(4)]
    prompt = request(4, 100, 10)
    assert plan([*decodes, prompt], [], 4) == {f"r{i}": 1 for i in range(4)}
    assert plan([*decodes, prompt], [], 10)["r4"] == 6


def test_a_prompts_share_of_a_step_is_capped():
    running, waiting = [request(0, 50)], [request(1, 50)]
    assert plan(running, waiting, 32, max_chunk=8) == {"r0": 8, "r1": 8}


def test_whole_prompts_only_and_nobody_overtakes():
    running, waiting = [request(0, 9, 8)], [request(1, 30), request(2, 5)]
    assert plan(running, waiting, 20, chunked=False) == {"r0": 1}
    assert plan(running, waiting, 31, chunked=False) == {"r0": 1, "r1": 30}


def serve(running, waiting, budget, steps):
    """Plan step after step; decodes stay decodes. Returns who was served in each step."""
    history = []
    for _ in range(steps):
        wishes = plan(running, waiting, budget)
        history.append(wishes)
        for r in running + waiting[:1]:
            r.num_skipped_steps = 0 if r.request_id in wishes else r.num_skipped_steps + 1
    return history


@pytest.mark.parametrize("num_decodes,budget", [(5, 2), (7, 3), (3, 1), (16, 5)])
def test_below_the_number_of_decodes_all_are_served_in_turn(num_decodes, budget):
    decodes = [request(i, 9, 8) for i in range(num_decodes)]
    history = serve(decodes, [], budget, 60)
    rounds = -(-num_decodes // budget)
    for r in decodes:
        served = [i for i, wishes in enumerate(history) if r.request_id in wishes]
        assert max(b - a for a, b in zip(served, served[1:], strict=False)) <= rounds


@pytest.mark.parametrize("where", ["running", "waiting"])
def test_the_oldest_prompt_gets_every_eighth_step_when_decodes_exceed_the_budget(where):
    decodes, prompt = [request(i, 9, 8) for i in range(6)], request(6, 500)
    running, waiting = (decodes + [prompt], []) if where == "running" else (decodes, [prompt])
    history = serve(running, waiting, 4, 64)
    served = [i for i, wishes in enumerate(history) if "r6" in wishes]
    assert served == list(range(PREFILL_PATIENCE, 64, PREFILL_PATIENCE + 1))
    assert history[served[0]] == {"r6": 4}


@pytest.mark.parametrize("seed", range(30))
def test_any_plan_keeps_to_the_budget_and_to_what_is_missing(seed):
    rng = random.Random(seed)
    for _ in range(50):
        running = []
        for i in range(rng.randint(0, 8)):
            known = rng.randint(1, 40)
            missing = rng.choice([1, rng.randint(1, known)])
            running.append(request(i, known, known - missing, rng.randint(0, 9)))
        waiting = [
            request(10 + i, rng.randint(1, 40), 0, rng.randint(0, 9)) for i in range(rng.randint(0, 4))
        ]
        budget, cap = rng.randint(1, 50), rng.choice([None, 1, 7])
        chunked = rng.random() < 0.8
        wishes = plan_step(running, waiting, budget, Tokens(), max_chunk=cap, chunked=chunked)
        assert sum(n for _, n in wishes) <= budget
        assert len({r.request_id for r, _ in wishes}) == len(wishes)
        for r, n in wishes:
            assert 1 <= n <= min(r.num_tokens - r.num_computed_tokens, cap or budget)
        if chunked and (running or waiting):
            assert wishes, "there is work and budget, but nobody is served"
