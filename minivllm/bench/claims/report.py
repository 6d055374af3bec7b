"""The claims' figures as a table to read; further measurements (rows) are left to `--json`."""

from __future__ import annotations

from typing import Any


def table(claims: list[dict[str, Any]]) -> str:
    """One line a figure, under a heading for each claim."""
    width = max(len(figure["name"]) for claim in claims for figure in claim["figures"])
    lines = []
    for claim in claims:
        lines += [f"{claim['id']}  {claim['what']}: {claim['verdict']}", f"    varied: {claim['varied']}"]
        for figure in claim["figures"]:
            low, high = _number(figure["expected_low"]), _number(figure["expected_high"])
            expected = low if low == high else f"{low} … {high}"
            lines.append(
                f"    {figure['name']:<{width}}  {_number(figure['measured']):>13}  {expected:>17}  "
                f"{figure['verdict']}"
            )
        lines += [f"    {claim['why']}", ""]
    passed = sum(claim["verdict"] == "pass" for claim in claims)
    lines.append(f"{passed} of {len(claims)} claims pass (columns: measured, expected, verdict)")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) or float(value).is_integer() else f"{value:.3g}"
