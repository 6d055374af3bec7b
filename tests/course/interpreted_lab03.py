"""Lab 03 where kernels are interpreted: its contracts, and an engine on the kernels of its solution."""

import os
from pathlib import Path

import pytest

from minivllm import LLM, Parts, SamplingParams
from minivllm.course.catalogue import LABS, of_lab
from minivllm.course.grade.submission import Submission
from minivllm.course.workspace import Workspace
from tests.test_greedy_tokens import random_prompts

from . import lab03_parts
from .test_contracts import failing

KERNELS = [exercise for exercise in of_lab(3) if exercise.needs]
SOLUTION = Path(__file__).parents[2] / "solutions" / f"{LABS[3]}.ipynb"


@pytest.mark.parametrize("exercise", KERNELS, ids=lambda e: e.title)
def test_a_right_answer_in_another_style_passes(exercise):
    assert failing(exercise, getattr(lab03_parts, exercise.name)) == []


def test_what_is_raised_in_a_kernel_is_shown_with_its_line():
    import triton

    @triton.jit
    def kernel(x):
        missing_name  # noqa: B018, F821

    outcome = failing(of_lab(3)[0], lambda *args: kernel[(1,)](args[0]))[0]
    assert outcome.got.startswith("NameError: ") and "missing_name" in outcome.got


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """{kernel: the solution's function}, saved and loaded as a reader's are."""
    folder = tmp_path_factory.mktemp("kernels")
    workspace, submission, found = Workspace(folder), Submission(SOLUTION), {}
    os.environ["MINIVLLM_WORKSPACE"] = str(folder)
    for exercise in KERNELS:
        workspace.keep(exercise, submission.module_text(exercise))
        field, _, name = (exercise.engine_part or "").partition(".")
        if name:
            found[name] = workspace.load(exercise)
    assert set(found) == {"store_kv", "rms_norm", "paged_decode", "paged_prefill"}
    return found


@pytest.mark.parametrize("family", ["qwen3"])
def test_an_engine_on_the_solutions_kernels_gives_transformers_tokens(
    kernels, checkpoints, references, family
):
    llm = LLM(
        checkpoints[family],
        parts=Parts(kernels=kernels),
        attention_backend="triton",
        device="cpu",
        skip_tokenizer_init=True,
        block_size=4,
        max_model_len=24,
        max_num_batched_tokens=7,
        num_gpu_blocks_override=8,
    )
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (5, 9, 3)]
    outputs = llm.generate(random_prompts(3, [9, 4, 1]), params, use_tqdm=False)
    references[family].check_all((o.prompt_token_ids, o.outputs[0].token_ids) for o in outputs)
    assert llm.stats()["num_free_blocks"] == llm.stats()["num_blocks"]
