"""How a fault in a summary is named: the path to the part at fault, as `gaps/mismatch/tokens`, and what is wrong.

Also the comparisons that every check is made of. Knows no part of a summary.
"""

import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from offpolicy_monitor.errors import OffpolicyMonitorError
from offpolicy_monitor.vocabulary import TEXT

#: Sums that were added up in another order may differ by this much, relative to what they are compared with.
ROUNDING = 1e-5
#: What float32 cannot hold below this is lost; sums of squares may lack as much per token.
UNDERFLOW = 1e-30
_TEXT: Final = re.compile(TEXT)


Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class InvalidSummaryError(OffpolicyMonitorError):
    """A summary that no batch can have. `path` is empty where all of it is at fault."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


def need(holds: bool, path: str, message: str) -> None:
    """Raise InvalidSummaryError where something does not hold."""
    if not holds:
        raise InvalidSummaryError(path, message)


def about_at_most(low: float, high: float, scale: float = 0.0) -> bool:
    """Whether low <= high up to ROUNDING of the larger magnitude (or of `scale`); exact for two integers."""
    if isinstance(low, int) and isinstance(high, int):
        return low <= high
    return low <= high + ROUNDING * max(abs(low), abs(high), scale) + UNDERFLOW


def each_about_at_most(low: Floats, high: Floats | float) -> Bools:
    """The same of each of several numbers; False where one is NaN."""
    found: Bools = low <= high + ROUNDING * np.maximum(np.abs(low), np.abs(high)) + UNDERFLOW
    return found


def fits_mean(count: Floats, total: Floats, extreme: Floats, *, largest: Bools | bool) -> Bools:
    """Whether the mean of so many numbers is no more than their largest, or no less than their smallest, of each total;
    True where there are none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / count
        low, high = np.where(largest, mean, extreme), np.where(largest, extreme, mean)
        found: Bools = (count == 0) | (np.isfinite(extreme) & each_about_at_most(low, high))
    return found


def fits_squares(count: Floats, product: Floats, first: Floats, second: Floats) -> Bools:
    """Whether a sum of so many products x y is one that the sums of x^2 and of y^2 allow (Cauchy and Schwarz); True
    where there are none."""
    lost = UNDERFLOW * count
    largest = np.sqrt(first * (1 + ROUNDING) + lost) * np.sqrt(second * (1 + ROUNDING) + lost)
    found: Bools = (count == 0) | (np.abs(product) <= largest)
    return found


def printable(text: str) -> str:
    """A text from outside, cut and in ASCII."""
    return text[:128].encode("ascii", "replace").decode()


def is_text(value: Any) -> bool:
    """Whether a value is a string that can be stored and shown: encodable, of what the envelope's texts are made of."""
    encodable = isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
    return encodable and _TEXT.fullmatch(value) is not None
