"""Versions: how old the tokens of a step are, in spans and in sequences, and what age costs (the staleness curve).

Read off the tables `versions/...` and `breakdown/lag/...`. A lag is a number of policy versions.
"""

from typing import Any, Final

from offpolicy_monitor.pairs import of_points
from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.tables.breakdown import buckets

CURVES: Final = ("total", "mismatch")

TABLES: Final = (
    schema.Table(
        "versions/spans",
        (
            schema.count("spans", "runs of one known policy version inside a sequence", at_most="batch/tokens"),
            schema.count("sequences", "sequences with one", at_most="spans"),
        ),
        "spans of policy versions",
        needs="policy_versions",
    ),
    schema.Table(
        "versions/spans",
        (schema.number("lag", "the mean lag of a sequence"),),
        "the lag of sequences",
        part="lag",
        needs="policy_versions, policy_version",
    ),
    schema.Table(
        "versions/lag",
        (schema.count("", "sequences by whole lag", schema.SPARSE, total="versions/spans/sequences"),),
        "the lag of sequences, rounded down",
        needs="policy_versions, policy_version",
    ),
)


def versions(arrays: Arrays) -> dict[str, Any] | None:
    """`spans`, `spans_per_sequence_mean`, `sequence_lag` and `staleness_curve`; None where no versions were sent."""
    spans = arrays.record("versions/spans")
    if not spans:
        return None
    figures: dict[str, Any] = {
        "spans": int(spans["spans"]),
        "spans_per_sequence_mean": spans["spans"] / spans["sequences"],
    }
    if "lag" in spans:
        lags, numbers = arrays.at("versions/lag")
        counted = dict(zip(lags.tolist(), numbers.tolist(), strict=True))
        figures["sequence_lag"] = {
            "mean": spans["lag"] / spans["sequences"],
            "floor_max": max(counted),
            "counts": {str(lag): number for lag, number in counted.items()},
        }
        figures["staleness_curve"] = {gap: curve for gap in CURVES if (curve := staleness_curve(arrays, gap))}
    return figures


def staleness_curve(arrays: Arrays, gap: str) -> dict[str, Any] | None:
    """Mean k3 of the gap by whole lag (0..8), and the least-squares line through it, weighted by tokens.

    `intercept` is what is left at lag 0, the pure mismatch; `slope` is nats per token and version. Both are None below
    two lags. Lags below 0 and above 8 are in no point.
    """
    points = [(int(name), sums) for name, sums in buckets(arrays, "lag", gap).items() if name.isdecimal()]
    if not points:
        return None
    line = of_points((table["tokens"], lag, table["k3"]) for lag, table in points) if len(points) > 1 else None
    return {
        "lag": [lag for lag, _ in points],
        "k3": [table["k3"] / table["tokens"] for _, table in points],
        "tokens": [int(table["tokens"]) for _, table in points],
        "intercept": None if line is None else line.intercept,
        "slope": None if line is None else line.slope,
    }
