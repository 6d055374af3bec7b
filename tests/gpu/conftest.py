"""These tests need a GPU; where there is none each is skipped by name, with the reason."""

from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device here"))


@pytest.fixture(autouse=True)
def _free_the_memory_of_the_last_test():
    yield
    torch.cuda.empty_cache()
