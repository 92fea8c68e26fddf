"""Breakdowns: the figures of each bucket of each dimension, read off tables `breakdown/<dimension>/<bucket>/<part>`.

A part is a gap (GAP_KEYS beside `tokens`) or `cross` (CROSS_KEYS). Every figure is a mean over the bucket's tokens.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from offpolicy_monitor.summary.attribution import attribution
from offpolicy_monitor.summary.tables import Table, Tables, under

GAP_KEYS: Final = ("log_ratio", "log_ratio_abs", "log_ratio_square", "k3")
CROSS_KEYS: Final = ("mismatch_square", "staleness_square", "mismatch_staleness")

_BEFORE_NUMBERS: Final[Mapping[str, float]] = {"negative": -4.0, "zero": -3.0, "positive": -2.0, "first": -1.0}


def breakdowns(tables: Tables) -> dict[str, Any]:
    """{dimension: {bucket: {"gaps": {gap: figures}, "attribution": shares}}}; buckets without tokens are left out."""
    found: dict[str, dict[str, Any]] = {}
    for (dimension, bucket, part), table in under(tables, "breakdown"):
        entry = found.setdefault(dimension, {}).setdefault(bucket, {"gaps": {}})
        if part == "cross":
            entry["attribution"] = attribution(table)
        else:
            entry["gaps"][part] = gap_figures(table)
    return {name: dict(sorted(found[name].items(), key=_natural)) for name in sorted(found)}


def gap_figures(table: Table) -> dict[str, float]:
    """Means over the tokens of one bucket and gap; the formulas are those of the gap's own figures."""
    tokens = table["tokens"]
    return {
        "tokens": int(tokens),
        "log_ratio_mean": table["log_ratio"] / tokens,
        "abs_log_ratio_mean": table["log_ratio_abs"] / tokens,
        "k1": -table["log_ratio"] / tokens,
        "k2": table["log_ratio_square"] / (2 * tokens),
        "k3": table["k3"] / tokens,
    }


def _natural(item: tuple[str, Any]) -> tuple[float, str]:
    """Named ends first and last, numbers in between by value, anything else by its letters."""
    bucket = item[0]
    if bucket in _BEFORE_NUMBERS:
        return _BEFORE_NUMBERS[bucket], bucket
    try:
        value = float(bucket.removesuffix("+"))
    except ValueError:
        return math.inf, bucket
    return (value if math.isfinite(value) else math.inf), bucket
