"""How close two summaries of one batch must be: every count and bin the same, sums to 1e-6 of their magnitudes.

Scores that are sums, and binary KLs, which are float64 in torch and float32 in the pass, are in the same bins but for
those within 1e-6 of an edge.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.summary import cells
from offpolicy_monitor.summary.histogram import bin_edges
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.vocabulary import GAP_LOGPROBS, LOGPROBS

from tests.summary.records import records_of
from tests.summary.worst_one_by_one import one_by_one

Record = Mapping[str, float]
Doubles = NDArray[np.float64]

#: Of a sum, of the sum of its magnitudes, and of the edge of a bin.
RELATIVE = 1e-6
OF_MAGNITUDE = 1e-6
EDGE = 1e-6
EDGES = np.unique(
    [
        *(edge for bins in (cells.TOKEN_BINS, cells.SEQUENCE_BINS, cells.LENGTH_BINS) for edge in bins.magnitudes),
        *(edge for edge in np.abs(np.concatenate(bin_edges())) if 0 < edge < math.inf),
    ]
)
#: Scores that add up what tokens have of d.
OF_SEQUENCES: Mapping[str, Callable[[Doubles], Doubles]] = {
    "log_geometric_ratio": lambda d: d,
    "log_product_ratio": lambda d: d,
    "k2_mean": lambda d: d * d / 2,
    "k2_sum": lambda d: d * d / 2,
    "k3_mean": lambda d: _k3(d, np.exp(d)),
    "k3_sum": lambda d: _k3(d, np.exp(d)),
    "growth_mean": lambda d: np.expm1(np.abs(d)),
}
#: Squares of float32 log-ratios below 1e-19 are no normal float32 numbers.
SMALLEST = 1e-30


def _root(square: str, count: str = "tokens") -> Callable[[Record], float]:
    """A bound on the sum of |x| from that of x^2."""
    return lambda record: math.sqrt(record[square] * record[count])


#: Sums of terms of both signs -> the sum of their magnitudes, or a bound on it. A mean over a sequence is a sum, too.
MAGNITUDES: Mapping[str, Callable[[Record], float]] = {
    "log_ratio": lambda record: record["log_ratio_abs"],
    "log_geometric": lambda record: record["log_ratio_abs"],
    "log_geometric_min": lambda record: record["log_ratio_abs"],
    "log_geometric_max": lambda record: record["log_ratio_abs"],
    "log_product": lambda record: record["log_ratio_abs"],
    "log_product_min": lambda record: record["log_ratio_abs"],
    "log_product_max": lambda record: record["log_ratio_abs"],
    "ratio_excess": lambda record: record["multiplicative_excess"],
    "weight_excess": _root("weight_excess_square"),
    "geometric_excess": _root("geometric_excess_square", "sequences"),
    "product_excess": _root("product_excess_square", "sequences"),
    "log_ratio_deviation": lambda record: record["log_ratio_square"],
    "mismatch_staleness": lambda record: math.sqrt(record["mismatch_square"] * record["staleness_square"]),
    "advantage_excess": lambda record: math.sqrt(record["mass_square"]) * 10 + record["advantage_abs"],
    "cancelled": lambda record: record["moving"],
    "d": _root("d_square"),
    "b_d": lambda record: math.sqrt(record["b_square"] * record["d_square"]),
}

#: Of float64: torch takes p - q, expm1(d) - d and log1p(expm1(-|d|) / 2) + |d| / 2, which may be less than what both
#: sides are rounded by.
ROUNDING = 2.0**-51


def _unseen(record: Record) -> float:
    """What rounding of p and of q may add to, or take from, the sum of their differences."""
    return ROUNDING * (record["p"] + record["q"])


def _size(record: Record) -> float:
    """The sum of |d|, as gaps and breakdowns name it or as routing does."""
    return record["log_ratio_abs"] if "log_ratio_abs" in record else record["size"]


#: Sums whose terms torch takes from such differences -> by how much these may be off, whatever they come to.
UNSEEN: Mapping[str, Callable[[Record], float]] = {
    "probability_diff": _unseen,
    "probability_diff_max": _unseen,
    "probability_diff_square": lambda record: _unseen(record) * (2 * record["probability_diff_max"] + _unseen(record)),
    "k3": lambda record: ROUNDING * _size(record),
    "k3_reverse": lambda record: ROUNDING * _size(record),
    "sequence_k3": lambda record: ROUNDING * _size(record),
    "js": lambda record: ROUNDING * _size(record),
    "k3_kept": lambda record: ROUNDING * _root("log_ratio_square_kept")(record),
    "k3_masked": lambda record: ROUNDING * _root("log_ratio_square_masked")(record),
}


def assert_same(batch: RaggedBatch, got: StepSummary, expected: StepSummary) -> None:
    """Two summaries of one batch, made in two ways."""
    assert got.specs == expected.specs
    mine, theirs = _counted(got), _counted(expected)
    assert mine.keys() == theirs.keys()
    whole = _square_of_log_probs(batch)
    for path, record in theirs.items():
        binned = path.startswith(("histograms/", "whatif/")) and mine[path] != record
        moved = _tokens_near_an_edge(batch, *path.split("/")[1:3]) if binned else 0
        if moved:
            assert_moved(path, mine[path], record, 2 * moved)
        else:
            assert_record(path, mine[path], record, whole if path == "signature/neighbours" else 0.0)
    assert got.worst == expected.worst or indices(got) == indices(expected)


def _square_of_log_probs(batch: RaggedBatch) -> float:
    """Of all, since torch takes off what stands at the ends of sequences."""
    sent = np.concatenate([batch.columns[name].astype(float) for name in LOGPROBS if name in batch.columns])
    return float((sent[np.isfinite(sent)] ** 2).sum())


def _tokens_near_an_edge(batch: RaggedBatch, gap: str, score: str) -> int:
    """Tokens of the sequences in which a score is within EDGE of an edge of its bins, be it of what it adds up."""
    of_policies = [batch.columns[name].astype(float) for name in GAP_LOGPROBS[gap]]
    if score.startswith("kl_"):
        a, b = (values.clip(max=0.0) for values in of_policies)
        with np.errstate(invalid="ignore"):
            values = np.concatenate([binary_kl(b, a), binary_kl(a, b)])
            near = (np.abs(values[:, None] / EDGES - 1) < EDGE).any(1)
        owners = np.searchsorted(batch.offsets, np.flatnonzero(near) % max(batch.tokens, 1), side="right") - 1
    elif score in OF_SEQUENCES:
        with np.errstate(invalid="ignore", over="ignore"):
            d = of_policies[0] - of_policies[1]
            terms, weights = OF_SEQUENCES[score](np.clip(d, -80.0, 80.0)), np.isfinite(d)
            found, sizes, counts = (
                np.add.reduceat(np.append(np.where(weights, values, 0.0), 0.0), batch.offsets[:-1])
                for values in (terms, np.abs(terms), np.ones(len(d)))
            )
            if score.endswith("_mean") or score == "log_geometric_ratio":
                found, sizes = found / np.maximum(counts, 1), sizes / np.maximum(counts, 1)
        found[np.diff(batch.offsets) == 0] = np.inf  # of an empty one reduceat takes what is behind it
        near = np.abs(np.abs(found)[:, None] - EDGES) <= EDGE * np.maximum(EDGES, sizes[:, None])
        owners = np.flatnonzero(near.any(1))
    else:
        return 0
    return int(np.diff(batch.offsets)[np.unique(owners)].sum())


def binary_kl(log_q: Doubles, log_p: Doubles) -> Doubles:
    """Between Bernoulli(q) and Bernoulli(p), as signals.md defines it; the terms are k3s, so that none cancels."""
    q, q_rest, p_rest = np.exp(log_q), -np.expm1(log_q), -np.expm1(log_p)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        apart = np.where(log_p > log_q, -q * np.expm1(log_p - log_q), np.exp(log_p) * np.expm1(log_q - log_p))
        other = np.where(q_rest > 0, q_rest * _k3(np.log1p(apart / q_rest), p_rest / q_rest), p_rest)
        return np.where((p_rest <= 0) & (q_rest > 0), np.inf, q * _k3(log_p - log_q, np.exp(log_p) / q) + other)


def _k3(d: Doubles, ratio: Doubles) -> Doubles:
    """ratio - 1 - d for ratio = exp(d)."""
    series = d * d * (1 / 2 + d * (1 / 6 + d * (1 / 24 + d * (1 / 120 + d * (1 / 720 + d / 5040)))))
    return np.where(np.abs(d) < 0.01, series, ratio - 1 - d)


def assert_moved(path: str, got: Record, expected: Record, most: int) -> None:
    """Counts that differ by what a few tokens have moved from bin to bin; masses are not looked at."""
    apart = sum(abs(got.get(name, 0) - expected.get(name, 0)) for name in got.keys() | expected.keys())
    assert path.endswith("/mass") or apart <= most, f"{path}: {apart} apart, at most {most} can be"


def _counted(summary: StepSummary) -> dict[str, Record]:
    """The tables in which something was counted: one that is missing is one of zeros."""
    tables = records_of(summary.arrays).items()
    return {path: record for path, record in tables if any(value and math.isfinite(value) for value in record.values())}


def indices(summary: StepSummary) -> list[object]:
    """The worst sequences without their figures, which are float32."""
    return [(one.shard, one.index, one.tokens, one.positions, one.columns, one.id) for one in one_by_one(summary.worst)]


def assert_record(path: str, got: Record, expected: Record, whole: float = 0.0) -> None:
    assert got.keys() == expected.keys(), path
    for name, value in expected.items():
        where = f"{path}/{name}: {got[name]!r}, torch says {value!r}"
        if isinstance(value, int) or math.isinf(value):
            assert got[name] == value, where
        else:
            magnitude = MAGNITUDES[name](expected) if name in MAGNITUDES else whole
            unseen = UNSEEN[name](expected) if name in UNSEEN else 0.0
            allowed = RELATIVE * abs(value) + OF_MAGNITUDE * magnitude + unseen + SMALLEST
            assert abs(got[name] - value) <= allowed, f"{where}, within {allowed:.3g}"
