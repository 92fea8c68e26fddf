"""Identity: which file is at a path, asked for so that the next write to it does not have to tell a new time.

Linux notes that somebody has seen a file's times, and since 6.13 gives it new ones with the write after that; else one
every few milliseconds is enough. ext4 without a journal writes these with each fsync: 50 of a commit's 240 µs.
"""

import ctypes
import os
from typing import Final

#: Device and inode; None where there is no file.
Identity = tuple[int, int] | None
#: Of Linux's headers: a path as it stands, and that the inode is wanted.
AT_FDCWD: Final = -100
STATX_INO: Final = 0x100
_STATX: Final = getattr(ctypes.CDLL(None), "statx", None)


class _Found(ctypes.Structure):
    """What Linux tells of a file, 256 bytes; what nobody wants here has no name."""

    _fields_ = (
        ("told", ctypes.c_uint32),
        ("_", ctypes.c_char * 28),
        ("inode", ctypes.c_uint64),
        ("__", ctypes.c_char * 96),
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("___", ctypes.c_char * 112),
    )


def identity(path: str) -> Identity:
    """The file that is there now; OSError where that cannot be told."""
    found = _Found()
    if _STATX is not None:
        _STATX(AT_FDCWD, os.fsencode(path), 0, STATX_INO, ctypes.byref(found))
    if found.told & STATX_INO:
        return os.makedev(found.major, found.minor), found.inode
    # No Linux, an old one, one that forbids it, or no file.
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
