"""From an object in a notebook to the text of a module that defines it.

`inspect` cannot give the source of a class typed in a cell (Python 3.10–3.12), so the cell is found by the
file name in the code of its methods. The module holds the definition and what it needs: its imports, its
helpers from any cell, and earlier exercises by way of `part`. Names that begin with `spec_` raise there,
so that calling an executable spec is no answer. A cell that begins with %%time or the like is read without
that line. Nothing of the notebook is run again.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import os
import re
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import OffLimits
from .catalogue import EXERCISES, Exercise

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Cell magics that run their cell as Python and keep what it defines.
RUNS_PYTHON = ("capture", "prun", "time")
TIMED = ("<timed exec>", "<timed eval>")  # where %%time says that its code is


class SourceNotFound(Exception):
    """The text of an object's definition is not to be had."""


class Cell:
    """One cell, or one file: its text and its top-level statements, without the cell magics before it."""

    def __init__(self, text: str) -> None:
        self.magics, text = _without_magics(text)
        try:
            self.statements = ast.parse(text).body
        except SyntaxError:
            if not self.magics:
                raise
            text = without_line_magics(text)
            self.statements = ast.parse(text).body
        self.lines = text.splitlines()

    def text_of(self, node: ast.stmt) -> str:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        return "\n".join(self.lines[first - 1 : node.end_lineno])

    def halves(self, name: str) -> list[Definition]:
        """The definition of that name, and the `triton.jit` functions beside it, which it launches."""
        kernels = [node for node in self.statements if isinstance(node, ast.FunctionDef) and is_jit(node)]
        definition = self.binding(name, Definition)
        return [definition, *kernels] if definition is not None else []

    def binding(self, name: str, kind: Any = ast.stmt) -> ast.stmt | None:
        """The last top-level statement, of that kind, that gives the name its meaning."""
        nodes = (node for node in reversed(self.statements) if isinstance(node, kind))
        return next((node for node in nodes if name in _bound_by(node)), None)


def module_text(obj: Any, exercise: Exercise) -> tuple[str, Definition]:
    """(text of a module that defines `exercise.name`, that definition). `SourceNotFound` if there is none."""
    cells = list(_cells(obj))
    home = next((cell for cell in cells if isinstance(cell.binding(exercise.name), Definition)), None)
    if home is None:
        raise SourceNotFound(f"run the cell that defines {exercise.name} first; its source is not found")
    module = sys.modules.get(getattr(obj, "__module__", None))
    text = collect(home, cells, exercise, vars(module) if module else {})
    return text, home.binding(exercise.name, Definition)


def collect(home: Cell, cells: list[Cell], exercise: Exercise, namespace: dict[str, Any]) -> str:
    """Text of a module with the exercise's definition in `home`, and with what it needs of `cells`, the
    newest first."""
    collector = _Collector(home, cells, exercise, namespace)
    collector.add(home, home.binding(exercise.name, Definition))
    head = f'"""Exercise {exercise.title} of minivllm\'s labs, saved by lab.check."""\n\n'
    imports = ["from __future__ import annotations", *sorted(collector.imports)]
    return head + "\n".join(imports) + "\n\n\n" + "\n\n\n".join(collector.bodies) + "\n"


def without_line_magics(text: str) -> str:
    """The text with each line that is none of Python's (%…, !…, ?…) replaced by `pass`."""
    return re.sub(r"^([ \t]*)[%!?].*$", r"\1pass", text, flags=re.M)


def _without_magics(text: str) -> tuple[tuple[str, ...], str]:
    """(cell magics that run Python, as typed or as IPython rewrites them; the cell without them)."""
    name, body = "", ""
    if typed := re.match(r"\s*%%(\w+)[^\n]*(?:\n|$)", text):
        name, body = typed[1], text[typed.end() :]
    elif text.lstrip().startswith("get_ipython().run_cell_magic("):
        match ast.parse(text).body:
            case [ast.Expr(ast.Call(args=[ast.Constant(str(name)), _, ast.Constant(str(body))]))]:
                pass
    if name not in RUNS_PYTHON:
        return (), text
    inner, body = _without_magics(body)
    return (name, *inner), body


def is_jit(node: ast.FunctionDef) -> bool:
    named = [getattr(decorator, "func", decorator) for decorator in node.decorator_list]
    return any(ast.unparse(name).split(".")[-1] == "jit" for name in named)


def stubs_in(definition: Definition | ast.Module) -> list[str]:
    """Names of the functions in it that begin by raising `NotImplementedYet`, so surely are stubs, and of
    the kernels that raise it anywhere."""
    found = []
    for node in ast.walk(definition):
        if isinstance(node, ast.FunctionDef):
            code = node.body[1:] if ast.get_docstring(node) is not None else node.body
            # A kernel cannot raise: wherever the line stands in it, it is the stub's.
            lines = ast.walk(node) if is_jit(node) else code[:1]
            if any(isinstance(line, ast.Raise) and "NotImplementedYet" in ast.dump(line) for line in lines):
                found.append(node.name)
    return found


def forbidden(name: str):
    """Stands for an executable spec while a check runs."""

    def raise_off_limits(*args, **kwargs):
        raise OffLimits(f"it calls {name}; the spec says what is wanted, the code has to be yours")

    return raise_off_limits


class _Collector:
    """Follows the names that a definition uses to where they come from, dependencies first."""

    def __init__(self, home: Cell, cells: list[Cell], exercise: Exercise, namespace: dict[str, Any]) -> None:
        self.home, self.cells, self.exercise, self.namespace = home, cells, exercise, namespace
        self.imports: set[str] = set()
        self.bodies: list[str] = []
        self._seen: set[str] = {exercise.name}

    def add(self, cell: Cell, node: ast.stmt) -> None:
        text = cell.text_of(node)
        for name in sorted(_global_names(text) - self._seen):
            self._seen.add(name)
            self._resolve(name)
        self.bodies.append(text)

    def _resolve(self, name: str) -> None:
        if name.startswith("spec_"):
            self.imports.add("from minivllm.course.source import forbidden")
            self.bodies.append(f'{name} = forbidden("{name}")')
            return
        in_home = self.home.binding(name)
        earlier = next((e for e in EXERCISES if e.name == name and _order(e) < _order(self.exercise)), None)
        if in_home is None and earlier is not None:
            self.imports.add("from minivllm.course.workspace import part")
            self.bodies.append(f'{name} = part("{earlier.id}")')
            return
        for cell in [self.home, *self._as_it_is_now(name), *self.cells]:
            node = cell.binding(name)
            if node is None:
                continue
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.imports.add(_import_of(name, node))
            elif isinstance(node, Definition) or cell is self.home or _is_constant(node):
                self.add(cell, node)
            return

    def _as_it_is_now(self, name: str) -> Iterator[Cell]:
        """The cell of the helper that the name means now; an older cell may have been run again."""
        helper = self.namespace.get(name)
        if _is_cell(_file_of(helper) or ""):
            yield from _cells(helper)


def _cells(obj: Any) -> Iterator[Cell]:
    """Where the object may be defined: its own cell or file, then the other cells, newest first."""
    home = _file_of(obj)
    timed = home in TIMED
    if home is not None and not timed and not _is_cell(home):
        texts = [Path(home).read_text(encoding="utf-8")] if Path(home).is_file() else []
    else:
        names = [name for name in reversed(linecache.cache) if _is_cell(name)]
        if home is not None and not timed:
            folder = os.path.dirname(home)
            names = [home, *(n for n in names if n != home and os.path.dirname(n) == folder)]
        texts = ["".join(linecache.cache[name][2]) for name in names]
    cells = filter(None, map(_parsed, texts))
    yield from sorted(cells, key=lambda cell: "time" not in cell.magics) if timed else cells


def _parsed(text: str) -> Cell | None:
    try:
        return Cell(text)
    except (SyntaxError, ValueError):
        return None


def _file_of(obj: Any) -> str | None:
    """The name under which the code of a function, or of a class's methods, was compiled."""
    for member in [obj, *(vars(obj).values() if isinstance(obj, type) else ())]:
        member = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
        code = getattr(inspect.unwrap(member) if callable(member) else member, "__code__", None)
        if code is not None and (member is obj or member.__qualname__.startswith(f"{obj.__qualname__}.")):
            return code.co_filename
    module = sys.modules.get(getattr(obj, "__module__", None))
    return getattr(module, "__file__", None)


def _is_cell(name: str) -> bool:
    """IPython keeps what it runs in `linecache`, with no time of change; it does so whether or not the
    front end wants a history (nbval wants none)."""
    entry = linecache.cache.get(name, ())
    return len(entry) == 4 and entry[1] is None


def _bound_by(node: ast.stmt) -> list[str]:
    if isinstance(node, Definition):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return []


def _global_names(text: str) -> set[str]:
    """Names that the text takes from outside: not its locals, not builtins."""
    top = symtable.symtable(text, "cell", "exec")
    names, tables = set(), [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            outside = symbol.is_global() if table is not top else not symbol.is_assigned()
            if symbol.is_referenced() and outside and not hasattr(builtins, symbol.get_name()):
                names.add(symbol.get_name())
    return names - {s.get_name() for s in top.get_symbols() if s.is_assigned() and not s.is_imported()}


def _import_of(name: str, node: ast.Import | ast.ImportFrom) -> str:
    alias = next(a for a in node.names if (a.asname or a.name.split(".")[0]) == name)
    what = alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
    return f"from {node.module} import {what}" if isinstance(node, ast.ImportFrom) else f"import {what}"


def _is_constant(node: ast.stmt) -> bool:
    try:
        ast.literal_eval(node.value)
    except (ValueError, AttributeError):
        return False
    return True


def _order(exercise: Exercise) -> tuple[int, ...]:
    return tuple(int(number) for number in exercise.id.split("."))
