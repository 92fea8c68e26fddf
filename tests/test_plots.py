"""Plots of how costs grow: points where their powers of ten are, axes that say what they count, every curve drawn."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from scripts.docs.memory import Axis as StraightAxis
from scripts.docs.memory import drawn_of
from scripts.docs.plots import PLOTS, SECONDS, SIZES, Axis, Plot, curves_of, drawn, said

PLOT = Plot("one.svg", "Title <1>", "tokens", {"a": "first", "b": "second"})
ROWS = [
    {"what": what, "at": size, "value": value}
    for what, values in {"a": (1.0, 10.0), "b": (20.0, 30.0), "other": (5.0, 5.0)}.items()
    for size, value in zip((10, 1000), values, strict=True)
]


def test_an_axis_goes_from_power_to_power_around_its_values() -> None:
    axis = Axis.over([20, 3000], 100.0, 400.0)
    assert list(axis.ticks) == [10.0, 100.0, 1000.0, 10000.0]
    assert [axis.at(value) for value in (10, 100, 316.2278, 10_000)] == [100.0, 200.0, 250.0, 400.0]
    assert list(Axis.over([5.0], 0.0, 1.0).ticks) == [1.0, 10.0]


@pytest.mark.parametrize(
    ("value", "units", "text"),
    [(1e7, SIZES, "10 M"), (1e3, SIZES, "1 k"), (10, SIZES, "10"), (1e-4, SECONDS, "100 µs"), (1e-3, SECONDS, "1 ms")],
)
def test_a_tick_is_said_in_the_largest_unit_that_it_has_one_of(value: float, units: object, text: str) -> None:
    assert said(value, units) == text  # pyrefly: ignore[bad-argument-type]


def test_a_curve_is_the_rows_of_what_it_is_called_in_seconds() -> None:
    assert curves_of(PLOT, ROWS) == {"first": {10: 1e-3, 1000: 1e-2}, "second": {10: 2e-2, 1000: 3e-2}}


def test_a_picture_says_what_it_shows_and_draws_every_point() -> None:
    picture = drawn(PLOT, curves_of(PLOT, ROWS))
    texts = [element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("text")]
    assert {"Title <1>", "tokens", "time", "first", "second", "100", "1 k", "1 ms", "100 ms"} <= set(texts)
    assert picture.count("<circle") == 4
    # Half a power of ten is half the way: 10 ms stands in the middle of 1 and 100 ms.
    down = [float(found) for found in re.findall(r'cx="696\.0" cy="([\d.]+)"', picture)]
    assert down[0] == (56 + 420 - 64) / 2 > down[1]


def test_every_curve_of_a_plot_has_a_name_or_is_alone() -> None:
    assert all(len(plot.curves) == 1 or all(plot.curves.values()) for plot in PLOTS)


def test_memory_is_drawn_over_time_with_a_line_for_each_database() -> None:
    watched = {"scenario": "soak with random faults", "memory": [[0.0, 200.0], [30.0, 450.0], [60.0, 400.0]]}
    outcomes = [watched | {"database": "sqlite"}, watched | {"database": "postgres", "memory": [[0.0, 10.0]]}]
    [(file, picture)] = drawn_of([*outcomes, {"scenario": "power cut", "memory": [[0, 1]]}]).items()
    assert file.name == "memory-soak.svg"
    texts = [element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("text")]
    assert {"seconds", "MiB resident", "SQLite", "PostgreSQL", "0", "60", "500"} <= set(texts)
    # 450 of 500 MiB is nine tenths of the way up, half a minute of a whole one half of the way across.
    assert f"L{(84 + 696) / 2} {356 - 0.9 * 300}" in picture


def test_ticks_of_a_straight_axis_are_round_and_reach_over_what_is_shown() -> None:
    assert StraightAxis.over(450.0, 0.0, 100.0).ticks == [0, 100, 200, 300, 400, 500]
    assert StraightAxis.over(2400.0, 0.0, 100.0).last == 2500
