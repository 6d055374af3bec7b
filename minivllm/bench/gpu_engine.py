"""Decode steps of the engine on this GPU against its weight-read roof: one child process of `gpu_check`.

The model is SmolLM2 if asked for, else a random checkpoint in the shape of Llama-3.2-3B (3.2 billion
weights), or Llama-3.2-1B (1.2 billion) on a GPU with less than 40 GiB. It is written once, to `--scratch`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from ..config import EngineConfig
from ..engine import Engine
from ..executor.device import Gpu, auto_dtype
from .decode import measure
from .random_checkpoint import LLAMA_1B, LLAMA_3B, write
from .timer import CudaTimer, copy_bandwidth

BATCH_SIZES = (1, 8, 32, 64, 128, 256)
ENOUGH_FOR_3B = 40 << 30


def run(model: str | None, scratch: Path, eager: bool) -> dict[str, Any]:
    """{"measured": rows of `decode.measure` or None, "model", "copy_gb_per_s"}."""
    if not torch.cuda.is_available():
        return {"measured": None}
    device = torch.device("cuda")
    dtype = auto_dtype(Gpu(device).capability)
    bandwidth = copy_bandwidth(device, CudaTimer(device))
    torch.cuda.empty_cache()
    path = model or str(random_model(scratch, dtype, torch.cuda.get_device_properties(device).total_memory))
    config = EngineConfig(
        model=path,
        max_model_len=1024,
        max_num_seqs=max(BATCH_SIZES),
        enforce_eager=eager,
        skip_tokenizer_init=True,
        enable_prefix_caching=False,
    )
    engine = Engine(config)
    rows = measure(engine, BATCH_SIZES, bandwidth)
    return {"measured": rows, "model": Path(path).name, "copy_gb_per_s": bandwidth / 1e9}


def random_model(scratch: Path, dtype: torch.dtype, gpu_memory: int) -> Path:
    """Folder of the random checkpoint for a GPU of that many bytes, written if it is not there."""
    name, shape = ("llama-3b", LLAMA_3B) if gpu_memory >= ENOUGH_FOR_3B else ("llama-1b", LLAMA_1B)
    folder = scratch / f"random-{name}-{str(dtype).removeprefix('torch.')}"
    done = folder / "written"
    if not done.is_file():
        write(folder, shape, dtype, "cuda")
        done.touch()
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--eager", action="store_true")
    options = parser.parse_args()
    print(json.dumps(run(options.model, options.scratch, options.eager)))
