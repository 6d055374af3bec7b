"""Which backend serves which setting, and what is said where it cannot."""

import importlib.util

import pytest

from minivllm import LLM
from minivllm.kernels import KERNELS, interpreting, why_not


def test_kernels_on_a_cpu_need_the_interpreter_and_say_so(checkpoints):
    if interpreting() or importlib.util.find_spec("triton") is None:
        pytest.skip("this process interprets kernels, or has no triton")
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        LLM(checkpoints["llama"], skip_tokenizer_init=True, attention_backend="triton", device="cpu")


def test_auto_on_a_cpu_is_torch(checkpoints):
    llm = LLM(checkpoints["llama"], skip_tokenizer_init=True, device="cpu", num_gpu_blocks_override=4)
    assert type(llm.engine.executor.backend).__name__ == "PagedBackend"


def test_without_triton_the_way_out_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "attention_backend='paged'" in why_not("cuda")
    assert len(KERNELS) == 6
