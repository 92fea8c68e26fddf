"""What the process holds is on large pages, where the system has them, and what is mostly empty is not filled up."""

import inspect
import io
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from offpolicy_monitor.server import large_pages
from offpolicy_monitor.server.large_pages import CHANGED, IS_THERE, LARGE, LargePages, anonymous, nearly_full

from tests.fixtures.forks import PR_SET_THP_DISABLE
from tests.fixtures.fused import BY_THE_PASS, cached_pass
from tests.fixtures.prometheus import wait_for
from tests.fixtures.service import PYTHON, service

MAPS = """\
555555554000-555555a00000 r-xp 00002000 fe:00 1234                       /usr/bin/python3.11
555555a00000-555555e00000 rw-p 00000000 fe:00 1234                       /usr/bin/python3.11
555556001000-555557000000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
7f0000400000-7f0000401000 ---p 00000000 00:00 0
7f0000401000-7f0000600000 rw-p 00000000 00:00 0
7f0000800000-7f0000c00000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
7f0001000000-7f0001400000 r-xp 00000000 00:00 0
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]
"""


def on_large_pages(process: int) -> int:
    """Bytes of it, as the system counts them."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHugePages"))


LOADED = f"""
import os
from pathlib import Path
from offpolicy_monitor.server.large_pages import put_on_large_pages

{inspect.getsource(on_large_pages)}

loaded = [(index, str(index)) for index in range(400_000)]
before, moved = on_large_pages(os.getpid()), put_on_large_pages()
assert loaded == [(index, str(index)) for index in range(400_000)]
print(moved, on_large_pages(os.getpid()) - before)
"""

SPARSE = """
import mmap
from offpolicy_monitor.server.large_pages import put_on_large_pages
from offpolicy_monitor.server.memory import resident

size = 64 << 20
sparse = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for begin in range(0, size, 4 * mmap.PAGESIZE):
    sparse[begin] = 1
put_on_large_pages()
before = resident()
put_on_large_pages()
for begin in range(0, size, 4 * mmap.PAGESIZE):
    assert sparse[begin] == 1
print(resident() - before)
"""

#: The command line, in a fork that has large pages as a program has.
SERVICE = f"""
import ctypes
from offpolicy_monitor.cli import main

ctypes.CDLL(None).prctl({PR_SET_THP_DISABLE}, 0, 0, 0, 0)
raise SystemExit(main())
"""


@pytest.fixture(scope="module")
def moved_here() -> tuple[int, int]:
    """Bytes that a process with some 60 MiB of objects says it has moved, and by how much the system counts more."""
    printed = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout
    moved, grown = map(int, printed.split())
    return moved, grown


def test_what_is_moved_is_the_memory_of_no_file_in_whole_large_pages() -> None:
    found = [(hex(first), (last - first) / LARGE) for first, last in anonymous(MAPS)]
    assert found == [("0x555556200000", 7.0), ("0x7f0000000000", 2.0)]


def test_a_large_page_is_made_of_what_is_nearly_full() -> None:
    number = LARGE // os.sysconf("SC_PAGE_SIZE")
    there = [number, number - number // 32, number - number // 32 - 1, 0, number]
    pages = np.zeros((1 + len(there), number), np.uint64)
    for row, count in zip(pages[1:], there, strict=True):
        row[:count] = 1 << IS_THERE
    found = list(nearly_full(LARGE, (1 + len(there)) * LARGE, io.BytesIO(pages.tobytes())))
    assert found == [(LARGE, 3 * LARGE), (5 * LARGE, 6 * LARGE)]


def test_what_is_mostly_empty_is_not_filled_up() -> None:
    printed = subprocess.run([sys.executable, "-c", SPARSE], capture_output=True, text=True, check=True).stdout
    assert int(printed) < 4 * LARGE


def test_it_is_looked_at_again_where_the_process_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, looks = iter([50, 50, 50, 50 + CHANGED, 50 + CHANGED, 50, 50]), list[int]()
    monkeypatch.setattr(large_pages, "resident", lambda: CHANGED + next(sizes))
    monkeypatch.setattr(large_pages, "put_on_large_pages", lambda: looks.append(1) or len(looks))
    large = LargePages()
    assert [large.keep_up() for _ in range(4)] == [1, 0, 2, 3]


def test_objects_are_the_same_on_large_pages_which_the_system_counts(moved_here: tuple[int, int]) -> None:
    moved, grown = moved_here
    assert grown >= moved - 4 * LARGE
    assert moved == 0 or grown > 20 << 20


@pytest.mark.parametrize("said", ["always madvise [never]\n", None])
def test_nothing_is_moved_where_nobody_wants_or_has_large_pages(
    said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled = tmp_path / "enabled"
    if said is not None:
        enabled.write_text(said)
    monkeypatch.setattr(large_pages, "ENABLED", enabled)
    assert large_pages.put_on_large_pages() == 0


def test_a_service_is_on_large_pages_once_it_has_all_that_it_measures_by(
    tmp_path: Path, moved_here: tuple[int, int]
) -> None:
    moved, _ = moved_here
    cached_pass()
    with service(tmp_path, (*PYTHON, SERVICE), **BY_THE_PASS) as running:
        if moved:
            wait_for(lambda: on_large_pages(running.process.pid) > 50 << 20)
        assert urllib.request.urlopen(f"{running.url}/readyz", timeout=10).status == 200
