"""The shape of the project: small files, bookkeeping without torch, imports in one direction."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "minivllm").rglob("*.py"))
BELOW = {  # what a room may import, besides the torch-free files at the top level
    "kv": {"kv"},
    "scheduler": {"kv", "scheduler"},
    "kernels": {"kernels"},
    "attention": {"attention", "kernels"},
    "model": {"model"},
    "executor": {"executor", "attention", "kernels", "scheduler", "kv", "model"},
}


def imported_modules(path):
    """Absolute names of what a file of the package imports, wherever the statement stands."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            yield base + (node.module or "")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_is_long_and_each_says_what_it_is(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    if path.name != "__init__.py":
        assert ast.get_docstring(ast.parse(text)), "a file opens with what it is about"


def test_bookkeeping_imports_no_torch():
    for room in ("kv", "scheduler"):
        for path in (ROOT / "minivllm" / room).glob("*.py"):
            names = {name.split(".")[0] for name in imported_modules(path)}
            assert not names & {"torch", "numpy", "triton"}, path


@pytest.mark.parametrize("room", BELOW)
def test_rooms_import_only_what_lies_below_them(room):
    for path in (ROOT / "minivllm" / room).glob("*.py"):
        for name in imported_modules(path):
            parts = name.split(".")
            if parts[0] == "minivllm" and len(parts) > 1 and (ROOT / "minivllm" / parts[1]).is_dir():
                assert parts[1] in BELOW[room], f"{path.name} imports {name}"
