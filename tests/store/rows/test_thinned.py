"""Thinning keeps order, extremes and gaps: of one column by its definition, of several within one bound."""

import numpy as np
import pytest
from numpy.typing import NDArray
from offpolicy_monitor.store.rows.thinned import thinned

Floats = NDArray[np.float64]


def by_definition(values: list[float], most: int) -> list[int]:
    """Of one column with more than `most` entries: of each of most / 2 stretches the first lowest, the last highest."""
    stretches = max(1, most // 2)
    kept: list[int] = []
    for number in range(stretches):
        stretch = range(number * len(values) // stretches, (number + 1) * len(values) // stretches)
        known = [index for index in stretch if not np.isnan(values[index])]
        if not known:
            kept.append(stretch[0])
        else:
            lowest = min(known, key=lambda index: (values[index], index))
            kept += sorted({lowest, max(known, key=lambda index: (values[index], index))})
    return kept[:most]


def some_columns(fields: int, count: int, seed: int) -> Floats:
    """Few distinct values, so that many are equal, and gaps."""
    source = np.random.default_rng(seed)
    found = source.integers(0, 7, (fields, count)).astype(np.float64)
    found[source.random((fields, count)) < 0.2] = np.nan
    return found


@pytest.mark.parametrize("most", [1, 2, 3, 10, 37, 99])
@pytest.mark.parametrize("seed", range(5))
def test_one_column_is_thinned_as_defined(most: int, seed: int) -> None:
    [values] = columns = some_columns(1, 100, seed)
    assert thinned(columns, most).tolist() == by_definition(values.tolist(), most)


def test_a_stretch_without_values_stays_a_gap() -> None:
    values = np.array([[np.nan] * 50 + [1.0] * 50])
    assert values[0, thinned(values, 4)].tolist() == pytest.approx([np.nan, 1.0, 1.0], nan_ok=True)


def test_what_is_no_more_than_asked_for_stays_whole() -> None:
    assert thinned(some_columns(3, 50, 0), 50).tolist() == list(range(50))


@pytest.mark.parametrize("fields, most", [(2, 4), (2, 10), (5, 100), (15, 40), (15, 300), (32, 1000), (32, 7)])
def test_several_columns_share_entries_within_the_bound_and_keep_both_ends(fields: int, most: int) -> None:
    kept = thinned(some_columns(fields, 2000, 1), most)
    assert len(kept) <= most
    assert (np.diff(kept) > 0).all()
    assert kept[0] == 0
    assert kept[-1] == 1999 or most < 2 * fields + 2


@pytest.mark.parametrize("fields", [2, 15, 32])
def test_the_extremes_of_every_column_are_kept(fields: int) -> None:
    source = np.random.default_rng(2)
    columns = source.normal(size=(fields, 10_000))
    spikes = source.choice(10_000, fields, replace=False)
    columns[np.arange(fields), spikes] = 50.0
    kept = thinned(columns, 1000)
    assert set(spikes.tolist()) <= set(kept.tolist())
    assert (columns[:, kept].min(axis=1) == columns.min(axis=1)).all()


def test_columns_that_move_together_leave_room_for_more_stretches_than_columns_that_do_not() -> None:
    source = np.random.default_rng(3)
    one = source.normal(size=10_000)
    together = thinned(np.stack([one * scale for scale in range(1, 16)]), 1000)
    assert len(together) > 900
    assert np.diff(together).max() < 60
