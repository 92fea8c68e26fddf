"""Hypothesis strategies for summaries of every content, and a summary spelled out by hand."""

import math

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from offpolicy_monitor.core.histogram import Layout, bin_counts, bin_numbers
from offpolicy_monitor.summary import GapSummary, Histogram, MethodSummary, StepSummary
from offpolicy_monitor.summary import histogram as bins
from offpolicy_monitor.summary.batch import BATCH_SUMS, CROSS_SUMS
from offpolicy_monitor.summary.gap import GAP_SUMS
from offpolicy_monitor.summary.method import METHOD_SUMS

LAYOUT = Layout(bins.SMALLEST_EXPONENT, bins.LARGEST_EXPONENT, bins.MANTISSA_BITS, torch.from_numpy(bins.splits()))


def histogram_of(values: NDArray[np.floating] | list[float]) -> Histogram:
    """The histogram of float32 values."""
    tensor = torch.from_numpy(np.asarray(values, np.float32))
    return Histogram(bin_counts(bin_numbers(tensor, LAYOUT), None, 1, LAYOUT)[0].numpy())


NUMBERS = st.one_of(st.integers(0, 10**9), st.floats(-1e6, 1e6), st.floats(-1e-6, 1e-6))
HISTOGRAMS = st.lists(st.floats(-300, 300, width=32), max_size=8).map(histogram_of)
SPECS = st.sampled_from([{"method": "opsm", "delta": 0.01}, {"method": "opsm", "delta": 0.5}, None])


def sums(names: list[str]) -> st.SearchStrategy[dict[str, float]]:
    """Any figures under some of the names; what is missing is the identity."""
    return st.dictionaries(st.sampled_from(names), NUMBERS, max_size=4)


def moments(values: list[float]) -> dict[str, float]:
    """The sums of some log-ratios whose merge depends on each other."""
    centre = math.fsum(values) / len(values)
    return {
        "tokens": len(values),
        "log_ratio": math.fsum(values),
        "log_ratio_square": math.fsum(x * x for x in values),
        "log_ratio_deviation": math.fsum((x - centre) ** 2 for x in values),
    }


#: None, or those of any tokens, with the deviation or, as older releases have it, without.
TOKENS = st.lists(st.floats(-300, 300), min_size=1, max_size=5).map(moments)
MOMENTS: st.SearchStrategy[dict[str, float]] = st.one_of(
    st.just({}), TOKENS, TOKENS.map(lambda found: {k: v for k, v in found.items() if k != "log_ratio_deviation"})
)
OTHER_SUMS = sorted(GAP_SUMS.keys() - {"tokens", "log_ratio", "log_ratio_square", "log_ratio_deviation"})
GAPS = st.builds(
    GapSummary,
    st.builds(lambda some, others: {**some, **others}, MOMENTS, sums(OTHER_SUMS)),
    st.dictionaries(st.sampled_from(["log_ratio/positive", "log_ratio/negative"]), HISTOGRAMS, max_size=2),
)
METHODS = st.builds(MethodSummary, SPECS, sums(list(METHOD_SUMS))).map(
    lambda method: method if method.spec is not None else MethodSummary(None)
)
SUMMARIES = st.builds(
    StepSummary,
    sums(list(BATCH_SUMS)),
    st.dictionaries(st.sampled_from(["mismatch", "total"]), GAPS, max_size=2),
    st.dictionaries(st.sampled_from(["opsm", "tight"]), METHODS, max_size=2),
    sums(list(CROSS_SUMS)),
    st.dictionaries(
        st.sampled_from(["breakdown/position/first/mismatch", "versions/lag"]),
        st.dictionaries(st.sampled_from(["tokens", "k3", "0", "1"]), NUMBERS, max_size=3),
        max_size=2,
    ),
)
