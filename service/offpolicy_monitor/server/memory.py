"""Tells glibc's malloc to keep large blocks instead of mapping and unmapping each of them.

Receive buffers and tensors are larger than malloc's default threshold for mmap (128 KiB), so each would be mapped,
faulted in page by page and unmapped again. With the threshold raised they come from the heap, whose pages stay.
"""

import ctypes
import ctypes.util

# Names and values of glibc's malloc.h. The threshold cannot exceed 32 MiB on 64 bits.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
MMAP_THRESHOLD = 32 * 1024 * 1024 - 1
# Memory at the top of the heap goes back to the system only past this, not after every large body.
TRIM_THRESHOLD = 512 * 1024 * 1024


def keep_large_blocks() -> bool:
    """Raise both thresholds for this process; False where the C library is not glibc, which is no error."""
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 - only glibc has it; musl's mallopt would mean something else
        mallopt = libc.mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)) and bool(mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD))
