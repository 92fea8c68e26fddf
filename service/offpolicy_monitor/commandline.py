"""What command lines have in common: exit statuses, how they end, and the kinds of values that arguments hold.

For argparse, whose own messages name the argument. Knows no command.
"""

import argparse
import math
import re
from typing import Final

from offpolicy_monitor.vocabulary import RUN_NAME

DONE: Final = 0
#: It ran, and the answer is no: a check failed, or the service refused or is away.
NO: Final = 1
SETUP_WRONG: Final = 3
#: Ctrl-C, as shells have it: 128 and the number of the signal.
INTERRUPTED: Final = 130


def natural(text: str) -> int:
    """A whole number from 0."""
    return _at_least(0, text)


def positive(text: str) -> int:
    """A whole number from 1."""
    return _at_least(1, text)


def number(text: str) -> float:
    """A finite number."""
    return _within(-math.inf, text)


def seconds(text: str) -> float:
    """A length of time: finite, and not below 0."""
    return _within(0.0, text, inclusive=True)


def some_seconds(text: str) -> float:
    """A length of time: finite, and more than 0."""
    return _within(0.0, text)


def run_name(text: str) -> str:
    """A name that a run may have."""
    if not re.fullmatch(RUN_NAME, text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a run: letters, digits and ._- up to 128")
    return text


def _at_least(least: int, text: str) -> int:
    value = int(text)
    if value < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}: {text}")
    return value


def _within(low: float, text: str, inclusive: bool = False) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number: {text}")
    if value < low or (value == low and not inclusive):
        raise argparse.ArgumentTypeError(f"must be {'at least' if inclusive else 'more than'} {low:g}: {text}")
    return value
