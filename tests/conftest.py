"""Models that many tests share, each made once in a session and only if a test asks for it."""

import os

# Tiny models gain nothing from more threads, and waiting for each other costs a lot on a busy machine.
# Must be set before torch is imported; whoever wants more threads sets the variable.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest  # noqa: E402


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """{family: folder} of tiny random checkpoints with untied heads and no tokenizer."""
    from tests.checkpoints import SHAPES, make_checkpoint

    root = tmp_path_factory.mktemp("checkpoints")
    return {family: make_checkpoint(root / family, family, seed=1) for family in SHAPES}


@pytest.fixture(scope="session")
def references(checkpoints):
    """{family: Reference} for `checkpoints`."""
    from tests.reference import Reference

    return {family: Reference(path) for family, path in checkpoints.items()}


@pytest.fixture(scope="session")
def smollm2():
    """Folder of the real model, as `python -m minivllm fetch` leaves it; fetched if need be."""
    from minivllm.model.fetch import DEFAULT_MODEL, resolve

    return resolve(DEFAULT_MODEL)
