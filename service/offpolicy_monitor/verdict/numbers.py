"""How numbers are written for people, everywhere alike: two digits, powers of ten, per cent without a space."""

import math
from datetime import UTC, datetime
from typing import Final

_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MINUS: Final = "\N{MINUS SIGN}"
TIMES: Final = "\N{MULTIPLICATION SIGN}"
#: Longest durations in seconds and in minutes.
_SECONDS, _MINUTES = 90.0, 90 * 60.0


def number(value: float, digits: int = 2) -> str:
    """So many significant digits: plain from 0.001 on, below it as 3.1×10⁻⁴; whole from 100 on."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    size, sign = abs(value), MINUS if value < 0 else ""
    mantissa, _, exponent = f"{size:.{digits - 1}e}".partition("e")
    if size >= 1000:
        return f"{sign}{round(size):,}"
    if size >= 0.001 * (1 - 1e-9):
        shown = float(f"{mantissa}e{exponent}")
        return sign + (f"{round(size)}" if shown >= 100 else f"{shown:g}")
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    return sign + (power if float(mantissa) == 1 else f"{float(mantissa):g}{TIMES}{power}")


def percent(share: float) -> str:
    """One decimal below 10 %; never 0 or 100 for what is neither."""
    if share < 0:
        return MINUS + percent(-share)
    if share in (0, 0.01) or share >= 1:
        return f"{share * 100:.0f}%"
    if share < 0.001:
        return "<0.1%"
    if share < 0.0995:
        return f"{share * 100:.1f}%"
    return ">99%" if share > 0.995 else f"{share * 100:.0f}%"


def ratio(value: float, base: float) -> str | None:
    """`41×` of its base; None where there is nothing to compare with."""
    if base <= 0 or not math.isfinite(value / base):
        return None
    times = value / base
    if times >= 1000:
        return f"over 1,000{TIMES}"
    return f"{times:.0f}{TIMES}" if times >= 9.95 else f"{times:.1f}{TIMES}"


def duration(seconds: float) -> str:
    """In the largest unit of which there are enough to tell: `4 s`, `12 min`, `2 h`."""
    if seconds < _SECONDS:
        return f"{number(seconds)} s"
    if seconds < _MINUTES:
        return f"{number(seconds / 60)} min"
    return f"{number(seconds / 3600)} h"


def clock(seconds: float, now: float) -> str:
    """Unix seconds as `22:03 UTC`; with the date where it is another day than now."""
    when, today = (datetime.fromtimestamp(moment, UTC) for moment in (seconds, now))
    return f"{when:%H:%M} UTC" if when.date() == today.date() else f"{when:%H:%M} UTC on {when:%Y-%m-%d}"
