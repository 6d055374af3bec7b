"""Do the contracts bite? `python -m tests.course.mutants [ID …] [--sample N] [--seed S]`.

Every solution's part, or a kernel that it launches, is changed in one small place at a time (an operator,
a comparison, a bound, a constant, a dropped statement, two statements swapped, a condition, a returned
value), and the exercise's rules are run on each such mutant, in a fork with a time limit. A mutant that
passes every rule has survived. Mutants that nobody can tell from the solution by its interface are listed,
with the reason, in equivalent_mutants/labNN.tsv: exercise, old line, new line, why. They are not counted.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import linecache
import os
import random
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
os.environ["MINIVLLM_WORKSPACE"] = os.devnull  # earlier exercises are the reference

from minivllm.course.catalogue import EXERCISES, LABS, Exercise, find  # noqa: E402
from minivllm.course.contracts.rules import run_rule  # noqa: E402
from minivllm.course.grade.submission import Submission  # noqa: E402
from minivllm.course.source import is_jit  # noqa: E402

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants")
CPU_S, MEMORY = 2, 2 << 30
ARITHMETIC = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv, ast.Add),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult, ast.Mod),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
}
COMPARISON = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
DROPPABLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.If, ast.For, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    exercise: Exercise
    old: str  # the line that was changed
    new: str
    source: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.exercise.id, self.old, self.new


def solution_of(exercise: Exercise) -> str:
    """The module that the solution notebook's part makes."""
    return Submission(ROOT / "solutions" / f"{LABS[exercise.lab]}.ipynb").module_text(exercise)


def mutants_of(exercise: Exercise) -> list[Mutant]:
    """All mutants of the solution's part, each once."""
    tree = ast.parse(solution_of(exercise))
    found: dict[str, Mutant] = {}
    original = ast.unparse(tree)
    for old, new, mutated in _mutations(tree, exercise.name):
        source = ast.unparse(ast.fix_missing_locations(mutated))
        if source != original:
            found.setdefault(source, Mutant(exercise, old, new, source))
    return list(found.values())


def survives(mutant: Mutant, seed: int = 0) -> bool:
    """Whether all rules hold for it."""
    _warm(mutant.exercise)
    child = os.fork()
    if child == 0:
        passed = False
        try:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1), os.dup2(null, 2)
            _limit()
            passed = _passes(mutant, seed)
        finally:
            os._exit(0 if passed else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def equivalent() -> dict[tuple[str, str, str], str]:
    """{key of a mutant: why it cannot be told from the solution}"""
    files = sorted(EQUIVALENT.glob("*.tsv"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return {(row[0], row[1], row[2]): row[3] for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.course.mutants", description=__doc__.split("\n")[0])
    parser.add_argument("ids", nargs="*", help="exercises (default: all)")
    parser.add_argument("--sample", type=int, help="only so many, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    exercises = [find(id) for id in options.ids] or EXERCISES
    known = equivalent()
    everything = [mutant for exercise in exercises for mutant in mutants_of(exercise)]
    mutants = [mutant for mutant in everything if mutant.key not in known]
    if options.sample is not None:
        mutants = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    survivors = []
    for number, mutant in enumerate(mutants, 1):
        if survives(mutant):
            survivors.append(mutant)
            print(f"survived\t{mutant.exercise.id}\t{mutant.old}\t{mutant.new}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{number} of {len(mutants)}", end="", file=sys.stderr)
    caught = len(mutants) - len(survivors)
    print(f"{caught} of {len(mutants)} caught ({caught / max(1, len(mutants)):.1%})", end="; ")
    print(f"{len(everything) - len([m for m in everything if m.key not in known])} equivalent, not counted")
    return 1 if caught < 0.95 * len(mutants) else 0


@functools.cache
def _warm(exercise: Exercise) -> None:
    """Run the solution here once, so that no fork has to import what it needs."""
    _passes(Mutant(exercise, "", "", solution_of(exercise)), 0)


def _passes(mutant: Mutant, seed: int) -> bool:
    namespace = {"__name__": "mutant"}
    # A kernel is read from its source, which is found here.
    linecache.cache["mutant"] = len(mutant.source), None, mutant.source.splitlines(True), "mutant"
    exec(compile(mutant.source, "mutant", "exec"), namespace)
    part = namespace[mutant.exercise.name]
    rules = import_module(f"minivllm.course.contracts.{mutant.exercise.contract}").rules.rules
    return all(run_rule(rule, part, seed).verdict == "passed" for rule in rules)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    if sys.platform == "linux":
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))


def _mutations(tree: ast.Module, name: str) -> Iterator[tuple[str, str, ast.Module]]:
    """(old line, new line, mutated tree)"""
    for home, node in enumerate(tree.body):
        if getattr(node, "name", None) == name or (isinstance(node, ast.FunctionDef) and is_jit(node)):
            yield from _mutations_of(tree, home)


def _mutations_of(tree: ast.Module, home: int) -> Iterator[tuple[str, str, ast.Module]]:
    count = len(list(_places(tree.body[home])))
    for place in range(count):
        for choice in range(6):
            mutated = copy.deepcopy(tree)
            statement, parent, change = list(_places(mutated.body[home]))[place]
            before = _line(statement)
            done = change(choice)
            if done is None:
                break
            after = done if isinstance(done, str) else _line(statement)
            yield before, after, mutated


def _places(home: ast.stmt) -> Iterator[tuple]:
    """(statement, its parent, change) of every place that can be changed. `change(k)` does the k-th change
    there is and returns the new line, or True if the statement says it, or None if there is no k-th."""
    for parent in ast.walk(home):
        for field in ("body", "orelse"):
            block = getattr(parent, field, None)
            if not isinstance(block, list) or (block and not isinstance(block[0], ast.stmt)):
                continue
            for index, statement in enumerate(block):
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    continue  # a docstring
                yield statement, parent, lambda k, b=block, i=index: _restructure(b, i, k)
                if not isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Raise):
                    for node in _own_expressions(statement):
                        yield statement, parent, lambda k, n=node: _change(n, k)


def _restructure(block: list[ast.stmt], index: int, choice: int) -> str | None:
    statement = block[index]
    options = []
    if isinstance(statement, DROPPABLE):
        options.append("drop")
    following = block[index + 1] if index + 1 < len(block) else None
    if following is not None and not isinstance(statement, ast.FunctionDef | ast.Return):
        options.append("swap")
    if isinstance(statement, ast.Return) and statement.value is not None:
        options.append("none")
    if choice >= len(options):
        return None
    if options[choice] == "drop":
        block[index] = ast.Pass()
        return "(dropped)"
    if options[choice] == "swap":
        block[index], block[index + 1] = following, statement
        return f"(after: {_line(following)})"
    statement.value = ast.Constant(None)
    return "return None"


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Expressions of the statement itself, not those of statements inside it."""
    waiting = [child for child in ast.iter_child_nodes(statement) if not isinstance(child, ast.stmt)]
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting += [c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.stmt)]
    if isinstance(statement, ast.AugAssign | ast.If | ast.While):
        yield statement


def _change(node: ast.AST, choice: int) -> bool | None:
    changes = list(_changes(node))
    if choice >= len(changes):
        return None
    target, field, value = changes[choice]
    if isinstance(field, int):
        target[field] = value
    else:
        setattr(target, field, value)
    return True


def _changes(node: ast.AST) -> Iterator[tuple]:
    if isinstance(node, ast.BinOp | ast.AugAssign):
        for kind in ARITHMETIC.get(type(node.op), ()):
            yield node, "op", kind()
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for kind in COMPARISON.get(type(op), ()):
                yield node.ops, i, kind()
    if isinstance(node, ast.BoolOp):
        yield node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And()
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node, "op", ast.UAdd()
    if isinstance(node, ast.If | ast.While):
        yield node, "test", ast.UnaryOp(ast.Not(), node.test)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield node, "value", not node.value
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield node, "value", node.value + 1
        yield node, "value", node.value - 1
    if isinstance(node, ast.Slice):
        for field in ("lower", "upper"):
            bound = getattr(node, field)
            if bound is not None and not isinstance(bound, ast.Constant):
                yield node, field, ast.BinOp(bound, ast.Add(), ast.Constant(1))
                yield node, field, ast.BinOp(bound, ast.Sub(), ast.Constant(1))
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range":
        for i, bound in enumerate(node.args):
            if not isinstance(bound, ast.Constant):
                yield node.args, i, ast.BinOp(bound, ast.Add(), ast.Constant(1))
                yield node.args, i, ast.BinOp(bound, ast.Sub(), ast.Constant(1))


def _line(statement: ast.stmt) -> str:
    return ast.unparse(statement).splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
