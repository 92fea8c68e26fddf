"""The mismatch's signature: evidence figures read off tables, on which a diagnosis rests.

Each figure says how far one mark of a known bug shows, if possible as a share of what there is to explain. What
belongs to no table here comes from breakdowns of the mismatch. It weighs nothing: that is diagnosis's work.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from offpolicy_monitor.summary.tables import Table, Tables, add_tables, under

PREFIX: Final = "signature"
#: Probabilities mu between which d is regressed on log mu: near 1 there is nothing to see, far below the tail speaks.
LOWEST_MIDDLE: Final = 0.01
HIGHEST_MIDDLE: Final = 0.9
#: Buckets of the breakdown by mu that make the low-probability tail, mu < 0.01.
LOW_BUCKETS: Final = ("0", "1e-4", "1e-3")
MIDDLE_KEYS: Final = ("tokens", "b", "d", "b_square", "b_d", "d_square")
NEIGHBOUR_KEYS: Final = (
    "pairs", "a_first", "b_first", "a_first_square", "b_first_square", "a_second", "b_second", "a_second_square",
    "b_second_square", "forward", "turning", "turning_square",
)  # fmt: skip
GRID_EXPONENTS: Final = (3, 4, 5, 6, 7, 8)
GRID_KEYS: Final = ("tokens", *(f"2^-{k}" for k in GRID_EXPONENTS))
#: Kurtosis of d that an error bar on a mean of d^2 allows for; log-ratios have tails.
KURTOSIS: Final = 30.0


def signature(tables: Tables) -> dict[str, Any]:
    """Evidence by mark; a mark without tokens to show on is left out. All but counts are shares, slopes or z-scores."""
    marks = {
        "regression": _regression(tables.get(f"{PREFIX}/middle", {})),
        "neighbours": _neighbours(tables.get(f"{PREFIX}/neighbours", {})),
        "grid": _grid(tables),
        "uncertain": _uncertain(tables.get(f"{PREFIX}/middle", {})),
        "first_token": _part(tables, "position", ("first",)),
        "low_probability": _part(tables, "mu_probability", LOW_BUCKETS),
        "lag": _growth(tables),
        "replica": _replica(tables),
    }
    return {name: figures for name, figures in marks.items() if figures}


def _regression(sums: Table) -> dict[str, float]:
    """slope of log a on log b, z of slope - 1, and the share of the middle's sum d^2 that the slope explains."""
    count = sums.get("tokens", 0)
    if count < 3:
        return {}
    spread = sums["b_square"] - sums["b"] ** 2 / count
    together = sums["b_d"] - sums["b"] * sums["d"] / count
    square = sums["d_square"] - sums["d"] ** 2 / count
    if not (spread > 0 and square > 0):
        return {}
    excess, explained = together / spread, together**2 / spread
    rest = max(square - explained, 1e-12 * square)
    return {
        "slope": 1 + excess,
        "z": abs(excess) / math.sqrt(rest / (count - 2) / spread),
        "share": min(explained / sums["d_square"], 1.0),
    }


def _neighbours(sums: Table) -> dict[str, float]:
    """Correlations of a_t with b_(t-1), b_(t+1), their difference, and its z-score where d is noise.

    Neighbouring tokens correlate both ways alike; only a shift makes one way differ from the other.
    """
    count = sums.get("pairs", 0)
    if not count:
        return {}
    turning, square = sums["turning"], sums["turning_square"]
    forward = _correlation(sums, sums["forward"], "a_first", "b_second")
    backward = _correlation(sums, sums["forward"] - turning, "a_second", "b_first")
    if forward is None or backward is None:
        return {}
    return {
        "next": forward,
        "previous": backward,
        "asymmetry": abs(forward - backward),
        "z": abs(turning) / math.sqrt(square) if square > 0 else 0.0,
    }


def _correlation(sums: Table, product: float, left: str, right: str) -> float | None:
    """Pearson's correlation of the pairs; None where a side does not vary beyond rounding."""
    count = sums["pairs"]
    spreads = [sums[f"{name}_square"] - sums[name] ** 2 / count for name in (left, right)]
    if any(s <= 1e-7 * sums[f"{name}_square"] for s, name in zip(spreads, (left, right), strict=True)):
        return None
    covariance = product - sums[left] * sums[right] / count
    return max(-1.0, min(1.0, covariance / math.sqrt(spreads[0] * spreads[1])))


def _grid(tables: Tables) -> dict[str, Any]:
    """The column that lies most on a grid, the share of its values that does, and the coarsest step that holds them."""
    best: dict[str, Any] = {}
    for (column,), table in under(tables, f"{PREFIX}/grid"):
        finest = table.get(GRID_KEYS[-1], 0)
        share = finest / table["tokens"] if table.get("tokens") else 0.0
        if share > best.get("share", -1.0):
            steps = [k for k in GRID_EXPONENTS if finest and table.get(f"2^-{k}", 0) >= 0.9 * finest]
            best = {"column": column, "share": share, "step": 2.0 ** -steps[0] if steps else None}
            best["tokens"] = int(table.get("tokens", 0))
    return best


def _uncertain(sums: Table) -> dict[str, float]:
    """The share of tokens of middling probability whose two log-probs are equal to the bit."""
    count = sums.get("tokens", 0)
    return {"exact_fraction": sums.get("exact", 0) / count, "tokens": count} if count else {}


def _part(tables: Tables, dimension: str, buckets: tuple[str, ...]) -> dict[str, float]:
    """Some buckets' share of tokens, sum d^2 and sum k3, their mean d over its root mean square, and z of mean d."""
    part: Table = {}
    whole: Table = {}
    for (bucket, gap), table in under(tables, f"breakdown/{dimension}"):
        if gap == "mismatch":
            whole = add_tables(whole, table)
            part = add_tables(part, table) if bucket in buckets else part
    if not part or not whole["log_ratio_square"] > 0 or not whole["k3"] > 0:
        return {}
    count, size = part["tokens"], math.sqrt(part["log_ratio_square"] / part["tokens"])
    direction = part["log_ratio"] / count / size if size > 0 else 0.0
    return {
        "token_share": count / whole["tokens"],
        "second_moment_share": part["log_ratio_square"] / whole["log_ratio_square"],
        "k3_share": part["k3"] / whole["k3"],
        "direction": direction,
        "z": direction * math.sqrt(count),
        "tokens": count,
    }


def _growth(tables: Tables) -> dict[str, float]:
    """The line of mean d^2 on the version lag: the share of the whole that grows with lag, and z of its slope."""
    rows = [
        (float(bucket.rstrip("+")), table["tokens"], table["log_ratio_square"])
        for (bucket, gap), table in under(tables, "breakdown/lag")
        if gap == "mismatch" and bucket != "negative"
    ]
    count, square = sum(row[1] for row in rows), sum(row[2] for row in rows)
    if len(rows) < 2 or not square > 0:
        return {}
    centre = sum(lag * n for lag, n, _ in rows) / count
    spread = sum(n * (lag - centre) ** 2 for lag, n, _ in rows)
    slope = sum((lag - centre) * total for lag, _, total in rows) / spread
    error = math.sqrt(KURTOSIS / spread) * square / count
    return {"share": max(0.0, min(1.0, slope * centre * count / square)), "z": slope / error}


def _replica(tables: Tables) -> dict[str, float]:
    """Of shards and of each label's values: what the largest mean d^2 exceeds the usual by, as a share, and its z."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for (*names, gap), table in under(tables, "breakdown"):
        if gap == "mismatch" and (names[0] == "shard" or names[0].startswith("label:")):
            found.setdefault(names[0], {})[names[1]] = (table["tokens"], table["log_ratio_square"])
    best: dict[str, float] = {}
    for rows in found.values():
        if len(rows) > 1 and (figures := _outlier(rows))["z"] > best.get("z", 0.0):
            best = figures
    return best


def _outlier(rows: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    means = {name: square / count for name, (count, square) in rows.items()}
    ordered = sorted(means.values())
    usual, worst = ordered[(len(ordered) - 1) // 2], max(means, key=lambda name: means[name])
    total = sum(square for _, square in rows.values())
    excess = means[worst] - usual
    error = means[worst] * math.sqrt(KURTOSIS / rows[worst][0])
    return {
        "share": excess * rows[worst][0] / total if total > 0 else 0.0,
        "z": excess / error if error > 0 else 0.0,
        "ratio": means[worst] / usual if usual > 0 else math.inf,
    }
