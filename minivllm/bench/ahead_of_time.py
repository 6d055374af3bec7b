"""The ahead-of-time report as a benchmark shows it: with progress, filtered, as a table.

Compiling needs no GPU, and the result is the same on every machine with the same triton. Without `whole` a
selection is compiled, every kernel among it, which takes about a minute.
"""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

from ..kernels import ahead_of_time, why_not


def rows(
    architectures: list[int] | None = None,
    dtypes: tuple[str, ...] = ahead_of_time.DTYPES,
    kernels: list[str] | None = None,
    whole: bool = False,
) -> list[dict[str, Any]]:
    """Rows of `kernels.ahead_of_time.report`, a progress bar on stderr meanwhile. `kernels` keeps their
    helpers too. `ValueError` where triton is not installed, or for an unknown architecture."""
    if (reason := why_not("cuda")) is not None:
        raise ValueError(reason)
    known = ahead_of_time.ARCHITECTURES
    unknown = [arch for arch in architectures or () if arch not in known]
    if unknown:
        raise ValueError(f"arch is {unknown[0]}; the report knows {', '.join(map(str, known))}")
    pairs = [(arch, dtype) for arch in architectures or known for dtype in dtypes]
    found = []
    for arch, dtype in tqdm(pairs, desc="compiling kernels", unit="GPU × dtype"):
        found += ahead_of_time.report((arch,), (dtype,), whole)
    found.sort(key=lambda row: (row["kernel"], row["arch"], row["dtype"], row["detail"]))
    return [row for row in found if kernels is None or PARTS.get(row["kernel"], row["kernel"]) in kernels]


# Kernels that are a second half of another.
PARTS = {"combine_splits": "paged_decode", "store_quantized": "store_kv"}


def table(found: list[dict[str, Any]]) -> str:
    lines = [
        f"{'kernel':<15} {'GPU':<6} {'dtype':<5} {'registers':>9} {'shared':>8} {'spills':>6}  configuration"
    ]
    for row in found:
        lines.append(
            f"{row['kernel']:<15} {row['arch']:<6} {row['dtype']:<5} {row['registers']:>9} "
            f"{row['shared_bytes']:>8,} {row['spills']:>6}  {row['detail']}"
        )
    num_spilling = sum(row["spills"] > 0 for row in found)
    return "\n".join([*lines, f"{len(found)} configurations, {num_spilling} of them spill"])
