"""Keeps what the process holds on large pages, so that a processor finds the addresses that a post needs sooner.

What a post touches lies scattered over some 300 MiB. A processor remembers where a page is for some thousand pages; of
others it looks through four tables, in a virtual machine through those of the host for each of them too. On pages of
2 MiB a small post takes 6 % less. Only what is nearly full is put there: what a peak has left stays with the system,
and what is taken apart where it is given back is put together again.
"""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from offpolicy_monitor.server.memory import resident

#: Of Linux's mman.h; before 6.1 it is refused.
MADV_COLLAPSE: Final = 25
LARGE: Final = 2 << 20  # bytes
#: The part of a large page that must be there before it is one: the rest of it is new memory.
FULL: Final = 31 / 32
#: Bytes by which the process must have changed before it is looked at again.
CHANGED: Final = 4 << 20
#: Says "[never]" where whoever runs the system wants none.
ENABLED: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MAPS: Final = Path("/proc/self/maps")
#: Of each page of the process eight bytes, whose highest bit tells whether it is there.
PAGES: Final = Path("/proc/self/pagemap")
IS_THERE: Final = 63


class LargePages:
    """To be kept up now and then, on any thread."""

    def __init__(self) -> None:
        self._resident = 0

    def keep_up(self) -> int:
        """`put_on_large_pages`, where the process has changed since."""
        if abs(resident() - self._resident) < CHANGED:
            return 0
        found = put_on_large_pages()
        self._resident = resident()
        return found


def put_on_large_pages() -> int:
    """At least so many bytes of this process are on large pages now; 0 where the system has none, or no room for them.

    Takes half a second and more the first time, in which other threads go on.
    """
    try:
        if "[never]" in ENABLED.read_text():
            return 0
        advise = ctypes.CDLL(None).madvise
        with PAGES.open("rb") as pages:
            spans = [full for span in anonymous(MAPS.read_text()) for full in nearly_full(*span, pages)]
    except (OSError, AttributeError):  # no Linux
        return 0
    asked = [(ctypes.c_void_p(first), ctypes.c_size_t(last - first)) for first, last in spans]
    return sum(size.value for first, size in asked if advise(first, size, MADV_COLLAPSE) == 0)


def anonymous(maps: str) -> Iterator[tuple[int, int]]:
    """Where the memory of no file begins and ends, in whole large pages; `maps` is what the system says of it."""
    for line in maps.splitlines():
        span, rights, _, _, file, *name = line.split(maxsplit=5)
        if rights == "rw-p" and file == "0" and name in ([], ["[heap]"]):
            first, last = (int(address, 16) for address in span.split("-"))
            first, last = -(-first // LARGE) * LARGE, last // LARGE * LARGE
            if first < last:
                yield first, last


def nearly_full(first: int, last: int, pages: BinaryIO) -> Iterator[tuple[int, int]]:
    """The parts of a span of whole large pages of which FULL is there; `pages` is PAGES."""
    size = os.sysconf("SC_PAGE_SIZE")
    pages.seek(first // size * 8)
    there = np.frombuffer(pages.read((last - first) // size * 8), np.uint64) >> np.uint64(IS_THERE)
    full = there.reshape(-1, LARGE // size).mean(1) >= FULL
    edges = np.flatnonzero(np.diff(full, prepend=False, append=False)).tolist()
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        yield first + begin * LARGE, first + end * LARGE
