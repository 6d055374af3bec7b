"""An engine of the parts that the solutions of labs 01 and 02 define, held against transformers."""

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
    """{field of Parts: the solution's class or function}, saved and loaded as a reader's are."""
    import os

    folder = tmp_path_factory.mktemp("engine_of_parts")
    workspace = Workspace(folder)
    before = os.environ.get("MINIVLLM_WORKSPACE")
    os.environ["MINIVLLM_WORKSPACE"] = str(folder)
    found = {}
    for number in (1, 2):
        submission = Submission(SOLUTIONS / f"{catalogue.LABS[number]}.ipynb")
        for exercise in catalogue.of_lab(number):
            workspace.keep(exercise, submission.module_text(exercise))
            if exercise.engine_part:
                found[exercise.engine_part] = workspace.load(exercise)
    yield found
    if before is None:
        del os.environ["MINIVLLM_WORKSPACE"]
    else:
        os.environ["MINIVLLM_WORKSPACE"] = before


@pytest.mark.parametrize(
    "names,settings",
    [
        (("kv_cache",), {"attention_backend": "contiguous", "max_num_seqs": 2}),
        (("block_pool", "block_table", "paged_attention"), {"num_gpu_blocks_override": 9, "block_size": 8}),
        (
            ("block_pool", "block_table", "paged_attention"),
            {"num_gpu_blocks_override": 40, "prefix_cache": "radix"},
        ),
    ],
    ids=["lab 01", "lab 02, preempted", "lab 02, shared"],
)
def test_an_engine_of_the_solutions_parts_gives_transformers_tokens(parts, smollm2, names, settings):
    assert set(names) <= set(parts)
    own = Parts(**{name: parts[name] for name in names})
    for part in names:
        assert not parts[part].__module__.startswith("minivllm."), "the reference was taken"
    llm = LLM(str(smollm2), parts=own, device="cpu", max_model_len=64, **settings)
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    outputs = llm.generate(PROMPTS * 2, params, use_tqdm=False)
    Reference(smollm2).check_all((o.prompt_token_ids, o.outputs[0].token_ids) for o in outputs)
    assert llm.stats()["num_free_blocks"] == llm.stats()["num_blocks"]
