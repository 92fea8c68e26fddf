"""The mismatch's signature: evidence figures read off tables, on which a diagnosis rests.

Each figure says how far one mark of a known bug shows, if possible as a share of what there is to explain. What
belongs to no table here comes from breakdowns of the mismatch. It weighs nothing: that is diagnosis's work.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote

from offpolicy_monitor.pairs import correlation, of_points, of_sums
from offpolicy_monitor.summary import rows as schema
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.figure import Figure, under
from offpolicy_monitor.summary.kind import Kind
from offpolicy_monitor.summary.sums import Sums, over
from offpolicy_monitor.summary.tables.breakdown import buckets, dimensions, totals
from offpolicy_monitor.summary.tables.decimals import decimals

PREFIX: Final = "signature"
#: Probabilities mu between which d is regressed on log mu: near 1 there is nothing to see, far below the tail speaks.
LOWEST_MIDDLE: Final = 0.01
HIGHEST_MIDDLE: Final = 0.9
#: Buckets of the breakdown by mu that make the low-probability tail, mu < 0.01.
LOW_BUCKETS: Final = ("0", "1e-4", "1e-3")
_MIDDLE: Final = (
    schema.count("tokens", "tokens of middling mu", at_most="gaps/mismatch/tokens"),
    schema.number("b", "log mu"),
    schema.number("d", "d"),
    schema.magnitude("b_square", "(log mu)^2", square_of=("tokens", "b"), product=True),
    schema.number("b_d", "d log mu", product_of=("tokens", "b_square", "d_square")),
    schema.magnitude("d_square", "d^2", square_of=("tokens", "d"), product=True),
)
MIDDLE_KEYS: Final = tuple(row.name for row in _MIDDLE)
_SIDES: Final = tuple(f"{policy}_{token}" for token in ("first", "second") for policy in ("a", "b"))


def _squares(name: str) -> schema.Row:
    return schema.magnitude(f"{name}_square", "their squares", square_of=("pairs", name), product=True)


def _products(name: str, meaning: str, *squares: str) -> schema.Row:
    return schema.number(name, meaning, product_of=("pairs", *squares), product=True)


_NEIGHBOURS: Final = (
    schema.count("pairs", "neighbouring tokens", at_most="gaps/mismatch/tokens"),
    *(schema.number(name, f"log-probs {name[0]} of the {name[2:]} of two") for name in _SIDES[:2]),
    *map(_squares, _SIDES[:2]),
    *(schema.number(name, f"log-probs {name[0]} of the {name[2:]} of two") for name in _SIDES[2:]),
    *map(_squares, _SIDES[2:]),
    _products("forward", "a of the first, b of the second", "a_first_square", "b_second_square"),
    _products("backward", "a of the second, b of the first", "a_second_square", "b_first_square"),
)
NEIGHBOUR_KEYS: Final = tuple(row.name for row in _NEIGHBOURS)
GRID_EXPONENTS: Final = (3, 4, 5, 6, 7, 8)
_GRID: Final = (
    schema.count("tokens", "values large enough to tell", at_most="gaps/mismatch/tokens"),
    schema.count("short", "values with few bits", at_most="gaps/mismatch/tokens"),
    *(schema.count(f"2^-{k}", f"multiples of 2^-{k}", at_most="gaps/mismatch/tokens") for k in GRID_EXPONENTS),
)
GRID_KEYS: Final = tuple(row.name for row in _GRID)
TABLES: Final = (
    schema.Table(f"{PREFIX}/middle", _MIDDLE, "a regression of d on log mu", needs=("mismatch",), filled=True),
    schema.Table(
        f"{PREFIX}/middle",
        (schema.count("exact", "tokens whose two log-probs are equal", at_most="tokens"),),
        "a regression of d on log mu",
        part="exact",
        needs=("mismatch",),
    ),
    schema.Table(
        f"{PREFIX}/neighbours", _NEIGHBOURS, "products of neighbouring log-probs", needs=("mismatch",), filled=True
    ),
    schema.Table(
        f"{PREFIX}/grid/{{column}}",
        _GRID,
        "values of a column on a grid",
        needs=("mismatch",),
        when="no log-probs coarser than float32",
    ),
)
#: Column -> the least |value| that shows whether it is rounded. A log-prob near 0 is the difference of two float32
#: numbers of some 20, and has few bits of its own.
LEAST: Final[Mapping[str, float]] = {"sampling": 0.25, "old": 0.25, "difference": 2.0**-9}
#: What part of a sum of squares its spread must be to be more than rounding: neighbours are summed in float32.
ROUNDED: Final = 1e-7
#: Standard deviation of sequences' mean |d| over its mean that healthy runs are allowed: tokens of one sequence share
#: a subject and a length, so that they are not as many independent witnesses as there are of them.
SEQUENCES_DIFFER: Final = 0.5


def _regression(sums: Sums) -> dict[str, float]:
    """slope of log a on log b, z of slope - 1, and the share of the middle's sum d^2 that the slope explains."""
    count = sums.get("tokens", 0)
    if count < 3:
        return {}
    line = of_sums(count, *(sums[name] for name in ("b", "d", "b_square", "b_d", "d_square")))
    if not (line.xx > 0 and line.yy > 0):
        return {}
    return {
        "slope": 1 + line.slope,
        "z": over(abs(line.slope), line.slope_error),
        "share": min(line.slope * line.xy / sums["d_square"], 1.0),
    }


def _neighbours(arrays: Arrays) -> dict[str, float]:
    """Correlations of a_t with b_(t-1), b_(t+1), their difference, its z-score were the two independent, and the share
    of sum d^2 that a shift explains.

    Neighbouring tokens correlate both ways alike; only a shift makes one way differ from the other. A token that has
    its neighbour's log-prob has a mean d^2 of twice the variance of b, less what neighbours have in common, and adds
    that variance to one covariance alone: twice the difference of the covariances is then all of mean d^2.
    """
    sums = arrays.record(f"{PREFIX}/neighbours")
    count = sums.get("pairs", 0)
    if not count:
        return {}
    forward = _correlation(sums, sums["forward"], "a_first", "b_second")
    backward = _correlation(sums, sums["backward"], "a_second", "b_first")
    if forward is None or backward is None:
        return {}
    asymmetry = abs(forward - backward)
    figures = {"next": forward, "previous": backward, "asymmetry": asymmetry, "z": asymmetry * math.sqrt(count / 2)}
    return figures | _of_a_shift(sums, arrays.record("gaps/mismatch"))


def _of_a_shift(sums: Sums, gap: Sums) -> dict[str, float]:
    """2 |cov(a_t, b_(t+1)) - cov(a_(t+1), b_t)| over mean d^2, at most 1."""
    square, count = _mean(gap, "log_ratio_square"), sums["pairs"]
    between = sums["forward"] - sums["backward"]
    expected = (sums["a_first"] * sums["b_second"] - sums["a_second"] * sums["b_first"]) / count
    return {"share": min(1.0, 2 * abs(between - expected) / count / square)} if square > 0 else {}


def _correlation(sums: Sums, product: float, left: str, right: str) -> float | None:
    """Pearson's correlation of the pairs; None where a side does not vary beyond rounding."""
    xx, yy = sums[f"{left}_square"], sums[f"{right}_square"]
    pairs = of_sums(sums["pairs"], sums[left], sums[right], xx, product, yy)
    return correlation(pairs, ROUNDED * xx, ROUNDED * yy)


def _grid(arrays: Arrays) -> dict[str, Any]:
    """The column most of whose values are rounded, the share that is, and the coarsest step that holds them if any.

    Of a difference only multiples of the finest step count: two neighbouring values of full precision differ by few
    bits.
    """
    best: dict[str, Any] = {}
    for path in arrays.under(f"{PREFIX}/grid"):
        column, table = path.rpartition("/")[2], arrays.record(path)
        rounded = table.get(GRID_KEYS[-1] if column == "difference" else "short", 0)
        share = rounded / table["tokens"] if table.get("tokens") else 0.0
        if share > best.get("share", -1.0):
            steps = [k for k in GRID_EXPONENTS if rounded and table.get(f"2^-{k}", 0) >= 0.9 * rounded]
            best = {"column": column, "share": share, "step": 2.0 ** -steps[0] if steps else None}
            best["tokens"] = int(table.get("tokens", 0))
    return best


def _uncertain(sums: Sums) -> dict[str, float]:
    """The share of tokens of middling probability whose two log-probs are equal to the bit."""
    count = sums.get("tokens", 0)
    return {"exact_fraction": sums.get("exact", 0) / count, "tokens": count} if count else {}


def _part(arrays: Arrays, dimension: str, chosen: tuple[str, ...]) -> dict[str, float]:
    """Some buckets' share of tokens, sum d^2 and sum k3, their mean d over mean |d|, and z of mean d.

    z is that of flipping signs at random, sum d / sqrt(sum d^2): a few large tokens cannot make it large.
    """
    whole, part = totals(arrays, dimension, "mismatch", chosen)
    if not whole or not part["tokens"] or not whole["log_ratio_square"] > 0 or not whole["k3"] > 0:
        return {}
    size, square = part["log_ratio_abs"], part["log_ratio_square"]
    return {
        "token_share": part["tokens"] / whole["tokens"],
        "second_moment_share": square / whole["log_ratio_square"],
        "k3_share": part["k3"] / whole["k3"],
        "direction": part["log_ratio"] / size if size > 0 else 0.0,
        "z": part["log_ratio"] / math.sqrt(square) if square > 0 else 0.0,
        "tokens": int(part["tokens"]),
    }


def _growth(arrays: Arrays) -> dict[str, float]:
    """The lines of mean |d| and mean d^2 on the version lag: the share of sum d^2 that grows with lag, and z of |d|.

    The standard error is that of equal buckets, so that it does not grow with what it is to detect.
    """
    rows = {float(b.rstrip("+")): table for b, table in buckets(arrays, "lag", "mismatch").items() if b != "negative"}
    whole = _added(rows.values())
    if len(rows) < 2 or not whole["log_ratio_square"] > 0:
        return {}
    sizes, squares = (
        of_points((table["tokens"], lag, table[key]) for lag, table in rows.items())
        for key in ("log_ratio_abs", "log_ratio_square")
    )
    error = math.sqrt(_variance(whole, _length(arrays)) / sizes.xx)
    return {"share": max(0.0, min(1.0, squares.share)), "z": over(sizes.slope, error)}


def _learned(arrays: Arrays) -> dict[str, float]:
    """Mean d where A > 0 less that where A < 0, over mean |d|, and its z.

    A trainer that has learned what the engine does not know finds rewarded answers likelier than the engine does, in
    the first order of d. Noise of the engine only makes its answers worse, which is of the second order. Given what
    came before, d less its mean is uncorrelated from token to token, so that tokens are the witnesses.
    """
    rows = buckets(arrays, "advantage_sign", "mismatch")
    if "positive" not in rows or "negative" not in rows:
        return {}
    for_it, against = rows["positive"], rows["negative"]
    size = (for_it["log_ratio_abs"] + against["log_ratio_abs"]) / (for_it["tokens"] + against["tokens"])
    if not size > 0:
        return {}
    difference = _mean(for_it, "log_ratio") - _mean(against, "log_ratio")
    error = math.sqrt(_spread(for_it) / for_it["tokens"] + _spread(against) / against["tokens"])
    return {"difference": difference / size, "z": over(difference, error)}


def _spread(table: Sums) -> float:
    """The variance of d."""
    mean = _mean(table, "log_ratio")
    return max(0.0, _mean(table, "log_ratio_square") - mean * mean)


def _along(arrays: Arrays) -> dict[str, float]:
    """The lines of mean |d| and mean d^2 on log2 of the position, but for first and last tokens.

    `growth` is the share of sum d^2 that comes with the position, `decline` the share beyond that of the furthest
    positions, z that of |d|, positive where it grows.
    """
    rows = {math.log2(int(b)): table for b, table in buckets(arrays, "position", "mismatch").items() if b.isdigit()}
    whole = _added(rows.values())
    if len(rows) < 3 or not whole["log_ratio_square"] > 0:
        return {}
    sizes, squares = (
        of_points((table["tokens"], power, table[key]) for power, table in rows.items())
        for key in ("log_ratio_abs", "log_ratio_square")
    )
    error = math.sqrt(_variance(whole, _length(arrays)) / sizes.xx)
    below = squares.slope * (squares.x - max(rows)) / squares.y
    return {
        "growth": max(0.0, min(1.0, squares.share)),
        "decline": max(0.0, min(1.0, below)),
        "z": over(sizes.slope, error),
    }


def _replica(arrays: Arrays) -> dict[str, Any]:
    """Of shards and of each label's values: the one whose mean |d| exceeds the usual most surely, by its name.

    The usual is the lower median. `share` is of sum d^2, `ratio` of mean d^2.
    """
    best: dict[str, Any] = {}
    for dimension in sorted(dimensions(arrays)):
        if dimension == "shard" or dimension.startswith("label:"):
            rows = buckets(arrays, dimension, "mismatch")
            if len(rows) > 1 and (figures := _outlier(rows, _length(arrays)))["z"] > best.get("z", 0.0):
                best = figures | {"name": f"{unquote(dimension.removeprefix('label:'))} {unquote(figures['name'])}"}
    return best


def _outlier(buckets_of: Mapping[str, Sums], length: float) -> dict[str, Any]:
    rows = list(buckets_of.values())
    ordered = sorted(buckets_of.items(), key=lambda row: row[1]["log_ratio_abs"] / row[1]["tokens"])
    (_, usual), (name, worst) = ordered[(len(ordered) - 1) // 2], ordered[-1]
    excess = _mean(worst, "log_ratio_abs") - _mean(usual, "log_ratio_abs")
    error = math.sqrt(sum(_variance(table, length) / table["tokens"] for table in (worst, usual)))
    square, total = _mean(usual, "log_ratio_square"), sum(table["log_ratio_square"] for table in rows)
    return {
        "name": name,
        "share": max(0.0, worst["log_ratio_square"] - square * worst["tokens"]) / total if total > 0 else 0.0,
        "z": over(excess, error),
        "ratio": _mean(worst, "log_ratio_square") / square if square > 0 else math.inf,
    }


def _variance(table: Sums, length: float) -> float:
    """What the variance of a mean of |d| is in proportion to 1 / tokens: of tokens, and of sequences of that length."""
    mean = _mean(table, "log_ratio_abs")
    return max(0.0, _mean(table, "log_ratio_square") - mean * mean) + length * (SEQUENCES_DIFFER * mean) ** 2


def _mean(table: Sums, key: str) -> float:
    return table[key] / table["tokens"]


def _length(arrays: Arrays) -> float:
    """Tokens per sequence: each has one first token."""
    rows = buckets(arrays, "position", "mismatch")
    return _added(rows.values())["tokens"] / rows["first"]["tokens"] if "first" in rows else 1.0


def _added(rows: Iterable[Sums]) -> Sums:
    """The sums of all, name by name."""
    whole: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            whole[name] = whole[name] + value if name in whole else value
    return whole


_HELD: Final = (
    Figure("token_share", "share of tokens", "that they are"),
    Figure("second_moment_share", "share of sum d^2", "that they hold"),
    Figure("k3_share", "share of sum k3", "that they hold"),
    Figure("direction", "", "their mean d over their mean |d|"),
    Figure("z", "", "of their mean d, by flipping signs"),
    Figure("tokens", "tokens", "how many they are"),
)

#: Of improbable tokens what rules look at.
_JUDGED: Final = frozenset({"k3_share", "direction"})

FIGURES: Final = (
    Figure("regression.slope", "", "of log pi_old on log mu, where 0.01 < mu < 0.9"),
    Figure("regression.z", "", "of slope - 1"),
    Figure("regression.share", "share of sum d^2", "there that the line explains"),
    Figure("neighbours.next", "", "correlation of log pi_old with log mu of the next token"),
    Figure("neighbours.previous", "", "the same with the previous token"),
    Figure("neighbours.asymmetry", "", "how far the two differ"),
    Figure("neighbours.z", "", "of the asymmetry"),
    Figure("neighbours.share", "share of sum d^2", "that a shift by one token explains"),
    Figure("grid.share", "share of tokens", "that are rounded, in the column where most are"),
    Figure("grid.step", "nats", "that they are multiples of"),
    Figure("grid.tokens", "tokens", "looked at"),
    Figure("decimals.share", "share of tokens", "with at most four decimal places, in the column where most have"),
    Figure("decimals.places", "decimal places", "that they have"),
    Figure("decimals.tokens", "tokens", "looked at: log-probs from -2 to -1"),
    Figure("uncertain.exact_fraction", "share of tokens", "equal to the bit, of 0.01 < mu < 0.9"),
    Figure("uncertain.tokens", "tokens", "with 0.01 < mu < 0.9"),
    *under("first_token", _HELD),
    *under("low_probability", (replace(figure, headline=figure.path in _JUDGED) for figure in _HELD)),
    Figure(
        "position.growth", "share of sum d^2", "that comes with log2 of the position, but for first and last tokens"
    ),
    Figure("position.decline", "share of sum d^2", "there beyond that of the furthest positions, were it on a line"),
    Figure("position.z", "", "of the slope of |d| on log2 of the position"),
    Figure("lag.share", "share of sum d^2", "that grows with version lag", headline=True),
    Figure("lag.z", "", "of the slope of |d| on lag", headline=True),
    Figure("learned.difference", "", "mean d where A > 0 less that where A < 0, over mean |d|", headline=True),
    Figure("learned.z", "", "of that difference", headline=True),
    Figure("replica.share", "share of sum d^2", "of the shard or label that stands out most surely"),
    Figure("replica.z", "", "of its mean |d| over the usual"),
    Figure("replica.ratio", "ratio", "of its mean d^2 to the usual"),
)

#: Evidence by mark; one without tokens to show on is left out. All but counts are shares, slopes or z-scores.
MARKS: Final[Mapping[str, Callable[[Arrays], Mapping[str, Any]]]] = {
    "regression": lambda arrays: _regression(arrays.record(f"{PREFIX}/middle")),
    "neighbours": _neighbours,
    "grid": _grid,
    "decimals": lambda arrays: decimals(arrays.record("batch")),
    "uncertain": lambda arrays: _uncertain(arrays.record(f"{PREFIX}/middle")),
    "first_token": lambda arrays: _part(arrays, "position", ("first",)),
    "position": _along,
    "low_probability": lambda arrays: _part(arrays, "mu_probability", LOW_BUCKETS),
    "lag": _growth,
    "learned": _learned,
    "replica": _replica,
}

KIND: Final = Kind(
    "signature",
    TABLES,
    figures=FIGURES,
    lost=True,
    measured="offpolicy_monitor.measure.signature",
    marks=MARKS,
    looked_at=tuple(f"breakdown/{dimension}/mismatch" for dimension in ("mu_probability", "advantage_sign", "lag")),
)
