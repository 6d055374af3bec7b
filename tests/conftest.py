"""Models that many tests share, each made once in a session and only if a test asks for it."""

import pytest


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
