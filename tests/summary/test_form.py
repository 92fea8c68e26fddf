"""A form gives every answer of its shape: as dicts, and as the JSON of those dicts."""

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offpolicy_monitor.summary.answer import methods_told
from offpolicy_monitor.summary.form import Form, Slot, row, slots_of
from offpolicy_monitor.summary.records import Figures, Floats

from tests.summary.full import FULL, OTHER

VALUES = np.array([3.0, 0.5, np.nan, -0.0, 1e300, np.inf, 7.0])
SHAPE: dict[str, Any] = {
    "count": Slot(0),
    'a "name", of any text: é\n': {"half": Slot(1), "none": Slot(2), "text": "x", "fixed": 0},
    "empty": {},
    "deep": {"deeper": {"infinite": Slot(5), "count": Slot(6)}, "large": Slot(4)},
    "again": Slot(1),
}


def dump(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def numbers(many: int, first: float) -> Floats:
    """So many of them, one after the other."""
    return np.arange(many, dtype=np.float64) + first


def test_slots_are_filled_and_everything_else_stands_for_itself() -> None:
    assert Form(SHAPE, {0, 6}).filled(VALUES) == {
        "count": 3,
        'a "name", of any text: é\n': {"half": 0.5, "none": None, "text": "x", "fixed": 0},
        "empty": {},
        "deep": {"deeper": {"infinite": None, "count": 7}, "large": 1e300},
        "again": 0.5,
    }


@pytest.mark.parametrize("counts", [set(), {0, 6}, {0, 1, 6}])
def test_the_text_is_the_json_of_the_dicts(counts: set[int]) -> None:
    form = Form(SHAPE, counts)
    assert json.loads(form.text(VALUES, dump)) == form.filled(VALUES)
    assert isinstance(form.filled(VALUES)["count"], int if counts else float)


def test_a_form_without_a_slot_is_its_shape() -> None:
    form = Form({"a": {"b": 1}}, ())
    assert form.filled(np.zeros(0)) == {"a": {"b": 1}}
    assert form.text(np.zeros(0), dump) == b'{"a":{"b":1}}'


@given(st.integers(1, 4), st.integers(1, 4))
def test_slots_stand_where_their_row_has_them(first: int, second: int) -> None:
    kinds: list[Figures] = [{"a": numbers(first, 0.5), "b": numbers(first, 100.0)}, {"c": numbers(second, 1e3)}]
    values = row(kinds)
    for figures, records in zip(kinds, slots_of(kinds, {}), strict=True):
        for record, of_record in enumerate(records):
            assert {name: values[slot] for name, slot in of_record.items()} == {
                name: column[record] for name, column in figures.items()
            }


def test_what_needs_a_number_that_a_record_lacks_is_left_out() -> None:
    (records,) = slots_of([{"a": np.zeros(2), "b": np.zeros(2)}], {"b": np.array([1.0, np.nan])})
    assert [list(of_record) for of_record in records] == [["a", "b"], ["a"]]


@pytest.mark.parametrize("summary", [FULL, OTHER, FULL.merge(OTHER)], ids=["one", "another", "both"])
def test_the_text_of_a_shards_figures_is_their_json(summary: Any) -> None:
    assert json.loads(dump(summary.told(dump, orjson.Fragment))) == summary.figures()


def test_shards_of_the_same_rows_share_a_form_whatever_their_numbers_and_labels() -> None:
    one, other = (methods_told(summary.arrays, summary.specs).form for summary in (FULL, OTHER))
    assert FULL.arrays.scheme is not OTHER.arrays.scheme
    assert one is other
    changed = {name: dict(spec or {}) | {"source": "another"} for name, spec in FULL.specs.items()}
    told = methods_told(FULL.arrays, changed)
    assert told.form is not one
    assert {row["source"] for row in told.figures().values()} == {"another"}
