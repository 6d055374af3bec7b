"""`python -m minivllm.course.grade.one ID SEED`: mark one module, read from standard input.

What `lab.grade` runs, so that the marking is done in a process that the notebook has no hand in. Prints
the mark as one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..catalogue import Exercise


def mark_in_a_process(exercise: Exercise, module_text: str, seed: int = 1) -> dict[str, Any]:
    """{"id", "points", "max_points", "message"} of the module, from a process of its own."""
    command = [sys.executable, "-m", __name__, exercise.id, str(seed)]
    package = str(Path(__file__).parents[3])
    done = subprocess.run(
        command, input=module_text, capture_output=True, text=True, encoding="utf-8", cwd=package
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["it ended"])[-1]
        raise ValueError(f"{exercise.id} could not be marked: {why}")
    return json.loads(done.stdout)


def main(exercise_id: str, seed: str) -> None:
    from ..catalogue import find
    from .mark import Settings, mark_part
    from .process import Nursery

    nursery = Nursery()
    try:
        mark = mark_part(find(exercise_id), sys.stdin.read(), nursery, Settings(int(seed)))
    finally:
        nursery.close()
    print(json.dumps(mark.as_dict()))


if __name__ == "__main__":
    main(*sys.argv[1:])
