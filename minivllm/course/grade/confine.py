"""What a part process may not do, and with what the machine enforces it.

Everywhere: limits on memory, files, processes and CPU time. On Linux also Landlock (Salaün, 2021), which
takes from a process, for good and without privileges, the right to write outside its scratch folder, to
read what it has no business with (other submissions, other processes), to connect, and to signal others.
Started as root, the process becomes a user of its own, who owns nothing but the scratch folder. `confine`
returns what could not be enforced, in words, so that a grader can say so.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

FILE_SIZE = 64 << 20
FIRST_USER = 1_000_000_000  # far from the users of any machine; each part process is one of its own

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # the same on every architecture
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_KEEP_CAPS, _NO_NEW_PRIVILEGES = 8, 38
_AMBIENT, _RAISE = 47, 2
_READ_ALL = 1 << 2  # CAP_DAC_READ_SEARCH


@dataclass(frozen=True)
class Room:
    """What a confined process may take and see, besides its scratch folder. `memory` is in bytes, beyond
    what Python and torch take themselves; the kernel counts threads among processes."""

    memory: int = 2 << 30
    open_files: int = 64
    processes: int = 32
    readable: tuple[Path, ...] = ()


def confine(scratch: Path, cpu_s: float, room: Room | None = None) -> list[str]:
    """Confine this process to the folder. Cannot be undone."""
    missing, room = [], room or Room()
    user = FIRST_USER + os.getpid() if os.geteuid() == 0 else None
    _limit(cpu_s, room, own_user=user is not None)
    if sys.platform != "linux":
        return ["writes outside the scratch folder and reading other files (no Landlock here)"]
    version = _landlock_version()
    if user is not None:
        missing += _become(user, scratch, read_all=version > 0)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if version > 0:
        _landlock(libc, version, scratch, room.readable)
    elif user is None or missing:
        missing.append("writes outside the scratch folder (this kernel has no Landlock)")
    if version < 6 and user is None:
        missing.append("signals to other processes of this user (this kernel's Landlock is too old)")
    if version < 4:
        missing.append("network connections")
    return missing


def _limit(cpu_s: float, room: Room, own_user: bool) -> None:
    size = _address_space()
    limits = {
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": FILE_SIZE,
        "RLIMIT_NOFILE": room.open_files,
        "RLIMIT_CPU": max(1, int(cpu_s + 1)),
        "RLIMIT_AS": size + room.memory if size else None,
        # The kernel counts all processes of a user, so for a user with others there must be room for those.
        "RLIMIT_NPROC": room.processes + (0 if own_user else _threads_of_this_user()),
    }
    for name, limit in limits.items():
        if limit is not None and hasattr(resource, name):
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, name), (limit, limit))


def _address_space() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _threads_of_this_user() -> int:
    count = 0
    for entry in Path("/proc").glob("[0-9]*") if Path("/proc/self").exists() else ():
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == os.getuid():
                count += len(list((entry / "task").iterdir()))
    return count or 4096


def _become(user: int, scratch: Path, read_all: bool) -> list[str]:
    """From root to a user of no rights, who may still read Python's own files wherever they lie, if
    Landlock is there to keep it to these."""
    libc = ctypes.CDLL(None, use_errno=True)
    for path in (scratch, *scratch.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)
    libc.prctl(_KEEP_CAPS, 1 if read_all else 0, 0, 0, 0)
    try:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError:
        return ["its own user (this container does not map other users)"]
    if read_all:
        header = struct.pack("=Ii", 0x20080522, 0)
        libc.capset(header, struct.pack("=6I", _READ_ALL, _READ_ALL, _READ_ALL, 0, 0, 0))
        libc.prctl(_AMBIENT, _RAISE, _READ_ALL.bit_length() - 1, 0, 0)  # for a Python that it starts, too
    return []


def _landlock_version() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


def _landlock(libc: ctypes.CDLL, version: int, scratch: Path, readable: tuple[Path, ...]) -> None:
    files = (1 << (13 + (version >= 2) + (version >= 3) + (version >= 5))) - 1
    if version >= 5:
        files = (1 << 16) - 1
    network, scope = (3 if version >= 4 else 0), (3 if version >= 6 else 0)
    sizes = 24 if version >= 6 else 16 if version >= 4 else 8
    attributes = struct.pack("=QQQ", files, network, scope)[:sizes]
    ruleset = libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(sizes), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    _allow(libc, ruleset, scratch, files)
    for path in (*_readable(), *readable):
        _allow(libc, ruleset, path, files & (_EXECUTE | _READ_FILE | (_READ_DIR if path.is_dir() else 0)))
    _allow(libc, ruleset, Path("/dev/null"), files & (_READ_FILE | _WRITE_FILE))
    if libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0):
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        libc.syscall(_LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", rights, folder), 0)
        os.close(folder)


def _readable() -> list[Path]:
    """What Python, torch and this package need: their own folders, and the system's libraries."""
    package = Path(__file__).parents[2]
    paths = {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    paths |= {path for path in sys.path if "site-packages" in path or "dist-packages" in path}
    paths |= {"/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime"}
    paths |= {"/dev/urandom", "/dev/zero", "/sys/devices/system/cpu"}
    base = Path(sys.base_prefix)
    return [package, base / "lib", base / "bin", Path(sys.prefix) / "bin", *map(Path, sorted(paths))]
