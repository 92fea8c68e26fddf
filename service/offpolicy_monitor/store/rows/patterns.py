"""Regular expressions that clients send: compiled only where that takes little time and memory. Knows no rows.

The library writes out what is repeated a number of times: seventeen characters, `(?:a{9999}){9999}`, mean gigabytes.
"""

import math
import re
from typing import Any, Final

import regex

from offpolicy_monitor.errors import Refusal

#: Characters that a pattern may stand for: what is searched has 129 at most. A hundredth of a second to compile.
MOST_CHARACTERS: Final = 100_000
_COUNTS: Final = re.compile(r"[{,]\s*([\d\s]+)")


def compiled(pattern: str) -> Any:
    """The pattern, to search with; Refusal 422 where it is no regular expression, or repeats too much."""
    if (size := most_characters(pattern)) > MOST_CHARACTERS:
        message = f"repeats what may be {size:.3g} characters, and {MOST_CHARACTERS} are the limit: use smaller counts"
        raise Refusal.of_field(422, "over-limit", "q", message)
    try:
        return regex.compile(pattern, cache_pattern=False)
    except (regex.error, OverflowError, RecursionError, ValueError) as error:
        raise Refusal.of_field(422, "invalid-field", "q", f"is no regular expression: {error}") from error


def most_characters(pattern: str) -> float:
    """How many characters a pattern may stand for at most, by its counts: those in groups multiply.

    What is a count and what a group is not told from what looks like one, so that nothing can hide either.
    """
    counts = sorted(max(1.0, float(re.sub(r"\s", "", count) or 1)) for count in _COUNTS.findall(pattern))
    return len(pattern) * math.prod(counts[-1 - pattern.count("(") :])
