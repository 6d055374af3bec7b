"""minivllm: an LLM inference engine small enough to read, and the course that builds it.

The public names are loaded when they are first used, so that the bookkeeping (kv/, scheduler/)
can be imported, read and tested on a machine without torch.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOME = {
    "LLM": "llm",
    "Engine": "engine",
    "EngineConfig": "config",
    "SamplingParams": "sampling",
    "RequestOutput": "outputs",
    "CompletionOutput": "outputs",
    "Parts": "parts",
}

__all__ = list(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'minivllm' has no attribute {name!r}")
    return getattr(import_module(f"minivllm.{_HOME[name]}"), name)
