"""Run an exercise's contract on a module in a child process, and say in a few lines what came of it.

The child has a time limit and may crash or hang; whatever happens there ends here as a `Verdict`, never
as an exception.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .catalogue import Exercise
from .contracts.rules import Outcome

START_S = 60  # importing torch on a machine that is busy; the rules' own limit is the child's
PRINTED_LINES = 6


@dataclass
class Verdict:
    """`state` is "unsolved", "failing" or "passing"; `text` is what the reader is shown."""

    state: str
    passed: int
    num_rules: int
    text: str


def check_module(exercise: Exercise, module_text: str, seed: int = 0) -> Verdict:
    """Run all rules on the module. Takes about as long as importing torch."""
    with TemporaryDirectory(prefix="minivllm-check-") as folder:
        module, results = Path(folder, "part.py"), Path(folder, "results")
        module.write_text(module_text, encoding="utf-8")
        ended, printed = _run_child(
            [sys.executable, "-m", "minivllm.course.child", str(module), exercise.id, str(seed), str(results)]
        )
        outcomes, num_rules, running = _read(results)
        stuck = Path(f"{results}.stuck")
        if num_rules and len(outcomes) < num_rules and (not outcomes or outcomes[-1].verdict == "passed"):
            where = _line_of(module_text, stuck.read_text(encoding="utf-8") if stuck.exists() else "")
            outcomes.append(_did_not_end(exercise, running, where, ended))
    if not num_rules:
        text = f"✗ {exercise.id} could not be checked: {(printed or ['the child did not start'])[-1]}"
        return Verdict("failing", 0, 0, text)
    return verdict(exercise, outcomes, num_rules, printed)


def unsolved(exercise: Exercise, names: list[str]) -> Verdict:
    detail = f" ({', '.join(names)})" if names not in ([], [exercise.name]) else ""
    return Verdict("unsolved", 0, 0, f"✗ {exercise.id} not implemented yet{detail}")


def verdict(
    exercise: Exercise, outcomes: list[Outcome], num_rules: int, printed: list[str] | None = None
) -> Verdict:
    """What the outcomes amount to, and the text for it."""
    passed = sum(outcome.verdict == "passed" for outcome in outcomes)
    first = next((outcome for outcome in outcomes if outcome.verdict != "passed"), None)
    count = f"{exercise.title}: {passed} of {num_rules}"
    if first is None and passed == num_rules:
        return Verdict("passing", passed, num_rules, f"✓ {count}")
    if first.verdict == "unsolved":
        return unsolved(exercise, [first.got])
    if first.verdict == "off limits":
        text = f"✗ {exercise.title}: 0 of {num_rules}\n  {'not yours':<10} {first.got}"
        return Verdict("failing", 0, num_rules, text)
    lines = [f"✗ {count}"]
    shown = {
        "rule": first.rule,
        "called": first.called,
        "came back": first.got,
        "expected": first.expected,
        "hint": first.hint,
    }
    lines += [f"  {label:<10} {text}" for label, text in shown.items() if text]
    lines += [f"  {'printed' if i == 0 else '':<10} {line}" for i, line in enumerate(printed or [])]
    return Verdict("failing", passed, num_rules, "\n".join(lines))


def _run_child(command: list[str]) -> tuple[str, list[str]]:
    """(how it ended, the last lines that it printed)."""
    package = str(Path(__file__).parents[2])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "utf-8"}
    environment["TRITON_INTERPRET"] = "1"  # kernels are checked on CPU tensors, with a GPU or without
    with TemporaryDirectory() as folder, Path(folder, "printed").open("w+", encoding="utf-8") as file:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment)
        try:
            code = child.wait(START_S)
            ended = "ended" if code == 0 else f"ended with code {code}"
        except subprocess.TimeoutExpired:
            ended = f"was stopped after {START_S} s"
        finally:
            child.kill()
            child.wait()
        file.seek(0)
        return ended, file.read().splitlines()[-PRINTED_LINES:]


def _read(results: Path) -> tuple[list[Outcome], int, str]:
    """(outcomes, number of rules, rule that was running)."""
    outcomes, num_rules, running = [], 0, ""
    text = results.read_text(encoding="utf-8") if results.exists() else ""
    for line in text.splitlines():
        said = json.loads(line)
        num_rules = said.get("num_rules", num_rules)
        running = said.get("next", running)
        if "verdict" in said:
            outcomes.append(Outcome(**said))
    return outcomes, num_rules, running


def _did_not_end(exercise: Exercise, rule: str, line: str, ended: str) -> Outcome:
    if line:
        got, hint = f"no answer; it was still at the line `{line}`", "Does the loop ever end?"
    elif exercise.needs == "triton":
        got = f"no answer: the process {ended}"
        hint = "A kernel that reads or writes outside its tensors ends like this. Look at offsets and masks."
    else:
        got, hint = f"no answer: the process {ended}", "Take out sys.exit, os._exit and very large tensors."
    return Outcome(rule or "it can be imported", "broken", exercise.name, got, "an answer in time", hint)


def _line_of(module_text: str, dump: str) -> str:
    found = re.search(r'part\.py", line (\d+)', dump)
    return module_text.splitlines()[int(found[1]) - 1].strip() if found else ""
