"""Each solution runs under nbval in a workspace of its own, as it was built: what another lab has kept, or
the reader has, must not change what it prints. Set before nbval starts the notebook's kernel."""

import os
import tempfile

import pytest

_workspaces: dict[str, str] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    notebook = str(item.path)
    if notebook not in _workspaces:
        _workspaces[notebook] = tempfile.mkdtemp(prefix="minivllm-solution-")
    os.environ["MINIVLLM_WORKSPACE"] = _workspaces[notebook]
