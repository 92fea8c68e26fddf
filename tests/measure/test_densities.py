"""Densities against a loop over tokens, on ragged batches with holes and log-probs that are not finite."""

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from offpolicy_monitor.batch import RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.tables.density import density, edges

from tests.reference import COLUMNS

#: Log-probs that are seldom drawn: at edges and beside them, certain, above 0, and what is masked out.
ODD = [0.0, -0.0, 0.4, -1e-9, *edges().tolist(), *(edges() * (1 - 1e-7)).tolist(), -40.0, np.nan, -np.inf]


def batch(seed: int, names: tuple[str, ...], dtype: Any) -> RaggedBatch:
    source = np.random.default_rng(seed)
    lengths = source.integers(0, 30, 12)
    tokens = int(lengths.sum())
    base = -source.exponential(1.0, tokens) * 10.0 ** -source.uniform(0, 4, tokens)
    columns = {name: (base * source.uniform(0.5, 2, tokens)).astype(dtype) for name in names}
    for column in columns.values():
        odd = source.random(tokens) < 0.2
        column[odd] = source.choice(ODD, odd.sum()).astype(dtype)
    return RaggedBatch.from_positions(lengths, columns, {}, source.random(tokens) > 0.1)


def cells_of(data: RaggedBatch, numerator: str) -> Counter[tuple[int, int]]:
    """By the number of edges below each of both log-probs, as float32 holds them."""
    sides = np.array([data.columns[numerator], data.columns["sampling_logprobs"]])
    values = sides[:, np.isfinite(sides).all(0)].astype(np.float32)
    at = (edges() < values[..., None]).sum(-1)
    return Counter(zip(*at.tolist(), strict=True))


def counted(summary: StepSummary, gap: str) -> Counter[tuple[int, int]]:
    counts = density(summary.arrays, gap)
    cells = [] if counts is None else np.argwhere(counts).tolist()
    return Counter({(i, j): int(counts[i, j]) for i, j in cells if counts is not None})


@given(
    seed=st.integers(0, 10_000),
    names=st.sampled_from([COLUMNS, COLUMNS[:2], COLUMNS[1:], (COLUMNS[0], COLUMNS[2])]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_tokens_are_counted_by_both_of_their_log_probs(seed: int, names: tuple[str, ...], dtype: Any) -> None:
    data = batch(seed, names, dtype)
    summary = Measurer("cpu").measure(data, ())
    for gap, numerator in (("mismatch", "old_logprobs"), ("total", "logprobs")):
        if {numerator, "sampling_logprobs"} <= set(names):
            assert counted(summary, gap) == cells_of(data, numerator)
        else:
            assert density(summary.arrays, gap) is None


def test_blocks_add_up() -> None:
    data, measurer = batch(3, COLUMNS, np.float32), Measurer("cpu")
    whole = measurer.measure(data, ())
    measurer.block_tokens = 40
    assert counted(measurer.measure(data, ()), "mismatch") == counted(whole, "mismatch")
