"""Breakdowns: the figures of each bucket of each dimension, by gap, and the cross terms of gaps.

Tables `breakdown/<dimension>/<part>` over the buckets, or `breakdown/<dimension>/<bucket>/<part>` where a whole shard
is one; a part is a gap or `cross`. Every figure is a mean over the bucket's tokens.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.attribution import attribution
from offpolicy_monitor.summary.batch import CROSS_ROWS
from offpolicy_monitor.summary.faults import need
from offpolicy_monitor.summary.figure import Figure, under
from offpolicy_monitor.summary.kind import Kind, Looked
from offpolicy_monitor.summary.rows import NAMED, OF_GAP, Names, Table, count, magnitude, number
from offpolicy_monitor.summary.scheme import Scheme
from offpolicy_monitor.summary.sums import Sums
from offpolicy_monitor.summary.tables.buckets import BUCKETS, DIMENSIONS
from offpolicy_monitor.vocabulary import LOGPROBS

if TYPE_CHECKING:
    from offpolicy_monitor.summary.checks.facts import Facts
    from offpolicy_monitor.summary.checks.glance import Glance
    from offpolicy_monitor.summary.checks.names import Beside

CROSS: Final = "cross"

#: What is summed of a gap, and across gaps, by bucket.
_GAP_ROWS: Final = (
    number("log_ratio", "d", at_most="log_ratio_abs"),
    magnitude("log_ratio_abs", "|d|"),
    magnitude("log_ratio_square", "d^2", square_of=("tokens", "log_ratio_abs"), product=True),
    magnitude("k3", "k3"),
)
GAP_KEYS: Final = tuple(row.name for row in _GAP_ROWS)
CROSS_KEYS: Final = tuple(row.name for row in CROSS_ROWS)


def _tables(dimension: str, since: int = NAMED, needs: Names = (), *buckets: int) -> Iterator[Table]:
    """The tables of a dimension: rows over its buckets, or one number each where the bucket is in the path."""
    when = "" if buckets else "the shard is numbered, or has labels"
    for part, rows, of, sent in (
        ("{gap}", _GAP_ROWS, "gaps/{gap}/tokens", (OF_GAP,)),
        (CROSS, CROSS_ROWS, "cross/tokens", LOGPROBS),
    ):
        of_part = tuple(dict.fromkeys((*sent, *needs)))
        sums = (replace(row, shape=buckets) for row in rows)
        tokens = count("tokens", "valid tokens", *buckets, at_most=of)
        path = f"breakdown/{dimension}/{part}"
        yield Table(
            path, (tokens, *sums), "a dimension's buckets",
            needs=of_part, when=when, since=since, of_shard=not buckets,
        )  # fmt: skip


#: Dimensions of the same buckets in every shard, and those in which a whole shard is one.
TABLES: Final = (
    *chain.from_iterable(_tables(name, own.since, own.needs, len(own.buckets)) for name, own in DIMENSIONS.items()),
    *_tables("{dimension}/{bucket}"),
)

_BEFORE_NUMBERS: Final[Mapping[str, float]] = {"negative": -4.0, "zero": -3.0, "positive": -2.0, "first": -1.0}


def breakdowns(arrays: Arrays) -> dict[str, Any]:
    """{dimension: {bucket: {"gaps": {gap: figures}, "attribution": shares}}}; buckets without tokens are left out."""
    found: dict[str, dict[str, Any]] = {}
    for dimension, part, bucket, sums in _all_buckets(arrays, arrays.under("breakdown")):
        entry = found.setdefault(dimension, {}).setdefault(bucket, {"gaps": {}})
        if part == CROSS:
            entry["attribution"] = attribution(sums)
        else:
            entry["gaps"][part] = gap_figures(sums)
    return {name: dict(sorted(found[name].items(), key=_natural)) for name in sorted(found)}


def dimensions(arrays: Arrays) -> list[str]:
    """The dimensions that there are."""
    return list(dict.fromkeys(path.split("/")[1] for path in arrays.under("breakdown")))


def buckets(arrays: Arrays, dimension: str, gap: str) -> dict[str, Sums]:
    """The sums of a gap by the buckets of a dimension; buckets without tokens are left out."""
    if dimension in BUCKETS:
        return dict(_of_bins(arrays.lists(f"breakdown/{dimension}/{gap}"), BUCKETS[dimension]))
    paths = (path for path in arrays.under(f"breakdown/{dimension}") if path.endswith(f"/{gap}"))
    return {bucket: sums for _, _, bucket, sums in _all_buckets(arrays, paths)}


def totals(arrays: Arrays, dimension: str, gap: str, chosen: tuple[str, ...]) -> tuple[Sums, Sums]:
    """The sums of a gap over all buckets of a dimension whose buckets are bins, and over the chosen of them."""
    rows, indices = arrays.lists(f"breakdown/{dimension}/{gap}"), _indices(dimension, chosen)
    whole = {row: sum(numbers) for row, numbers in rows.items()}
    return whole, {row: sum([numbers[index] for index in indices]) for row, numbers in rows.items()}


@cache
def _indices(dimension: str, chosen: tuple[str, ...]) -> Sequence[int]:
    return [BUCKETS[dimension].index(name) for name in chosen]


def _all_buckets(arrays: Arrays, paths: Iterable[str]) -> Iterator[tuple[str, str, str, Sums]]:
    """(dimension, part, bucket, sums) of all that these tables hold."""
    for path in paths:
        _, dimension, *bucket, part = path.split("/")
        if bucket:
            sums = arrays.record(path)
            found: Iterable[tuple[str, Sums]] = [(bucket[0], sums)] if sums["tokens"] else []
        else:
            found = _of_bins(arrays.lists(path), BUCKETS[dimension])
        yield from ((dimension, part, name, sums) for name, sums in found)


def _of_bins(rows: Mapping[str, Sequence[float]], names: Sequence[str]) -> Iterator[tuple[str, Sums]]:
    if rows:
        for name, tokens, of_bucket in zip(names, rows["tokens"], zip(*rows.values(), strict=True), strict=True):
            if tokens:
                yield name, dict(zip(rows, of_bucket, strict=True))


def gap_figures(table: Sums) -> dict[str, float]:
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


#: What each share is, in words, with its formula; tokens that have all three log-probs count.
SPLIT: Final[Mapping[str, str]] = {
    "mismatch": "how much of the gap is training-inference mismatch m: `E[m^2] / E[(m + s)^2]`",
    "staleness": "how much of the gap is policy staleness s: `E[s^2] / E[(m + s)^2]`",
    "interaction": "what mismatch and staleness add to (or, below 0, take from) each other: `2 E[m s] / E[(m + s)^2]`",
}

FIGURES: Final = under(
    "{dimension}.{bucket}",
    (
        *under(
            "gaps.{gap}",
            (
                Figure("tokens", "tokens", "valid tokens of the bucket"),
                Figure("log_ratio_mean", "nats", "mean of d over them"),
                Figure("abs_log_ratio_mean", "nats", "mean of |d|"),
                Figure("k1", "nats", "mean of -d"),
                Figure("k2", "nats^2", "mean of d^2 / 2"),
                Figure("k3", "nats", "mean of k3"),
            ),
        ),
        *(Figure(f"attribution.{part}", "share of the total second moment", words) for part, words in SPLIT.items()),
    ),
)


def _check(facts: "Facts", parts: Sequence[str], path: str) -> None:
    sums = facts.arrays.columns("/".join(parts))
    empty = sums["tokens"].reshape(-1) == 0
    need(not any(column.reshape(-1)[empty].any() for column in sums.values()), path, "has sums of no token")
    need(not _has_bucket(parts) or not empty.any(), f"{path}/tokens", "must not be 0")


def _see(scheme: Scheme, glance: "Glance[Looked]", looked: Looked) -> bool:
    path = "/".join(looked[1])
    tokens = scheme.spans[f"{path}/tokens"]
    if _has_bucket(looked[1]):
        glance.positive(looked, tokens)
        return True
    for row in (row for table in scheme.paths[path] for row in table.rows if row.name != "tokens"):
        glance.nothing_without(looked, tokens, scheme.spans[f"{path}/{row.name}"])
    return True


def _named(parts: Sequence[str], beside: "Beside", path: str) -> None:
    _, dimension, *bucket, _ = parts
    own = [beside.constants[dimension]] if dimension in beside.constants else []
    need(not bucket or bucket == own or bucket[0] in BUCKETS.get(dimension, ()), path, "is no bucket of this shard")


def _has_bucket(parts: Sequence[str]) -> bool:
    return len(parts) > len(("breakdown", "dimension", "part"))


KIND: Final = Kind(
    "breakdowns",
    TABLES,
    breakdowns,
    FIGURES,
    "In the answer to one step alone.",
    total=True,
    lost=True,
    measured="offpolicy_monitor.measure.breakdowns",
    check=_check,
    see=_see,
    named=_named,
)
