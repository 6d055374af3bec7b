"""A CPU that passes for a CUDA device: tensors meant for "cuda" are made on the CPU, memory has given sizes.

So the assembly of a GPU engine, and the tests of tests/gpu themselves, run where there is no GPU. A graph is
its function run again, since kernels in Triton's interpreter leave no operations to record.
"""

import torch
from torch.overrides import TorchFunctionMode

from minivllm.executor.device import Gpu
from minivllm.executor.memory import MemoryUse


class _OnTheCpu(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.device:
            return func(*args, **kwargs)
        kwargs.pop("pin_memory", None)
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        return func(*["cpu" if _is_cuda(arg) else arg for arg in args], **kwargs)


def _is_cuda(value):
    return (
        value == "cuda"
        if isinstance(value, str)
        else isinstance(value, torch.device) and value.type == "cuda"
    )


def pretend_cuda(monkeypatch, use: MemoryUse, capability=(9, 0)):
    """The mode to run an engine with device="cuda" under; `use` is what its memory measurement says."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *device: capability)
    monkeypatch.setattr(Gpu, "measure", lambda self, step: step() and use)
    monkeypatch.setattr(Gpu, "capture", lambda self, forward: forward)
    return _OnTheCpu()
