"""How close two summaries of one batch must be: every count and bin the same, sums to 1e-6 of their magnitudes.

Both forms compute in float32; torch loses some 2e-6 of k3 for |d| around 0.3, where it subtracts. Binary KLs are held
against float64 in test_columns, since torch's and the pass's may lie on two sides of a bin's edge.
"""

import math
from collections.abc import Callable, Mapping

from offpolicy_monitor.summary.step import StepSummary

from tests.summary.records import records_of

Record = Mapping[str, float]

RELATIVE = 2e-6
OF_MAGNITUDE = 1e-6
OF_K3 = 5e-6
#: Squares of float32 log-ratios below 1e-19 are no normal float32 numbers.
SMALLEST = 1e-30


def _root(square: str, count: str = "tokens") -> Callable[[Record], float]:
    """A bound on the sum of |x| from that of x^2."""
    return lambda record: math.sqrt(record[square] * record[count])


#: Sums of terms of both signs -> the sum of their magnitudes, or a bound on it.
MAGNITUDES: Mapping[str, Callable[[Record], float]] = {
    "log_ratio": lambda record: record["log_ratio_abs"],
    "log_geometric": lambda record: record["log_geometric_abs"],
    "log_geometric_min": lambda record: record["log_geometric_abs"],
    "log_geometric_max": lambda record: record["log_geometric_abs"],
    "log_product": lambda record: record["log_ratio_abs"],
    "log_product_min": lambda record: record["log_ratio_abs"],
    "log_product_max": lambda record: record["log_ratio_abs"],
    "ratio_excess": lambda record: record["multiplicative_excess"],
    "weight_excess": _root("weight_excess_square"),
    "geometric_excess": lambda record: record["log_geometric_abs"] * (1 + record["geometric"]),
    "geometric_excess_square": lambda record: record["log_geometric_abs"] * (1 + record["geometric_square"]),
    "geometric_square": lambda record: record["log_ratio_abs"] * record["geometric_square"],
    "geometric": lambda record: record["log_ratio_abs"] * record["geometric"],
    "inverse_geometric": lambda record: record["log_ratio_abs"] * record["inverse_geometric"],
    "product": lambda record: record["log_ratio_abs"] * record["product"],
    "product_square": lambda record: record["log_ratio_abs"] * record["product_square"],
    "product_excess": lambda record: record["log_ratio_abs"] * (1 + record["product"]),
    "product_excess_square": lambda record: record["log_ratio_abs"] * (1 + record["product_square"]),
    "log_ratio_deviation": lambda record: record["log_ratio_square"],
    "mismatch_staleness": lambda record: math.sqrt(record["mismatch_square"] * record["staleness_square"]),
    "advantage_excess": lambda record: math.sqrt(record["mass_square"]) * 10 + record["advantage_abs"],
    "cancelled": lambda record: record["moving"],
    "d": _root("d_square"),
    "b_d": lambda record: math.sqrt(record["b_square"] * record["d_square"]),
}


def assert_same(got: StepSummary, expected: StepSummary, log_probs_square: float) -> None:
    """Two summaries of one batch, made in two ways; `log_probs_square` is the sum of all its log-probs' squares, of
    which torch takes off what stands at the ends of sequences."""
    assert got.specs == expected.specs
    mine, theirs = _counted(got), _counted(expected)
    assert mine.keys() == theirs.keys()
    for path, record in theirs.items():
        if "/kl_" not in path:
            _assert_record(path, mine[path], record, log_probs_square if path == "signature/neighbours" else 0.0)
    assert got.worst == expected.worst or places(got) == places(expected)


def _counted(summary: StepSummary) -> dict[str, Record]:
    """The tables in which something was counted: one that is missing is one of zeros."""
    tables = records_of(summary.arrays).items()
    return {path: record for path, record in tables if any(value and math.isfinite(value) for value in record.values())}


def places(summary: StepSummary) -> list[object]:
    """The worst sequences without their figures, which are float32."""
    return [(found.order[:3], found.positions, found.columns, found.id) for found in summary.worst.sequences]


def _assert_record(path: str, got: Record, expected: Record, whole: float) -> None:
    assert got.keys() == expected.keys(), path
    for name, value in expected.items():
        where = f"{path}/{name}: {got[name]!r}, torch says {value!r}"
        if isinstance(value, int) or math.isinf(value):
            assert got[name] == value, where
        else:
            relative = OF_K3 if "k3" in name or path.endswith("/mass") else RELATIVE
            magnitude = MAGNITUDES[name](expected) if name in MAGNITUDES else whole
            allowed = relative * abs(value) + OF_MAGNITUDE * magnitude + SMALLEST
            assert abs(got[name] - value) <= allowed, f"{where}, within {allowed:.3g}"
