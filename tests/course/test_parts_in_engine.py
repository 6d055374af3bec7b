"""An engine of the parts that the solutions of labs 01 to 06 define, held against transformers.

The kernels of lab 03 run in Triton's interpreter, too slow for SmolLM2: test_lab03_contracts.py has them in
an engine on a tiny checkpoint.
"""

from pathlib import Path

import pytest

from minivllm import LLM, Parts, SamplingParams
from minivllm.course import catalogue
from minivllm.course.grade.submission import Submission
from minivllm.course.workspace import Workspace
from tests.reference import Reference

SOLUTIONS = Path(__file__).parents[2] / "solutions"
PROMPTS = ["The capital of France is", "Once upon a time, in a small village", "1, 2, 3, 4,"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """{exercise id: the solution's class or function}, saved and loaded as a reader's are."""
    import os

    folder = tmp_path_factory.mktemp("engine_of_parts")
    workspace = Workspace(folder)
    before = os.environ.get("MINIVLLM_WORKSPACE")
    os.environ["MINIVLLM_WORKSPACE"] = str(folder)
    found = {}
    for number in (1, 2, 4, 5, 6):
        submission = Submission(SOLUTIONS / f"{catalogue.LABS[number]}.ipynb")
        for exercise in catalogue.of_lab(number):
            workspace.keep(exercise, submission.module_text(exercise))
            if exercise.engine_part:
                found[exercise.id] = workspace.load(exercise)
    yield found
    if before is None:
        del os.environ["MINIVLLM_WORKSPACE"]
    else:
        os.environ["MINIVLLM_WORKSPACE"] = before


PAGED = ("2.3", "2.4", "2.5")
EVERYTHING = (*PAGED, "4.5", "5.4", "6.4")
SMALL = {"num_gpu_blocks_override": 9, "block_size": 8}


def engine_of(parts, ids, model, **settings):
    """An `LLM` of these exercises' parts; none of them is minivllm's own."""
    for exercise_id in ids:
        assert not parts[exercise_id].__module__.startswith("minivllm."), "the reference was taken"
    exercises = [catalogue.find(exercise_id) for exercise_id in ids]
    fields = {e.engine_part: parts[e.id] for e in exercises}
    level = next((e.level for e in exercises if e.level), "complete")
    own = Parts(**fields, scheduler_level=level)
    return LLM(str(model), parts=own, device="cpu", max_model_len=64, **settings)


@pytest.mark.parametrize(
    "ids,settings",
    [
        (("1.3",), {"attention_backend": "contiguous", "max_num_seqs": 2}),
        (PAGED, SMALL),
        (PAGED, {"num_gpu_blocks_override": 40, "prefix_cache": "radix"}),
        (("4.3",), {"enable_chunked_prefill": False, "max_num_seqs": 3, "num_gpu_blocks_override": 12}),
        (("4.4",), {"max_num_batched_tokens": 6, "max_num_seqs": 3, "num_gpu_blocks_override": 12}),
        (EVERYTHING, {**SMALL, "max_num_batched_tokens": 7}),
        ((*PAGED, "4.5", "5.2", "6.5"), {**SMALL, "max_num_batched_tokens": 7}),
    ],
    ids=["01", "02 preempted", "02 shared", "04 basic", "04 chunked", "all, hash chain", "all, radix tree"],
)
def test_an_engine_of_the_solutions_parts_gives_transformers_tokens(parts, smollm2, ids, settings):
    llm = engine_of(parts, ids, smollm2, **settings)
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    outputs = llm.generate(PROMPTS * 2, params, use_tqdm=False)
    Reference(smollm2).check_all((o.prompt_token_ids, o.outputs[0].token_ids) for o in outputs)
    stats = llm.stats()
    assert stats["num_free_blocks"] == stats["num_blocks"]
    if ids == EVERYTHING:
        assert stats["num_preemptions"] and stats["prefix_cache_hits"]


@pytest.mark.parametrize("cache", ["6.4", "6.5"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_so_it_does_on_random_checkpoints(parts, checkpoints, family, cache):
    ids = (*PAGED, "4.5", "5.4", cache)
    settings = {"num_gpu_blocks_override": 14, "block_size": 4, "max_num_batched_tokens": 9}
    llm = engine_of(parts, ids, checkpoints[family], skip_tokenizer_init=True, **settings)
    shared = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    prompts = [[*shared[: 2 + i % 8], *range(7 + i, 7 + i + i % 5)] for i in range(8)] * 2
    params = SamplingParams(temperature=0, max_tokens=18, ignore_eos=True)
    outputs = llm.generate(prompts, params, use_tqdm=False)
    pairs = [(o.prompt_token_ids, o.outputs[0].token_ids) for o in outputs]
    Reference(checkpoints[family]).check_all(pairs)
    stats = llm.stats()
    assert stats["num_free_blocks"] == stats["num_blocks"]
    assert stats["num_preemptions"] and stats["prefix_cache_hits"]
