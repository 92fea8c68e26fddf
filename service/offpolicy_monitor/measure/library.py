"""Where what was compiled lies on disk, and which of it is trusted: torch's kernels, and the fused pass.

Both are code: loaded only where nobody but its user can have written it, and only for the libraries, the processor and
the sources that it was made of. Its name says all of that, and the digest of its content.
"""

import hashlib
import os
import platform
import shutil
import stat
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Final

import torch

from offpolicy_monitor import core

#: The folder of everything that core's one pass is, or may come to be, written in.
SOURCES: Final = Path(core.__file__).parent
#: The fused pass, and everything that it is written in: numba does not see that a constant or a function changed that
#: one imports from another module.
FUSED: Final = "fused"
FUSED_SOURCES: Final = ("fused", "summary", "methods")
#: Passes of other installations that stay when one is published: the newest ones. Each takes 3 MiB.
OTHERS_KEPT: Final = 3
#: Enough of /proc/cpuinfo for the first processor, which has the flags that a native compiler goes by.
CPUINFO_BYTES: Final = 1 << 13
GROUP_OR_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def folder() -> Path:
    """Where kernels are kept, in the user's cache directory by the XDG rules; made where it is not.

    Raises OSError where that cannot be, RuntimeError without a home, PermissionError where others can write to it.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "offpolicy-monitor"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_owned(cache)
    return cache


def find(cache: Path, device: torch.device) -> Path | None:
    """The kernels of this device, None where there are no whole ones. PermissionError for what others may write."""
    for path in sorted(cache.glob(f"{_name(device)}-*.so")):
        check_owned(path)
        if path.stem.rpartition("-")[2] == _digest(path):
            return path
    return None


def publish(built: Path, cache: Path, device: torch.device) -> None:
    """Put built kernels where `find` looks, all at once, in place of what was there."""
    name = _name(device)
    built.chmod(0o600)
    path = cache / f"{name}-{_digest(built)}.so"
    built.replace(path)
    for other in cache.glob(f"{name}-*.so"):
        if other != path:
            other.unlink(missing_ok=True)


def find_pass(cache: Path) -> Path | None:
    """The folder of the fused pass, None where it is not whole. PermissionError for what others may write."""
    for folder in sorted(cache.glob(f"{_pass_name()}-*")):
        for path in (folder, *folder.rglob("*")):
            check_owned(path)
        if folder.name.rpartition("-")[2] == _digest_of_all(folder):
            return folder
    return None


def publish_pass(built: Path, cache: Path) -> None:
    """Put a built pass where `find_pass` looks, all at once, in place of what this installation had there.

    The `OTHERS_KEPT` newest ones of other installations stay.
    """
    for path in built.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    folder = cache / f"{_pass_name()}-{_digest_of_all(built)}"
    own = set(cache.glob(f"{_installation()}-*"))
    others = sorted(set(cache.glob(f"{FUSED}-*")) - own, key=lambda other: other.stat().st_mtime, reverse=True)
    for old in (*own, *others[OTHERS_KEPT:]):
        shutil.rmtree(old, ignore_errors=True)
    built.replace(folder)


def check_owned(path: Path) -> None:
    """PermissionError unless nobody but this user and root can change what the path names."""
    path = path.resolve(strict=True)
    for part in (path, *path.parents):
        status = part.stat()
        owners, writers = ((os.geteuid(),), GROUP_OR_OTHERS) if part == path else ((os.geteuid(), 0), stat.S_IWOTH)
        if status.st_uid not in owners:
            raise PermissionError(f"{part} belongs to another user: kernels are not loaded from there")
        if status.st_mode & writers and not status.st_mode & stat.S_ISVTX:
            raise PermissionError(f"others can write to {part}: kernels are not loaded from there")


def _name(device: torch.device) -> str:
    made_of = torch.__version__, str(torch.version.git_version), platform.machine(), *_processor(device)
    sources = [*sorted(SOURCES.glob("*.py")), SOURCES.parent / "vocabulary.py"]
    return f"columns-{device.type}-{_known(made_of, sources)}"


def _pass_name() -> str:
    root = SOURCES.parent
    made_of = (*(version(name) for name in ("numba", "llvmlite", "numpy")), platform.python_version(), *_flags())
    sources = [path for folder in FUSED_SOURCES for path in sorted((root / folder).rglob("*.py"))]
    return f"{_installation()}-{_known(made_of, [*sources, root / 'vocabulary.py'])}"


def _installation() -> str:
    """What the passes of this installation are called: numba knows functions by their files, and would compile those of
    another one anew."""
    return f"{FUSED}-{_known([str(SOURCES.parent)], ())}"


def _known(made_of: Iterable[str], sources: Iterable[Path]) -> str:
    known = hashlib.sha256()
    for part in made_of:
        known.update(part.encode() + b"\0")
    for source in sources:
        known.update(source.read_bytes() + b"\0")
    return known.hexdigest()[:32]


def _processor(device: torch.device) -> tuple[str, ...]:
    """What code for this device's processor depends on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device), str(torch.cuda.get_device_capability(device))
    return torch.backends.cpu.get_cpu_capability(), *_flags()


def _flags() -> list[str]:
    """The flags of the processor, where the system tells them: code is compiled for just this one."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            lines = file.read(CPUINFO_BYTES).decode(errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return [platform.processor()]
    return [line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _digest_of_all(folder: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            whole.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()[:32]
