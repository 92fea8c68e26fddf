"""Tells glibc's malloc to keep large blocks instead of mapping and unmapping each of them, to have few heaps, and to
give what a peak has left back to the system; and Python's collector of garbage what it need not look through.

Receive buffers and tensors are larger than malloc's default threshold for mmap (128 KiB), so each would be mapped,
faulted in page by page and unmapped again. With the threshold raised they come from the heap, whose pages stay: also
those between blocks, which many answers or bodies at once have touched and nobody needs any more.

Without a bound, malloc makes a heap for each thread, up to eight per core, and what one thread gives back no other can
use: of a process that used 170 MiB some 900 stayed after five minutes of many clients, and 500 with two heaps. Threads
here compute outside of Python's lock for long but seldom allocate there, so they do not wait for each other at these:
posts take no longer.
"""

import ctypes
import ctypes.util
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Names and values of glibc's malloc.h, in which a heap is an arena. The threshold cannot exceed 32 MiB on 64 bits.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
MMAP_THRESHOLD = 32 * 1024 * 1024 - 1
# Memory at the top of the heap goes back to the system only past this, not after every large body.
TRIM_THRESHOLD = 512 * 1024 * 1024
#: Heaps of one process.
HEAPS = 2


def set_up_malloc() -> bool:
    """Raise both thresholds for this process and bound its heaps, before it has many threads; False where the C library
    is not glibc, which is no error."""
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - only glibc has it; musl's mallopt would mean something else
        mallopt = libc.mallopt
    except (OSError, AttributeError):
        return False
    options = ((M_MMAP_THRESHOLD, MMAP_THRESHOLD), (M_TRIM_THRESHOLD, TRIM_THRESHOLD), (M_ARENA_MAX, HEAPS))
    return all([bool(mallopt(option, value)) for option, value in options])


#: Bytes by which the process must have grown before its unused pages are looked for: it costs some 10 ms a GiB.
GROWN = 64 * 1024 * 1024
_STATM = Path("/proc/self/statm")


class Idle:
    """Pages that the heap does not use. To be given back now and then, on any thread."""

    def __init__(self) -> None:
        self._least = resident()

    def give_back(self) -> int:
        """Bytes given back: those of a process that has grown by GROWN since it was smallest."""
        now = resident()
        self._least = min(now, self._least)
        if now - self._least < GROWN or not trim():
            return 0
        self._least = resident()
        return max(0, now - self._least)


def resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def trim() -> bool:
    """Give the heap's unused pages back; whether there is a C library that can."""
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - as above
        libc.malloc_trim(ctypes.c_size_t(0))
    except (OSError, AttributeError):
        return False
    return True


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, until `set_apart`, nothing is looked through for garbage: what a start loads is to stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def set_apart() -> None:
    """What there is now is never looked through for garbage again, what comes is.

    Modules are 300,000 objects. To look through them takes a fifth of a second, in which no other thread gets on.
    """
    gc.freeze()
    gc.enable()
