"""Letters and colours of requests: the same ones in every picture of a trace.

There are seven colours that everybody can tell apart and any number of requests, so a request is known
by its letter first; the colour helps the eye.
"""

from __future__ import annotations

from ..trace import Trace
from .style import PALETTE


class Identity:
    """Letters A, B, … Z, AA, … in order of arrival; completions of one prompt share its letter and are
    told apart by a number: C, C1, C2."""

    def __init__(self, trace: Trace) -> None:
        self._numbers: dict[str, int] = {}
        for record in trace.requests.values():
            if "#" not in record.request_id:
                self._numbers[record.request_id] = len(self._numbers)

    def in_order(self, request_ids) -> list[str]:
        """Sorted by letter, the completions of one prompt side by side."""
        return sorted(sorted(request_ids), key=self._place)

    def _place(self, request_id: str) -> tuple[int, int]:
        parent, _, index = request_id.partition("#")
        return self._number(parent), int(index or 0)

    def letter(self, request_id: str) -> str:
        parent, _, index = request_id.partition("#")
        return letters(self._number(parent)) + index

    def colour(self, request_id: str) -> str:
        return PALETTE[self._number(request_id.partition("#")[0]) % len(PALETTE)]

    def _number(self, request_id: str) -> int:
        return self._numbers.setdefault(request_id, len(self._numbers))


def letters(number: int) -> str:
    """0 → A, 25 → Z, 26 → AA, as columns of a spreadsheet."""
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("A") + digit) + text
    return text
