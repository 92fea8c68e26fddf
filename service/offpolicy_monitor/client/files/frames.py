"""Our own safetensors dumps: each file one body of POST /v1/runs/{run}/batches as wire.frame lays it out.

Nothing is copied and no dtype changed on the way: a dump posts what its writer would have posted.
"""

import json
import math
import mmap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from offpolicy_monitor.client.files.record import Bad, Item, Record, Unfinished
from offpolicy_monitor.errors import FrameError
from offpolicy_monitor.wire.frame import METADATA_KEY, Frame, decode

HEADER_BYTES, TENSORS = 1 << 20, 64
LAST = (1 << 62,)


def read(path: Path) -> Iterator[Item]:
    """The file's one batch. Raises Unfinished where the file is shorter than its header says."""
    size = path.stat().st_size
    try:
        frame = _decoded(path)
    except FrameError as error:
        if size < _announced(path):
            raise Unfinished(f"{path} is not whole yet: {error}") from error
        yield Bad(str(path), str(error), size)
        return
    if type(frame.envelope.get("step")) is not int:
        yield Bad(str(path), "its metadata names no step", size)
        return
    arrays = {name: tensor.array for name, tensor in frame.tensors.items()}
    halves = frozenset(name for name, tensor in frame.tensors.items() if tensor.dtype == "BF16")
    yield Record(str(path), frame.envelope, arrays, size, bfloat16=halves)


def order(path: Path) -> tuple[int, ...]:
    """Step, gradient step and shard that the file's header names; behind all others where it cannot be read yet."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return LAST
    return _order(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1 << 16)
def _order(path: Path, size: int, changed: int) -> tuple[int, ...]:
    """The order of a file as it was with that size and time: a folder of thousands is looked at every second."""
    try:
        envelope: dict[str, Any] = _decoded(path).envelope
    except (FrameError, OSError, ValueError):
        return LAST
    numbers = [envelope.get(name, 0) for name in ("step", "minibatch", "shard")]
    return tuple(number if type(number) is int else 0 for number in numbers)


def _decoded(path: Path) -> Frame:
    with path.open("rb") as file:
        # An empty file cannot be mapped.
        body = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b"")
    return decode(body, HEADER_BYTES, TENSORS)


def _announced(path: Path) -> float:
    """How many bytes the file will have, by its header; infinite where that is not whole yet, 0 where it is wrong."""
    with path.open("rb") as file:
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) == 8 and length > HEADER_BYTES:
            return 0
        text = file.read(length) if len(head) == 8 else b""
    if len(head) < 8 or len(text) < length:
        return math.inf
    try:
        entries = json.loads(text).items()
        return (
            8 + length + max((entry["data_offsets"][1] for name, entry in entries if name != METADATA_KEY), default=0)
        )
    except (ValueError, TypeError, LookupError, AttributeError):
        return 0
