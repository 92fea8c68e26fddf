"""Versions: how old the tokens of a step are, in spans and in sequences, and what age costs (the staleness curve).

Read off the tables `versions/...` and `breakdown/lag/...`. A lag is a number of policy versions.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offpolicy_monitor.pairs import of_points
from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Array, Arrays
from offpolicy_monitor.summary.faults import each_about_at_most, need
from offpolicy_monitor.summary.figure import Figure, under
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.tables.breakdown import buckets

if TYPE_CHECKING:
    from offpolicy_monitor.measure.view import BlockView
    from offpolicy_monitor.summary.checks.facts import Facts

CURVES: Final = ("total", "mismatch")

TABLES: Final = (
    schema.Table(
        "versions/spans",
        (
            schema.count("spans", "runs of one known policy version inside a sequence", at_most="batch/tokens"),
            schema.count("sequences", "sequences with one", at_most="spans"),
        ),
        "spans of policy versions",
        needs=("policy_versions",),
        summed_from="policy_versions",
    ),
    schema.Table(
        "versions/spans",
        (schema.number("lag", "the mean lag of a sequence"),),
        "the lag of sequences",
        part="lag",
        needs=("policy_versions", schema.POLICY_VERSION),
        summed_from="policy_versions",
    ),
    schema.Table(
        "versions/lag",
        (schema.count("", "sequences by whole lag", schema.SPARSE, total="versions/spans/sequences"),),
        "the lag of sequences, rounded down",
        needs=("policy_versions", schema.POLICY_VERSION),
        summed_from="policy_versions",
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


def tables_of(arrays: Mapping[str, Array], view: "BlockView") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The version tables of a batch, made on the host; none where no version is known.

    A span is a run of tokens of one known version inside one sequence; the lag of a sequence the mean over its tokens
    of known version.
    """
    batch, policy_version = view.block.batch.source, view.origin.policy_version
    versions = batch.columns.get("policy_versions")
    if versions is None or not batch.tokens:
        return
    lengths = np.diff(batch.offsets)
    values = versions.astype(np.int64)
    if "policy_versions" not in batch.per_token:
        values = np.repeat(values, lengths)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    known = values >= 0
    begins = known.copy()
    begins[1:] &= (values[1:] != values[:-1]) | (owners[1:] != owners[:-1])
    counts = np.bincount(owners, known, minlength=len(lengths))
    if not counts.any():
        return
    yield "versions/spans", {"spans": int(begins.sum()), "sequences": int((counts > 0).sum())}
    if policy_version is not None:
        means = _mean_lags(owners, np.where(known, policy_version - values, 0), counts)
        yield "versions/spans#lag", {"lag": float(means.sum())}
        yield "versions/lag", {"": np.unique(np.floor(means).astype(np.int64), return_counts=True)}


def _mean_lags(owners: Array, lags: Array, counts: Array) -> Array:
    """The mean lag of each sequence with a token of known version."""
    there = counts > 0
    means: Array = np.bincount(owners, lags, minlength=len(counts))[there] / counts[there]
    return means


FIGURES: Final = (
    Figure("spans", "spans", "runs of tokens of one known policy version"),
    Figure("spans_per_sequence_mean", "spans per sequence", "over sequences with one"),
    Figure("sequence_lag.mean", "versions", "mean over sequences of their mean lag"),
    Figure("sequence_lag.floor_max", "whole versions", "largest lag of a sequence, rounded down"),
    Figure("sequence_lag.counts.{lag}", "sequences", "of that whole lag"),
    *under(
        "staleness_curve.{gap}",
        (
            Figure("lag.{index}", "whole versions", "lag of a point"),
            Figure("k3.{index}", "nats", "mean k3 at that point"),
            Figure("tokens.{index}", "tokens", "at that point"),
            Figure("intercept", "nats", "of the line through the points: what is left at lag 0"),
            Figure("slope", "nats per version", "of that line"),
        ),
    ),
)


def _check(facts: "Facts", parts: Sequence[str], path: str) -> None:
    spans = facts.arrays.record("versions/spans")
    need(bool(spans), path, "needs versions/spans")
    need(0 < spans["sequences"] <= facts.whole["sequences"], "versions/spans/sequences", "are not those of the batch")
    need(("lag" in spans) == ("versions/lag" in facts.arrays), "versions/spans", "has its lag without versions/lag")
    lags, most = facts.arrays.at("versions/lag")[0], facts.summary.batch.get("lag_max", 0)
    fits = each_about_at_most(lags.astype(np.float64), most).all()  # of what float64 rounds too
    need(bool(fits), "versions/lag", "is of sequences that lag more than any of their tokens")


KIND: Final = Kind(
    "versions",
    TABLES,
    versions,
    FIGURES,
    "Only where `policy_versions` were sent.",
    measured=__name__,
    gapless=True,
    check=_check,
)
