"""Schedulers of lab 04 in the engine: the same tokens as minivllm's own, and nothing beyond their level."""

import pytest

from minivllm import LLM, Parts, SamplingParams
from minivllm.course import open
from minivllm.course.catalogue import LABS, find, of_lab
from minivllm.course.grade.submission import Submission
from minivllm.course.workspace import Workspace
from minivllm.scheduler.levels import AboveLevel

from .test_grade import ROOT

SETTINGS = {"skip_tokenizer_init": True, "device": "cpu", "block_size": 4, "max_model_len": 64}
PROMPTS = [[3 + i, 5, 7 * i + 1, 2][: 1 + i % 4] * (1 + i % 3) for i in range(10)]
PARAMS = [SamplingParams(temperature=0, max_tokens=3 + 5 * (i % 4), ignore_eos=True) for i in range(10)]
LEVEL_OF = {"4.3": "basic", "4.4": "chunked", "4.5": "preempting"}
WIDE = {"max_num_seqs": 4, "num_gpu_blocks_override": 64}
ALLOWED = {
    "4.3": {**WIDE, "enable_chunked_prefill": False},
    "4.4": {**WIDE, "max_num_batched_tokens": 5},
    "4.5": {"max_num_seqs": 6, "num_gpu_blocks_override": 10, "max_num_batched_tokens": 5},
}


@pytest.fixture
def solved(tmp_path, monkeypatch):
    """A workspace in which the solutions of lab 04 have passed, and `keep(ids)` that puts them there."""
    monkeypatch.setenv("MINIVLLM_WORKSPACE", str(tmp_path / "my_engine"))
    submission = Submission(ROOT / "solutions" / f"{LABS[4]}.ipynb")

    def keep(*ids):
        for exercise_id in ids:
            exercise = find(exercise_id)
            Workspace().keep(exercise, submission.module_text(exercise))
        return [Workspace().load(find(exercise_id)) for exercise_id in ids]

    return keep


def tokens(llm):
    return [o.outputs[0].token_ids for o in llm.generate(PROMPTS, PARAMS, use_tqdm=False)]


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("exercise_id", LEVEL_OF)
def test_a_scheduler_of_each_level_gives_the_same_tokens(exercise_id, caching, checkpoints, solved):
    scheduler = solved("4.2", "4.3", "4.4", "4.5")[int(exercise_id[2]) - 2]
    level = find(exercise_id).level
    assert level == LEVEL_OF[exercise_id] and scheduler.__module__.startswith("my_engine.")
    want = tokens(LLM(checkpoints["llama"], **SETTINGS))
    parts = Parts(scheduler=scheduler, scheduler_level=level)
    settings = {**SETTINGS, **ALLOWED[exercise_id], "enable_prefix_caching": caching}
    llm = LLM(checkpoints["llama"], parts=parts, **settings)
    assert tokens(llm) == want and tokens(llm) == want
    stats = llm.stats()
    assert stats["num_free_blocks"] == stats["num_blocks"]
    assert (stats["num_preemptions"] > 0) == (exercise_id == "4.5")
    assert stats["num_preemptions"] == sum(len(step.preempted) for step in llm.trace.steps)


def test_what_is_above_the_level_is_refused_before_anything_runs(checkpoints, solved):
    (scheduler,) = solved("4.2", "4.3")[1:]
    parts = Parts(scheduler=scheduler, scheduler_level="basic")
    assert parts.replaced() == ["scheduler"]
    with pytest.raises(AboveLevel, match="enable_chunked_prefill is True"):
        LLM(checkpoints["llama"], parts=parts, **SETTINGS, **WIDE)
    with pytest.raises(AboveLevel, match="the pool has 63 KV blocks"):
        LLM(
            checkpoints["llama"], parts=parts, **SETTINGS, **{**ALLOWED["4.3"], "num_gpu_blocks_override": 63}
        )
    llm = LLM(checkpoints["llama"], parts=parts, **SETTINGS, **ALLOWED["4.3"])
    with pytest.raises(AboveLevel, match="n is 2"):
        llm.generate([1, 2], SamplingParams(n=2, temperature=1), use_tqdm=False)
    engine = llm.engine
    for settings in ({"num_blocks": 20}, {"policy": "priority"}, {"enable_chunked_prefill": True}):
        before = engine.config, engine.scheduler, engine.kv
        with pytest.raises(AboveLevel):
            engine.reconfigure(**settings)
        assert (engine.config, engine.scheduler, engine.kv) == before
    assert len(tokens(llm)) == len(PROMPTS)


def test_an_abort_in_the_engine_gives_back_seat_and_blocks(checkpoints, solved):
    parts = Parts(scheduler=solved("4.2", "4.3")[1], scheduler_level="basic")
    llm = LLM(checkpoints["llama"], parts=parts, **SETTINGS, **ALLOWED["4.3"])
    ids = [llm.engine.add_request(prompt, PARAMS[3]) for prompt in PROMPTS[:5]]
    llm.engine.step()
    for request_id in (ids[1], ids[4]):  # one runs, one waits
        assert llm.engine.abort(request_id).outputs[0].finish_reason == "abort"
    while llm.engine.has_unfinished_requests:
        llm.engine.step()
    assert llm.stats()["num_free_blocks"] == 64


def test_lab_engine_takes_the_highest_that_passes(checkpoints, solved, capsys):
    llm = open(4).engine(checkpoints["llama"], **SETTINGS, **WIDE)
    assert "engine: scheduler is minivllm's (4.5 PreemptingScheduler)" in capsys.readouterr().out
    assert llm.engine.parts.scheduler_level == "complete"
    solved("4.2", "4.3", "4.4")
    llm = open(4).engine(checkpoints["llama"], **SETTINGS, **WIDE)
    assert capsys.readouterr().out.count("scheduler is yours (4.4 AdmittingScheduler)") == 1
    assert llm.engine.parts.scheduler_level == "chunked"
    assert type(llm.engine.scheduler).__name__ == "AdmittingScheduler"
    assert len(tokens(llm)) == len(PROMPTS)


def test_lab_engine_leaves_out_a_scheduler_that_has_shown_too_little(checkpoints, solved, capsys):
    solved("4.2", "4.3")
    llm = open(5 if 5 in LABS else 4).engine(checkpoints["llama"], **SETTINGS, **WIDE)
    out = capsys.readouterr().out
    assert "scheduler is yours (4.3 Scheduler)" in out
    assert "scheduler is minivllm's after all: enable_chunked_prefill is True" in out
    assert "scheduler" not in llm.engine.parts.replaced()


def test_the_levels_of_the_lab_are_those_that_the_engine_knows():
    assert {e.id: e.level for e in of_lab(4) if e.engine_part == "scheduler"} == LEVEL_OF
