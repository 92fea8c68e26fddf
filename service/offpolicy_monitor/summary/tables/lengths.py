"""Length bias: whether a rule drops long answers more often than short ones, read off tables by length.

Lengths stand in bins of a quarter of a power of two. The unit is the sequence for rules on whole sequences, and the
token for the others: each unit is dropped or not, and has the length of its sequence.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final
from urllib.parse import unquote

from offpolicy_monitor.pairs import correlation, of_points
from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Arrays, filled
from offpolicy_monitor.summary.method import path_of

BINS_A_POWER: Final = 4
BINS: Final = 64 * BINS_A_POWER
QUARTILE: Final = 0.25
UNITS: Final = ("sequences", "tokens")

TABLES: Final = (
    *(
        schema.Table(
            f"length/{{gap}}/{unit}",
            (schema.count("", f"{unit} by length", BINS, total=f"gaps/{{gap}}/{unit}"),),
            "the gap's tokens by the length of their sequence",
        )
        for unit in UNITS
    ),
    *(
        schema.Table(
            f"masked/{{row}}/{{gap}}/{unit}",
            (schema.count("", f"dropped {unit} by length", BINS, total=f"methods/{{row}}/masked_{unit}"),),
            "what a method row drops by length",
        )
        for unit in UNITS
    ),
)


def length_biases(arrays: Arrays) -> dict[str, dict[str, Any]]:
    """{row: {"length_bias": figures}}: `spearman`, `slope`, `shortest`, `longest`, `ratio`, `difference`, `unit`.

    `spearman` is the rank correlation of dropped (0/1) with length, equal lengths within a bin; `slope` the
    least-squares slope of dropped on log2 length; `shortest` and `longest` the share dropped in the shortest and the
    longest quarter of the sequences, `ratio` and `difference` the latter over and less the former.

    A row is left out unless it ran on all tokens of its gap: lengths are kept of all shards together, and do not say
    which were those of the shards that ran it.
    """
    found = {}
    for path in arrays.under("masked"):
        _, row, gap, unit = path.split("/")
        ran_on = arrays.record(path_of(unquote(row))).get("tokens")
        if f"length/{gap}/tokens" in arrays and int(arrays[f"length/{gap}/tokens"].sum()) == ran_on:
            found[unquote(row)] = {"length_bias": {"unit": unit, **_bias(arrays, path, gap, unit)}}
    return found


#: Counts by bin of length.
Bins = Mapping[int, float]


def _bias(arrays: Arrays, path: str, gap: str, unit: str) -> dict[str, float | None]:
    masked = filled(arrays[path])
    units, sequences = (filled(arrays[f"length/{gap}/{kind}"]) for kind in (unit, "sequences"))
    bins = list(units)
    spearman, slope = _trend(bins, masked, units)
    shortest = _share(bins, masked, units, sequences)
    longest = _share(bins[::-1], masked, units, sequences)
    return {
        "spearman": spearman,
        "slope": slope,
        "shortest": shortest,
        "longest": longest,
        "ratio": longest / shortest if shortest else None,
        "difference": longest - shortest,
    }


def _trend(bins: list[int], masked: Bins, units: Bins) -> tuple[float | None, float | None]:
    """Spearman's rank correlation of dropped with length, and the slope of dropped on log2 length."""
    counts, dropped = [units[place] for place in bins], [masked.get(place, 0) for place in bins]
    ranks = [up_to - (count - 1) / 2 for up_to, count in zip(accumulate(counts), counts, strict=True)]
    logs = [(place + 0.5) / BINS_A_POWER for place in bins]
    by_rank, by_log = (of_points(zip(counts, values, dropped, strict=True)) for values in (ranks, logs))
    # Dropped is 0 or 1, so that its mean tells its spread.
    spread = by_rank.count * by_rank.y * (1 - by_rank.y)
    return correlation(replace(by_rank, yy=spread)), by_log.slope if by_log.xx > 0 else None


def _share(bins: list[int], masked: Bins, units: Bins, sequences: Bins) -> float:
    """Share dropped among the first quarter of the sequences in the order of the bins; a bin may count in part."""
    left = QUARTILE * sum(sequences.values())
    dropped = counted = 0.0
    for place in bins:
        here = sequences.get(place, 0)
        part = min(1.0, left / here) if here else 0.0
        dropped += part * masked.get(place, 0)
        counted += part * units[place]
        left -= part * here
        if left <= 0:
            break
    return dropped / counted if counted else 0.0
