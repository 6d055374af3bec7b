"""What a compiler makes of the kernels of a saved module, for GPUs that need not be here.

`python -m minivllm.course.compile_report FILE FUNCTION ARCHITECTURES` loads the module in a process that
does not interpret kernels, and calls the function once on small tensors. Its kernels are not launched but
written down with their arguments, and compiled as that launch would have compiled them. So the report
knows nothing of a kernel but how the reader's own code calls it. Numbers differ between versions of triton.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

ARCHITECTURES = (75, 80, 90)
TIME_S = 120


@dataclass(frozen=True)
class Compiled:
    """One kernel for one architecture. Registers a thread, bytes of shared memory a program, bytes a
    thread that spilled from registers to memory; `ptx` is the program in NVIDIA's portable assembly."""

    kernel: str
    arch: str
    registers: int
    shared_bytes: int
    spills: int
    ptx: str

    def count(self, instruction: str) -> int:
        """Lines of the PTX that hold the instruction, such as "ld.global"."""
        return sum(instruction in line for line in self.ptx.splitlines())


def compile_report(part: Any, architectures: tuple[int, ...] = ARCHITECTURES) -> list[Compiled]:
    """One row a kernel and architecture, of the kernels that `part`, one of lab 03's functions, launches.
    `ValueError` with the compiler's words if one does not compile."""
    path = sys.modules[part.__module__].__file__
    names = ",".join(map(str, architectures))
    command = [sys.executable, "-m", __name__, str(path), part.__name__, names]
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TRITON_INTERPRET": "0"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIME_S)
    if run.returncode:
        said = [line for line in run.stderr.splitlines() if line.strip()] or ["the compiler said nothing"]
        raise ValueError(f"{part.__name__} does not compile: {said[-1]}")
    return [Compiled(**row) for row in json.loads(run.stdout)]


def table(rows: list[Compiled]) -> str:
    """The report as text."""
    lines = [f"{'kernel':<22} {'arch':<6} {'registers':>9} {'shared bytes':>12} {'spills':>6} {'loads':>6}"]
    for row in rows:
        numbers = f"{row.registers:>9} {row.shared_bytes:>12,} {row.spills:>6} {row.count('ld.global'):>6}"
        lines.append(f"{row.kernel:<22} {row.arch:<6} {numbers}")
    return "\n".join(lines)


class _Recorder:
    """Stands for a kernel in its module, and writes launches down."""

    def __init__(self, name: str, kernel: Any) -> None:
        self.name, self.kernel, self.arguments = name, kernel, None

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> None:
            self.arguments = dict(zip(self.kernel.arg_names, args, strict=False)) | kwargs

        return launch


def _calls() -> dict[str, tuple]:
    """{function: arguments of a small call}, half precision as on a GPU, shaped like SmolLM2."""
    import torch

    half, long = torch.float16, torch.int64
    k, cache = torch.zeros(2, 3, 64, dtype=half), torch.zeros(4, 16, 3, 64, dtype=half)
    q, tables = torch.zeros(2, 9, 64, dtype=half), torch.zeros(2, 2, dtype=long)
    ones, slots = torch.ones(2, dtype=long), torch.zeros(2, dtype=long)
    x, weight = torch.zeros(2, 576, dtype=half), torch.zeros(576, dtype=half)
    decode = (q, cache, cache, tables, ones, 32)
    return {
        "store_kv": (k, k, cache, cache, slots),
        "rms_norm": (x, weight, 1e-5, x),
        "paged_decode": decode,
        "paged_decode_split": (*decode, 16),
        "paged_prefill": (q, cache, cache, tables, torch.arange(3), ones, ones, 1, 32),
    }


def _compile(recorder: _Recorder, arch: int) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from ..kernels.ahead_of_time import resource_usage

    kernel, arguments = recorder.kernel, recorder.arguments
    constants = {p.name: arguments[p.name] for p in kernel.params if p.is_constexpr}
    constants |= {name: None for name in kernel.arg_names if arguments[name] is None}
    types = {name: _type_of(arguments[name]) for name in kernel.arg_names if name not in constants}
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    # A launch looks whether addresses and numbers are multiples of 16; those that are allow wide loads.
    even = [i for i, name in enumerate(kernel.arg_names) if name in types and _is_even(arguments[name])]
    attributes = {(i,): [["tt.divisibility", 16]] for i in even}
    source = ASTSource(kernel, signature, constants, attributes)
    options = {name: arguments[name] for name in ("num_warps", "num_stages") if name in arguments}
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    usage = {**resource_usage(compiled.asm["cubin"]), "shared_bytes": compiled.metadata.shared}
    return {"kernel": kernel.fn.__name__, "arch": f"sm_{arch}", **usage, "ptx": compiled.asm["ptx"]}


def _is_even(value: Any) -> bool:
    return hasattr(value, "data_ptr") or (isinstance(value, int) and value % 16 == 0)


def _type_of(value: Any) -> str:
    """Triton's name for the type of an argument."""
    import torch

    if isinstance(value, torch.Tensor):
        short = {"float": "fp", "bfloat": "bf", "int": "i"}
        name = str(value.dtype).removeprefix("torch.")
        letters = name.rstrip("0123456789")
        return f"*{short[letters]}{name.removeprefix(letters)}"
    return "fp32" if isinstance(value, float) else "i32"


def main(file: str, function: str, architectures: str) -> None:
    import triton

    from .workspace import load_module

    root = Path(__file__).parents[2]
    if Path(file).is_relative_to(root / "minivllm"):  # the reference
        module = import_module(".".join(Path(file).relative_to(root).with_suffix("").parts))
    else:
        module = load_module(Path(file), "part_to_compile")
    recorders = []
    for name, value in list(vars(module).items()):
        if isinstance(value, triton.JITFunction):
            recorders.append(_Recorder(name, value))
            setattr(module, name, recorders[-1])
    getattr(module, function)(*_calls()[function])
    for recorder in recorders:  # a kernel may call others by their names
        setattr(module, recorder.name, recorder.kernel)
    launched = [recorder for recorder in recorders if recorder.arguments is not None]
    rows = [_compile(recorder, int(arch)) for recorder in launched for arch in architectures.split(",")]
    print(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
