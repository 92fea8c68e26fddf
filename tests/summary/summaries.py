"""Hypothesis strategies for summaries of every content, and a histogram spelled out by hand."""

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from offpolicy_monitor.core.histogram import Layout, bin_numbers
from offpolicy_monitor.summary import Histogram, StepSummary
from offpolicy_monitor.summary import histogram as bins
from offpolicy_monitor.summary.arrays import Arrays
from offpolicy_monitor.summary.gap import DEVIATION
from offpolicy_monitor.summary.layout import LAYOUT
from offpolicy_monitor.summary.method import method_keys
from offpolicy_monitor.summary.rows import SPARSE, Row, name_of

LAYOUT_OF_BINS = Layout(
    bins.SMALLEST_EXPONENT, bins.LARGEST_EXPONENT, bins.MANTISSA_BITS, torch.from_numpy(bins.splits())
)


def histogram_of(values: NDArray[np.floating] | list[float]) -> Histogram:
    """The histogram of float32 values."""
    tensor = torch.from_numpy(np.asarray(values, np.float32))
    return Histogram(torch.bincount(bin_numbers(tensor, LAYOUT_OF_BINS), minlength=bins.BINS).numpy())


SPECS = st.sampled_from([{"method": "opsm", "delta": 0.01}, {"method": "opsm", "delta": 0.5}, None])
ROWS = ("opsm", "a/b c")
KEYS = (
    "batch", "batch#lag", "cross", "gaps/mismatch", "gaps/total", "histograms/total", "breakdown/position/mismatch",
    "breakdown/shard/3/total", "breakdown/label:gpu/a%2Fb/total", "versions/lag", "whatif/total/log_ratio/mass",
    "routing/total/missing/4/2", "sequence/total",
)  # fmt: skip

SPECS_OF_ROWS = st.dictionaries(st.sampled_from(ROWS), SPECS, max_size=2)
SOME_KEYS = st.lists(st.sampled_from(KEYS), unique=True, max_size=6)
SEEDS = st.integers(0, 1 << 30)
#: Of a gap: its tokens, and whether an older release has counted them.
COUNTED = st.tuples(st.sampled_from([0, 1, 7]), st.booleans())


@st.composite
def summaries(draw: st.DrawFn) -> StepSummary:
    """Any numbers in some of the tables; extremes are infinite, and deviations absent, where older releases are."""
    specs = draw(SPECS_OF_ROWS)
    keys = draw(SOME_KEYS)
    of_rows = [key for name, spec in specs.items() if spec is not None for key in method_keys(name)]
    source = np.random.default_rng(draw(SEEDS))
    arrays = Arrays.of(
        LAYOUT,
        {key: {row.name: _values(row, source) for row in LAYOUT.at(key).rows} for key in (*keys, *of_rows)},
    )
    absent = []
    for path in arrays.under("gaps"):
        tokens, is_old = draw(COUNTED)
        _fit(arrays, path, tokens, source)
        if tokens and is_old:
            absent.append(name_of(path, DEVIATION))
    return StepSummary(arrays.lacking(absent), specs)


def _values(row: Row, source: np.random.Generator) -> object:
    """Numbers of a row's kind, many of them 0."""
    if SPARSE in row.shape:
        numbers = np.unique(source.integers(-5, 5, 3))
        return numbers, source.integers(1, 9, len(numbers))
    shape = [int(size) for size in row.shape]
    filled = source.random(shape) < 0.5
    if row.kind == "count":
        return np.where(filled, source.integers(0, 10**9, shape), 0)
    if row.merge in ("min", "max"):
        return source.normal(0, 9, shape)
    values = np.where(filled, source.normal(0, 10.0 ** source.integers(-6, 7), shape), 0.0)
    return np.abs(values) if row.kind == "magnitude" else values


def _fit(arrays: Arrays, path: str, tokens: int, source: np.random.Generator) -> None:
    """Sums of a gap whose merge depends on each other: those of as many log-ratios."""
    values = source.normal(source.normal(0, 9), 1, tokens)
    arrays[f"{path}/tokens"][...] = tokens
    arrays[f"{path}/log_ratio"][...] = values.sum()
    arrays[f"{path}/log_ratio_square"][...] = (values**2).sum()
    arrays[name_of(path, DEVIATION)][...] = ((values - values.mean()) ** 2).sum() if tokens else 0.0


SUMMARIES = summaries()
