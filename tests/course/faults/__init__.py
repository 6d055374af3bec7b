"""Wrong submissions, a file a lab: small edits of its solution, and what the grader must say of each.

`FAULTS` maps a fault's name to (exercise id, old text, new text, words of the message). `old` stands once
in the cell that solves the exercise; every other exercise must keep its full points. Lab 01 has a longer
set of its own, with broken and hostile files, in wrong_submissions.py.
"""

from importlib import import_module
from pathlib import Path

BY_LAB = {
    int(path.stem[3:]): import_module(f"{__name__}.{path.stem}").FAULTS
    for path in sorted(Path(__file__).parent.glob("lab[0-9][0-9].py"))
}
