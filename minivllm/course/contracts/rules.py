"""Rules, and running them: the small frame in which every contract is written.

A broken rule says what was called, what came back, what was expected, and a hint. What a part raises
by itself is turned into the same four lines, so that a reader never meets a raw traceback first.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .. import NotImplementedYet, OffLimits
from ..kernel_errors import in_the_kernel

CUT = 200
NO_NOTEBOOK = (
    "A check runs your code without the notebook's variables. Define what you need in the same cell."
)


class Broken(Exception):
    """A rule that does not hold. All four are short texts."""

    def __init__(self, called: str, got: str, expected: str, hint: str = "") -> None:
        super().__init__(f"{called} gave {got}, not {expected}")
        self.called, self.got, self.expected, self.hint = called, got, expected, hint


@dataclass
class Outcome:
    """What became of one rule. `verdict` is "passed", "broken", "unsolved" or "off limits"."""

    rule: str
    verdict: str
    called: str = ""
    got: str = ""
    expected: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Rule:
    name: str
    hint: str
    function: Callable[[Any, random.Random], None]


@dataclass
class Rules:
    """The rules of one part, in the order in which a reader should meet them."""

    rules: list[Rule] = field(default_factory=list)

    def add(self, hint: str = "") -> Callable:
        """Decorator: the function's name, its underscores made spaces, is the name of the rule."""

        def keep(function):
            self.rules.append(Rule(function.__name__.replace("_", " "), hint, function))
            return function

        return keep

    def __len__(self) -> int:
        return len(self.rules)

    def run(self, part: Any, seed: int = 0, source_file: str | None = None) -> Iterator[Outcome]:
        """One outcome a rule. `source_file` is the part's own file: a part that raises is shown the
        line of it where that happened."""
        for rule in self.rules:
            yield run_rule(rule, part, seed, source_file)


def run_rule(rule: Rule, part: Any, seed: int, source_file: str | None = None) -> Outcome:
    """What became of one rule. Whatever the part raises is an outcome."""
    try:
        rule.function(part, random.Random(f"{seed} {rule.name}"))
    except NotImplementedYet as error:
        where = traceback.extract_tb(error.__traceback__)[-1].name
        return Outcome(rule.name, "unsolved", got=where)
    except OffLimits as error:
        return Outcome(rule.name, "off limits", got=str(error))
    except Broken as broken:
        return Outcome(
            rule.name, "broken", broken.called, broken.got, broken.expected, broken.hint or rule.hint
        )
    except Exception as error:
        error = in_the_kernel(error)
        if isinstance(error, NotImplementedYet):
            return Outcome(rule.name, "unsolved", got=traceback.extract_tb(error.__traceback__)[-1].name)
        got = what_was_raised(error, source_file)
        hint = NO_NOTEBOOK if isinstance(error, NameError) else rule.hint
        return Outcome(rule.name, "broken", got=got, expected="no exception", hint=hint)
    return Outcome(rule.name, "passed")


def what_was_raised(error: BaseException, source_file: str | None = None) -> str:
    """The exception in one line, and the last line of the part's own source that led to it."""
    message = " ".join(str(error).split())
    text = f"{type(error).__name__}: {shorten(message)}" if message else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.line for frame in frames if frame.filename == source_file and frame.line]
    return f"{text}, at the line `{lines[-1]}`" if lines else text


def shorten(text: str) -> str:
    return text if len(text) <= CUT else text[: CUT - 1] + "…"
