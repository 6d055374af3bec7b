"""Planners of lab 05 inside an engine: the same tokens whatever the budget, and nobody left behind."""

import pytest

from minivllm import LLM, Parts, SamplingParams
from minivllm.course.reference.batching import PreemptingScheduler
from minivllm.course.reference.chunking import latencies, plan_step

from .lab05_parts import RIGHT
from .test_contracts import part_from

PROMPTS = [[5 + i, 17, 40 + i, 8] * (1 + 3 * i) for i in range(4)]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PLANNERS = {
    "reference": plan_step,
    "another style": part_from(RIGHT["5.2"], "plan_step"),
    "fair": part_from(RIGHT["5.4"], "fair_plan_step"),
}


def engine(folder, **more):
    blocks = dict(block_size=4, num_gpu_blocks_override=64, max_num_seqs=4)
    return LLM(str(folder), skip_tokenizer_init=True, device="cpu", max_model_len=64, **{**blocks, **more})


def tokens_of(llm):
    return [o.outputs[0].token_ids for o in llm.generate(PROMPTS, GREEDY, use_tqdm=False)]


@pytest.fixture(scope="module")
def expected(checkpoints):
    return tokens_of(engine(checkpoints["llama"]))


@pytest.mark.parametrize("budget", [1, 3, 5, 64])
@pytest.mark.parametrize("name", PLANNERS)
def test_tokens_do_not_depend_on_planner_or_budget(checkpoints, expected, name, budget):
    parts = Parts(plan_step=PLANNERS[name])
    llm = engine(checkpoints["llama"], parts=parts, max_num_batched_tokens=budget)
    assert tokens_of(llm) == expected
    assert all(sum(step.num_scheduled_tokens.values()) <= budget for step in llm.trace.steps)
    assert llm.stats()["num_free_blocks"] == 64


@pytest.mark.parametrize("name", PLANNERS)
def test_they_go_with_lab_04s_scheduler_and_a_small_pool(checkpoints, expected, name):
    parts = Parts(plan_step=PLANNERS[name], scheduler=PreemptingScheduler, scheduler_level="preempting")
    llm = engine(checkpoints["llama"], parts=parts, max_num_batched_tokens=6, num_gpu_blocks_override=18)
    assert tokens_of(llm) == expected


def test_more_answers_than_budget_take_turns_with_patience_and_starve_without(checkpoints):
    """Six answers of one prompt, two tokens a step."""
    longest = {}
    for name in ("reference", "fair"):
        parts = Parts(plan_step=PLANNERS[name])
        llm = engine(checkpoints["llama"], parts=parts, max_num_batched_tokens=2, max_num_seqs=8)
        six = SamplingParams(n=6, seed=0, max_tokens=10, ignore_eos=True)
        llm.generate([PROMPTS[0]], six, use_tqdm=False)
        steps = list(llm.trace.steps)
        had = {r: [s.index for s in steps if r in s.sampled] for r in llm.trace.requests}
        assert len(had) == 6
        longest[name] = max(b - a for s in had.values() for a, b in zip(s, s[1:], strict=False))
    assert longest["fair"] == 3 and longest["reference"] > 10


def test_latencies_of_a_real_trace_add_up_to_its_length(checkpoints):
    llm = engine(checkpoints["llama"], max_num_batched_tokens=8)
    tokens_of(llm)
    found = latencies(llm.trace)
    assert len(found) == 4
    for request_id, (ttft, itls) in found.items():
        last = max(step.time_end for step in llm.trace.steps if request_id in step.sampled)
        arrived = llm.trace.requests[request_id].arrival_time
        assert len(itls) == 11 and ttft + sum(itls) == pytest.approx(last - arrived)
