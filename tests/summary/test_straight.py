"""Straight code comes to the bits that formulas over arrays come to, and what cannot be written down is refused."""

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offpolicy_monitor.summary.gap import bounded_exp
from offpolicy_monitor.summary.straight import ABSENT, NO_NUMBER, NOT_STRAIGHT, Code, Written, texts_of

Formula = Callable[[Any, Any, Any], Any]
#: Formulas over three arrays.
FORMULAS: dict[str, Formula] = {
    "arithmetic": lambda x, y, z: 1 + x * y - z / -2.0,
    "a root": lambda x, y, z: np.sqrt(abs(x)) * z,
    "extremes": lambda x, y, z: np.maximum(np.minimum(x, y), z),
    "a choice": lambda x, y, z: np.where((x > y) & (y < z), x - y, z),
    "what is not there": lambda x, y, z: np.where(np.isnan(z / x), y, z / x),
    "an exponential": lambda x, y, z: bounded_exp(x),
    "side by side": lambda x, y, z: np.concatenate([x, y])[1:3] / z.reshape(1, 2),
}
#: What straight code does not do.
OTHERS: dict[str, Formula] = {
    "a branch": lambda x, y, z: x if x > y else y,
    "a sum": lambda x, y, z: np.sum(x),
    "a sum of its own": lambda x, y, z: x.sum(),
    "an array of numbers": lambda x, y, z: x * np.array([1.0, 2.0]),
    "another function of numpy": lambda x, y, z: np.arctan2(x, y),
    "a reduction": lambda x, y, z: np.add.reduce(x),
    "a function of one number": lambda x, y, z: math.sqrt(x),
}


def written(formula: Formula) -> tuple[Code, list[str]]:
    code = Code()
    arrays = (Written(code, np.array([f"n{2 * number}", f"n{2 * number + 1}"], object)) for number in range(3))
    return code, texts_of(formula(*arrays)).ravel().tolist()


def bits(numbers: list[float]) -> bytes:
    return struct.pack(f"{len(numbers)}d", *(math.nan if number != number else number for number in numbers))


@pytest.mark.parametrize("name", FORMULAS)
@given(numbers=st.lists(st.floats() | st.sampled_from((0.0, -0.0, 1.0)), min_size=6, max_size=6))
def test_it_comes_to_the_bits_that_arrays_come_to_or_to_no_number(name: str, numbers: list[float]) -> None:
    code, results = written(FORMULAS[name])
    straight, taken = code.function(results, [])
    with np.errstate(all="ignore"):
        expected = np.asarray(FORMULAS[name](*np.array(numbers).reshape(3, 2))).ravel().tolist()
    try:
        found = straight([numbers[number] for number in taken])
    except NO_NUMBER:
        assert not np.isfinite(expected).all() or name == "what is not there"
    else:
        assert bits(found) == bits(expected)


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_written_down_is_refused(name: str) -> None:
    with pytest.raises(NOT_STRAIGHT):
        written(OTHERS[name])


def test_only_what_results_take_is_read_and_computed() -> None:
    code = Code()
    [first, _] = texts_of(Written(code, np.array(["n4", "n1"], object)) / 2).tolist()
    straight, taken = code.function([first], [])
    assert (taken, straight([3.0])) == ([4], [1.5])


def test_numbers_that_must_be_positive_are_looked_at() -> None:
    straight, taken = Code().function(["n0", "int(n2)"], ["n1"])
    assert (taken, straight([1.5, 1.0, 2.0])) == ([0, 1, 2], [1.5, 2])
    for number in (0.0, math.nan):
        with pytest.raises(NO_NUMBER):
            straight([1.5, number, 2.0])


def test_a_number_that_is_never_there_makes_all_that_takes_it_absent() -> None:
    code = Code()
    absent = Written(code, np.array([ABSENT, "n0"], object))
    straight, taken = code.function(texts_of(absent / 2).tolist(), [])
    found = straight([3.0])
    assert (taken, math.isnan(found[0]), found[1]) == ([0], True, 1.5)
