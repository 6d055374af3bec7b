"""The one table of gpu-check: a line for each thing measured, or the reason why there is no figure."""

from __future__ import annotations

from typing import Any


def table(report: dict[str, Any], names: list[str]) -> str:
    """report: of `gpu_check.check`; names: of the parts that there should be."""
    here = report["machine"]
    lines = [
        f"gpu-check on {here['gpu'] or 'a machine without a GPU'}, torch {here['torch']}, "
        f"triton {here['triton']}",
        f"{'part':<30} {'what':<44} result",
    ]
    for name in names:
        part = report["parts"].get(name)
        for what, figures in _rows(part):
            lines.append(f"{name:<30} {what:<44} {figures}")
    return "\n".join(lines)


def _rows(part: dict[str, Any] | None) -> list[tuple[str, str]]:
    if part is None:
        return [("", "not measured (no time left; call again)")]
    if part["status"] in ("failed", "timed out"):
        reason = (part["output"].strip().splitlines() or [""])[-1]
        return [("", f"{part['status']}: {reason[:120]}")]
    if isinstance(part["result"], str):
        note = "not measured: " if part["status"] == "not measured" else ""
        return [("", note + part["result"])]
    if part["status"] == "not measured":
        return [("", "not measured")]
    if "roofs" in part["result"]:
        return [(_kernel(row), _kernel_figures(row)) for row in part["result"]["measured"]]
    return [(_step(part["result"], row), _step_figures(row)) for row in part["result"]["measured"]]


def _kernel(row: dict[str, Any]) -> str:
    sizes = [row[key] for key in ("num_tokens", "num_seqs", "query_len", "context_len") if key in row]
    return f"{row['kernel']} {' × '.join(f'{size:,}' for size in sizes)} {row['dtype']}"


def _kernel_figures(row: dict[str, Any]) -> str:
    if "skipped" in row:
        return f"not measured: {row['skipped']}"
    speed = (
        f"{row['gb_per_s']:,.0f} GB/s" if row["bound"] == "memory" else f"{row['tflop_per_s']:.1f} TFLOP/s"
    )
    peers = "".join(
        f"; {name} {peer['percent_of_roof']:.0f} %" for name, peer in row["peers"].items() if "ms" in peer
    )
    return f"{row['ms']:.3f} ms, {speed}, {row['percent_of_roof']:.0f} % of the roof{peers}"


def _step(result: dict[str, Any], row: dict[str, Any]) -> str:
    return f"{result['model']}, batch {row['batch']}, {'CUDA graphs' if row['cuda_graphs'] else 'eager'}"


def _step_figures(row: dict[str, Any]) -> str:
    return (
        f"{row['ms_per_step']:.2f} ms a step, {row['times_roof']:.2f} × the weight-read roof, "
        f"{row['output_tokens_per_s']:,.0f} tokens/s"
    )
