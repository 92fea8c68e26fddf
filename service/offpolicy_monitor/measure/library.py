"""Where the compiled pass lies on disk, and when it is trusted.

It is code: loaded only where nobody but its user can have written it, and only for the libraries, the processor, the
settings of numba and the sources that it was made of. Its name says all of that, and the digest of its content; one
serves every installation of them.
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

#: The package.
ROOT: Final = Path(__file__).parents[1]
FUSED: Final = "fused"
#: The folders of ROOT that the pass is written in: numba does not see that a constant or a function changed that one
#: imports from another module.
SOURCES: Final = ("fused", "summary", "methods")
#: Passes of other sources, libraries or processors that stay when one is published: the newest ones. Each takes 3 MiB.
OTHERS_KEPT: Final = 3
#: Enough of /proc/cpuinfo for the first processor, which has the flags that a native compiler goes by.
CPUINFO_BYTES: Final = 1 << 13
GROUP_OR_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def folder() -> Path:
    """Where passes are kept, in the user's cache directory by the XDG rules; made where it is not.

    Raises OSError where that cannot be, RuntimeError without a home, PermissionError where others can write to it.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "offpolicy-monitor"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_owned(cache)
    return cache


def find_pass(cache: Path) -> Path | None:
    """The folder of the fused pass, None where it is not whole. PermissionError for what others may write."""
    for folder in sorted(cache.glob(f"{_pass_name()}-*")):
        for path in (folder, *folder.rglob("*")):
            check_owned(path)
        if folder.name.rpartition("-")[2] == _digest_of_all(folder):
            return folder
    return None


def publish_pass(built: Path, cache: Path) -> None:
    """Put a built pass where `find_pass` looks, all at once. Of others the `OTHERS_KEPT` newest stay."""
    for path in built.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    folder = cache / f"{_pass_name()}-{_digest_of_all(built)}"
    own = set(cache.glob(f"{_pass_name()}-*"))
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
            raise PermissionError(f"{part} belongs to another user: no pass is loaded from there")
        if status.st_mode & writers and not status.st_mode & stat.S_ISVTX:
            raise PermissionError(f"others can write to {part}: no pass is loaded from there")


def _pass_name() -> str:
    libraries = (version(name) for name in ("numba", "llvmlite", "numpy"))
    made_of = (*libraries, platform.python_version(), *_flags(), *_settings())
    sources = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    return f"{FUSED}-{_known(made_of, [*sources, ROOT / 'vocabulary.py'])}"


def _known(made_of: Iterable[str], sources: Iterable[Path]) -> str:
    known = hashlib.sha256()
    for part in made_of:
        known.update(part.encode() + b"\0")
    for source in sources:
        known.update(source.read_bytes() + b"\0")
    return known.hexdigest()[:32]


def _flags() -> list[str]:
    """The flags of the processor, where the system tells them: code is compiled for just this one."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            lines = file.read(CPUINFO_BYTES).decode(errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return [platform.processor()]
    return [line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))]


def _settings() -> list[str]:
    """What the environment tells numba: some of it changes what code is compiled to, and which code numba loads."""
    return [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NUMBA_")]


def _digest_of_all(folder: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            whole.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()[:32]
