"""Compile every kernel for GPUs that are not here, and read what the result needs.

Triton compiles for a named architecture without a device; `cuobjdump`, which comes with triton, then tells
registers and spills of the machine code. So a laptop can prove that the kernels compile for the GPUs that
people use, and that no configuration spills registers to memory. `python -m minivllm.kernels.ahead_of_time`
prints the table, and fails if anything spills. In a process that interprets kernels nothing can be compiled;
`report` then runs itself in a child.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import interpreting

if TYPE_CHECKING:
    from .configurations import Case

ARCHITECTURES = (75, 80, 90)  # T4; A100; H100 and H200
DTYPES = ("fp32", "fp16", "bf16")
# Shared memory that one program may have, bytes. (CUDA C++ Programming Guide, compute capabilities.)
SHARED_BYTES = {75: 64 << 10, 80: 163 << 10, 90: 227 << 10}


def report(
    architectures: tuple[int, ...] = ARCHITECTURES, dtypes: tuple[str, ...] = DTYPES, whole: bool = True
) -> list[dict]:
    """A row for every configuration in use, see `compile_case`; bf16 is left out where the architecture has
    none. With `whole` false, of a selection that compiles in under a minute."""
    if interpreting():
        command = [sys.executable, "-m", "minivllm.kernels.ahead_of_time", "--json"]
        command += ["--arch", *map(str, architectures), "--dtype", *dtypes]
        command += [] if whole else ["--selection"]
        environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        run = subprocess.run(command, capture_output=True, text=True, env=environment)
        if not run.stdout:
            raise ValueError(f"the kernels cannot be compiled here: {run.stderr.strip().splitlines()[-1]}")
        return json.loads(run.stdout)
    return list(_rows(architectures, dtypes, whole))


def _rows(architectures: tuple[int, ...], dtypes: tuple[str, ...], whole: bool) -> Iterator[dict]:
    from .configurations import cases, selection

    for arch in architectures:
        for case in (cases if whole else selection)(arch, dtypes):
            yield compile_case(case, arch)


def compile_case(case: Case, arch: int) -> dict[str, Any]:
    """One row of the report: {"kernel", "arch", "dtype", "detail", "registers" a thread, "shared_bytes" a
    program, "spills" (bytes of stack and local memory a thread)}."""
    function = getattr(import_module(f"minivllm.kernels.{case.module}"), case.function)
    aligned = {name for name, type_ in case.types.items() if type_.startswith("*") or name in ALIGNED}
    compiled = compile_function(function, case.types, case.constants, arch, aligned=aligned, **case.options)
    usage = {**resource_usage(compiled.asm["cubin"]), "shared_bytes": compiled.metadata.shared}
    return {"kernel": case.kernel, "arch": f"sm_{arch}", "dtype": case.dtype, "detail": case.detail, **usage}


# Numbers that are multiples of 16 wherever head_dim is: distances between rows, in elements.
ALIGNED = {"q_stride", "out_stride", "k_stride", "v_stride", "x_stride", "cache_stride"}


def compile_function(
    function: Any,
    types: dict[str, str],
    constants: dict[str, Any],
    arch: int,
    num_warps: int = 4,
    num_stages: int = 3,
    maxnreg: int | None = None,
    aligned: set[str] = frozenset(),
) -> Any:
    """Compile a `triton.jit` function for sm_`arch`; its `.asm` has "ptx" and "cubin". `aligned`: arguments
    that are multiples of 16 at every launch, which triton looks for itself when it launches."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {name: types.get(name, "constexpr") for name in function.arg_names}
    attributes = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(signature) if name in aligned}
    source = ASTSource(function, signature, constants, attributes)
    options = {"num_warps": num_warps, "num_stages": num_stages, "maxnreg": maxnreg}
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def resource_usage(cubin: bytes) -> dict[str, int]:
    """Registers and spilled bytes a thread; `shared_bytes` is what the program asks for by itself, without
    what triton asks for when it launches (`metadata.shared`)."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run([str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True)
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", run.stdout)}
    return {
        "registers": found["REG"],
        "shared_bytes": found["SHARED"],
        "spills": found["STACK"] + found["LOCAL"],
    }


def faults(rows: list[dict]) -> list[dict]:
    """The rows that spill, or ask for more shared memory than the architecture has."""
    limit = {f"sm_{arch}": size for arch, size in SHARED_BYTES.items()}
    return [row for row in rows if row["spills"] or row["shared_bytes"] > limit.get(row["arch"], 0)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compile every kernel for GPUs that are not here.")
    parser.add_argument("--arch", type=int, nargs="+", default=list(ARCHITECTURES), help="75 for sm_75")
    parser.add_argument("--dtype", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--selection", action="store_true", help="what the tests compile")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    rows = []
    for row in _rows(tuple(options.arch), tuple(options.dtype), not options.selection):
        rows.append(row)
        if not options.json:
            numbers = f"registers {row['registers']:>3}  shared {row['shared_bytes']:>7,}"
            print(f"{row['kernel']:<15} {row['arch']} {row['dtype']} {numbers}  spills {row['spills']}  "
                  f"{row['detail']}", flush=True)  # fmt: skip
    if options.json:
        print(json.dumps(rows))
    else:
        print(f"{len(rows)} configurations, {len(faults(rows))} with spills or too much shared memory")
    return 1 if faults(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
