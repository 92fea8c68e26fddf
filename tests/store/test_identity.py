"""Identity of files: what stat tells, whichever way it is asked for."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.store import identity as module
from offpolicy_monitor.store.identity import identity

#: Of Linux's headers: the system's clock as files are given it, which stands still between two ticks.
CLOCK_REALTIME_COARSE = 5


def forbidden(*asked: Any) -> int:
    """As where a system call is not allowed."""
    return -1


@pytest.fixture(params=[module._STATX, None, forbidden], ids=["statx", "no statx", "forbidden"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int] | None:
    monkeypatch.setattr(module, "_STATX", request.param)
    found: Callable[..., int] | None = request.param
    return found


def test_it_is_the_device_and_the_inode_that_stat_tells(way: object, tmp_path: Path) -> None:
    file = tmp_path / "a file ä"
    file.write_bytes(b"1")
    for path in (file, tmp_path, Path("/dev/null"), Path("/proc/self/stat")):
        status = os.stat(path)
        assert identity(str(path)) == (status.st_dev, status.st_ino)


def test_of_no_file_there_is_none(way: object, tmp_path: Path) -> None:
    assert identity(str(tmp_path / "none")) is None


def test_another_file_at_the_path_is_another(way: object, tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    file.write_bytes(b"1")
    other.write_bytes(b"1")
    before = identity(str(file))
    other.replace(file)
    assert identity(str(file)) != before


def test_what_cannot_be_told_is_an_error(way: object, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"1")
    with pytest.raises(NotADirectoryError):
        identity(str(file / "below"))


@pytest.mark.skipif(module._STATX is None, reason="statx is of Linux")
def test_a_look_does_not_give_the_next_write_a_time_of_its_own(tmp_path: Path) -> None:
    tick, after, number = 0, 1, 0
    while tick != after:  # between two ticks of the system's clock
        file, number = tmp_path / str(number), number + 1
        tick = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
        with file.open("wb", buffering=0) as opened:
            opened.write(b"1")
            identity(str(file))
            before = time.time_ns()
            opened.write(b"1")
        after = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
    assert os.stat(file).st_mtime_ns <= before
