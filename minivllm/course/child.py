"""The process in which a check runs: `python -m minivllm.course.child MODULE ID SEED RESULTS`.

It loads the very module that will be kept, with minivllm's own answer made unusable, and writes one line
of JSON to RESULTS after each rule, so that whoever waits knows where it was if it never comes back. After
`LIMIT_S` seconds (or `MINIVLLM_CHECK_SECONDS`) the process ends itself, and leaves in RESULTS.stuck the
line that it was at.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from .catalogue import Exercise, find
from .contracts.rules import NO_NOTEBOOK, OffLimits, Outcome, what_was_raised
from .off_limits import put_off_limits
from .workspace import load_module

LIMIT_VARIABLE = "MINIVLLM_CHECK_SECONDS"
LIMIT_S = 10.0


def main(module: str, exercise_id: str, seed: str, results: str) -> None:
    exercise = find(exercise_id)
    rules = import_module(f"minivllm.course.contracts.{exercise.contract}").rules
    for path in (f"minivllm.{exercise.reference}", *exercise.off_limits):
        put_off_limits(path)
    torch.set_num_threads(1)
    limit = float(os.environ.get(LIMIT_VARIABLE, LIMIT_S))
    with open(results, "w", encoding="utf-8") as out, open(f"{results}.stuck", "w") as stuck:
        faulthandler.dump_traceback_later(limit, file=stuck, exit=True)

        def say(**line: Any) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        say(num_rules=len(rules))
        try:
            part = getattr(load_module(Path(module), "part_under_test"), exercise.name)
        except OffLimits as error:
            say(**asdict(Outcome("it can be imported", "off limits", got=str(error))))
            return
        except Exception as error:
            raised = what_was_raised(error, module)
            say(
                **asdict(
                    Outcome("it can be imported", "broken", "import", raised, "no exception", NO_NOTEBOOK)
                )
            )
            return
        _run(exercise, rules, part, int(seed), module, say)


def _run(exercise: Exercise, rules: Any, part: Any, seed: int, module: str, say: Any) -> None:
    names = [rule.name for rule in rules.rules]
    say(next=names[0])
    for outcome, following in zip(rules.run(part, seed, module), [*names[1:], ""], strict=True):
        outcome.called = outcome.called or exercise.name
        say(**asdict(outcome))
        say(next=following)


if __name__ == "__main__":
    main(*sys.argv[1:])
