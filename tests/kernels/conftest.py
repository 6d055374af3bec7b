"""Kernels are tested in Triton's interpreter, which must be chosen before triton is imported: so these
tests run in a process of their own (tests/kernels/test_in_interpreter.py), and are collected only there.
Whatever a kernel's wrapper allocates is poisoned, so that an element which is never written shows."""

import os

import pytest

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted_*.py"]


@pytest.fixture
def poisoned(monkeypatch):
    """torch.empty gives NaN."""
    import torch

    empty = torch.empty

    def poison(*args, **kwargs):
        tensor = empty(*args, **kwargs)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch, "empty", poison)
