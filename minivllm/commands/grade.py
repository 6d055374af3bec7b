"""grade: points for labs that students have solved, each notebook in a process of its own.

Points come from the exercises alone. `--execute` also runs each notebook from top to bottom and says how
far it got. It is off unless asked for, because no point depends on it and a class of 100 then takes the
better part of an hour instead of half a minute: a lab takes 20 to 55 s to run, its marking under a second.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from pathlib import Path
from typing import Any

HELP = "give points to solved labs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK", help="a notebook, or a folder")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write one row an exercise")
    parser.add_argument("--jobs", type=int, default=None, help="notebooks at a time (default: cores)")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other inputs")
    parser.add_argument(
        "--together", action="store_true", help="also mark each part on top of the student's earlier parts"
    )

    parser.add_argument(
        "--execute", action="store_true", help="also run each notebook whole, and say which cell stops it"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    if not hasattr(os, "fork"):
        raise ValueError("grade runs submissions in confined processes, which needs Linux or macOS; use WSL2")
    jobs = args.jobs if args.jobs is not None else _cores()
    if jobs < 1:
        raise ValueError(f"jobs is {jobs}; at least 1 is needed")
    paths = _notebooks(args.notebooks)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: the work is many small processes

    from ..course.grade.mark import Settings
    from ..course.grade.run import mark_all

    papers = mark_all(paths, jobs, Settings(args.seed, args.together, args.execute), progress=not args.json)
    missing = {what for paper in papers for mark in paper.marks.values() for what in mark.missing}
    if missing:
        print(f"not enforced on this machine: {', '.join(sorted(missing))}", file=sys.stderr)
    result = {"notebooks": [paper.as_dict() for paper in papers]}
    if args.csv is not None:
        _write_csv(args.csv, result["notebooks"])
    if not args.json:
        print(_table(result["notebooks"]))
    return result


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _notebooks(paths: list[Path]) -> list[Path]:
    """Files as given; of a folder, all notebooks in it that an editor did not put there itself."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.rglob("*.ipynb"))
            found += [file for file in inside if not any(part.startswith(".") for part in file.parts[:-1])]
        elif path.exists():
            found.append(path)
        else:
            raise ValueError(f"there is no file {path}")
    if not found:
        raise ValueError(f"there is no notebook in {', '.join(map(str, paths))}")
    return found


def _write_csv(path: Path, notebooks: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["notebook", "exercise", "points", "max_points", "message"])
        for notebook in notebooks:
            for exercise in notebook["exercises"]:
                # A cell that begins like a formula would be run by a spreadsheet.
                message = exercise["message"].lstrip("=+-@\t\r")
                row = [exercise["id"], exercise["points"], exercise["max_points"], message]
                writer.writerow([notebook["notebook"], *row])
            writer.writerow([notebook["notebook"], "all", notebook["points"], notebook["max_points"], ""])


def _table(notebooks: list[dict[str, Any]]) -> str:
    from ..course.grade.execute import in_words

    lines = []
    for notebook in notebooks:
        lines.append(f"{notebook['notebook']}: {notebook['points']:g} of {notebook['max_points']:g}")
        for exercise in notebook["exercises"]:
            points = f"{exercise['points']:g} of {exercise['max_points']:g}"
            chain = exercise.get("points_together")
            together = "" if chain is None else f"  (on your own earlier parts: {chain:g})"
            lines.append(f"  {exercise['id']:<5} {points:<10} {exercise['message']}{together}")
        if "execution" in notebook:
            lines.append(f"  run   {'':<10} {in_words(notebook['execution'])}")
    return "\n".join(lines)
