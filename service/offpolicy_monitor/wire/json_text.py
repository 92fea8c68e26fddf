"""Counts characters of a JSON text before it is parsed, which is ten times as fast: what they stand for has a cost.

What is in its strings counts too, so the numbers are bounds. Knows no JSON.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

_PIECE: Final = 1 << 18
_LARGEST_ASCII: Final = 127


def occurrences(text: memoryview, characters: Iterable[str]) -> dict[str, int]:
    """How often each of these ASCII characters is in the text."""
    found = dict.fromkeys(characters, 0)
    octets = np.frombuffer(text, np.uint8)
    for start in range(0, len(octets), _PIECE):
        piece = octets[start : start + _PIECE]
        for character in found:
            found[character] += int(np.count_nonzero(piece == ord(character)))
    return found


def is_ascii(text: memoryview) -> bool:
    """Whether no byte of the text is beyond ASCII."""
    octets = np.frombuffer(text, np.uint8)
    return not len(octets) or int(octets.max()) <= _LARGEST_ASCII
