"""Breaches found by searching bytes are those that a walk from step to step finds."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offpolicy_monitor.alerts.breaches import breach, breaches
from offpolicy_monitor.alerts.history import History
from offpolicy_monitor.alerts.rule import Limit, Rule, Terms

FIGURE, GRAVE = "figure", "grave"
RULE = Rule(
    "Any", "", (FIGURE,), lambda history, terms, index: history.value(FIGURE, index), "", {"warning": 0.5},
    {"warning": 1}, "", grave=lambda history, terms, index: history.value(GRAVE, index),
)  # fmt: skip
#: One that breaches, one that does not, and a step without the figure.
VALUES = st.lists(st.sampled_from([1.0, 1.0, 1.0, 0.0, math.nan]), min_size=1, max_size=40)
LIMITS = st.builds(Limit, st.sampled_from(["warning", "critical"]), st.just(0.5), st.integers(1, 12), st.booleans())


def walked(is_breach: Sequence[bool | None], limit: Limit, index: int) -> tuple[int, int]:
    """Back from a step: how many breach and the first that does; None is a step without a value."""
    if is_breach[index] is None:
        return 0, index
    known = [number for number in range(index, -1, -1) if is_breach[number] is not None]
    better, found = list[int](), list[int]()
    for seen, number in enumerate(known):
        if is_breach[number]:
            found.append(number)
            continue
        better.append(seen)
        lately = [earlier for earlier in better if seen - earlier < limit.within]
        if len(lately) > limit.spare:
            break
    return len(found), (found or [index])[-1]


@given(VALUES, LIMITS, st.data(), st.booleans())
def test_a_breach_is_what_a_walk_finds(values: list[float], limit: Limit, data: st.DataObject, above: bool) -> None:
    number = len(values)
    graves = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=number, max_size=number))
    index, most = data.draw(st.integers(0, number - 1)), data.draw(st.none() | st.integers(1, 12))
    rule = replace(RULE, above=above)
    history, terms = History(range(number), {FIGURE: values, GRAVE: graves}), Terms()

    needs_grave = limit.severity == "critical" and not limit.own
    beyond = [None if math.isnan(value) else rule.beyond(value, 0.5) for value in values]
    expected = [
        None if one is None else one and not (needs_grave and not grave)
        for one, grave in zip(beyond, graves, strict=True)
    ]
    count, first = walked(expected, limit, index)

    for asked in (None, most, None):  # whatever was asked before
        found = breach(rule, limit, history, terms, index, asked)
        assert found[0] == (count if asked is None else min(count, asked))
        assert asked is not None or found == (count, first)
    assert breaches(rule, limit, history, terms, index) == bool(expected[index])


@pytest.mark.parametrize("most", [1, 5])
def test_of_a_long_breach_no_more_steps_are_measured_than_are_asked_for(most: int) -> None:
    measured = list[int]()
    rule = replace(RULE, compared=lambda history, terms, index: measured.append(index) or 1.0)
    assert breach(rule, Limit("warning", 0.5, 5), History(range(100), {}), Terms(), 99, most)[0] == most
    assert sorted(measured) == [*range(100 - most, 100)]
