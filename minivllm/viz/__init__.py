"""Pictures of what the engine did, all read from its trace.

`BlockTableView`, `TimelineView`, `PrefixTreeView` and `MemoryView` take `llm.trace`; each has `.figure()`
(matplotlib), `.table()` (the same in words) and, in a notebook, shows itself; `explore(llm)` steps a
live engine.
"""

from importlib import import_module

_HOME = {
    "BlockTableView": "block_table",
    "TimelineView": "timeline",
    "compare": "timeline",
    "PrefixTreeView": "prefix_tree",
    "MemoryView": "memory",
    "explore": "debugger",
}

__all__ = list(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'minivllm.viz' has no attribute {name!r}")
    return getattr(import_module(f"minivllm.viz.{_HOME[name]}"), name)
