"""How figures are stored: compact JSON, compressed. What JSON cannot hold (NaN, infinities) becomes null.

Knows nothing of what the figures mean.
"""

from typing import Any

import orjson
import zstandard

LEVEL = 3


def pack(figures: dict[str, Any], level: int = LEVEL) -> bytes:
    """The stored form of a step's figures."""
    return zstandard.compress(orjson.dumps(figures), level)


def unpack(stored: bytes) -> dict[str, Any]:
    """The figures that `pack` stored."""
    figures: dict[str, Any] = orjson.loads(zstandard.decompress(stored))
    return figures
