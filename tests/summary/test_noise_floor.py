"""The noise floor: literals, a float64 loop over tokens with holes, merges, and what is absent if it was not sent."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offpolicy_monitor.summary.step import StepSummary, merge_all

from tests.reference import k3, mean
from tests.strategies import LOGPROBS, ODD_VALUES
from tests.summary.columns import Columns, measured

NAMES = ("sampling_logprobs", "old_logprobs", "logprobs", "engine_logprobs", "old_logprobs_repeat")
PARTS = {
    "engine_internal": ("engine_logprobs", "sampling_logprobs"),
    "cross_engine": ("old_logprobs", "engine_logprobs"),
    "trainer": ("old_logprobs_repeat", "old_logprobs"),
}


def floor(summary: StepSummary) -> dict[str, Any]:
    found: dict[str, Any] = summary.figures().get("noise_floor", {})
    return found


def pairs(columns: Columns, *names: str) -> list[tuple[float, ...]]:
    """The log-probs of tokens that have all of these."""
    rows = zip(*(columns[name] for name in names), strict=True)
    return [row for row in rows if all(map(math.isfinite, row))]


def expected(columns: Columns) -> dict[str, Any]:
    """Every figure by a loop over tokens."""
    found: dict[str, Any] = {}
    for part, (above, below) in PARTS.items():
        if {above, below} <= columns.keys() and (both := pairs(columns, above, below)):
            d = [a - b for a, b in both]
            rescored = [a if above in NAMES[3:] else b for a, b in both]
            found[part] = {
                "tokens": len(d),
                "k1": mean(-x for x in d),
                "k3": mean(map(k3, d)),
                "abs_log_ratio_mean": mean(map(abs, d)),
                "second_moment": mean(x * x for x in d),
                "exact_fraction": mean(x == 0 for x in d),
                "positive_tokens": sum(x > 0 for x in rescored),
            }
    return {**found, **of_mismatch(columns, found)}


def of_mismatch(columns: Columns, found: dict[str, Any]) -> dict[str, Any]:
    shares: dict[str, Any] = {}
    if "trainer" in found and "sampling_logprobs" in columns:
        three = pairs(columns, "sampling_logprobs", "old_logprobs", "old_logprobs_repeat")
        whole = math.fsum((old - mu) ** 2 for mu, old, _ in three)
        if whole:
            own = math.fsum((again - old) ** 2 for _, old, again in three)
            shares["trainer"] = {**found["trainer"], "of_mismatch": own / whole}
    if {"engine_internal", "cross_engine"} <= found.keys():
        three = pairs(columns, "sampling_logprobs", "engine_logprobs", "old_logprobs")
        whole = math.fsum((old - mu) ** 2 for mu, _, old in three)
        if whole:
            shares["attribution"] = {
                "engine_internal": math.fsum((engine - mu) ** 2 for mu, engine, _ in three) / whole,
                "cross_engine": math.fsum((old - engine) ** 2 for _, engine, old in three) / whole,
                "interaction": 2 * math.fsum((engine - mu) * (old - engine) for mu, engine, old in three) / whole,
            }
    return shares


def assert_agrees(found: dict[str, Any], columns: Columns) -> None:
    wanted = expected(columns)
    assert found.keys() == wanted.keys()
    for part, figures in wanted.items():
        # The whole of the shares is a sum that loses the digits by which it is smaller than its parts.
        scale = max(map(abs, figures.values())) if part == "attribution" else 0.0
        for name, value in figures.items():
            assert found[part][name] == pytest.approx(value, rel=1e-9, abs=1e-14 * scale**2 + 1e-18), (part, name)


VALUES = st.one_of(LOGPROBS, LOGPROBS, LOGPROBS, LOGPROBS, ODD_VALUES)
NUMBERS = st.integers(1, 8)


@st.composite
def batches(draw: st.DrawFn) -> Columns:
    """A few tokens, some log-probs not finite, some arrays not sent."""
    sent = draw(st.sampled_from([NAMES, NAMES, NAMES[:4], (*NAMES[:3], NAMES[4]), (NAMES[0], NAMES[2], NAMES[3])]))
    number = draw(NUMBERS)
    return {name: [float(np.float32(draw(VALUES))) for _ in range(number)] for name in sent}


@settings(max_examples=150, deadline=None)
@given(columns=batches())
def test_every_figure_is_that_of_a_loop_over_the_tokens_that_have_the_log_probs(columns: Columns) -> None:
    assert_agrees(floor(measured(columns, "noise_floor")), columns)


def test_the_mismatch_is_parted_exactly_into_what_the_engine_does_and_what_is_between_engine_and_trainer() -> None:
    columns = {
        "sampling_logprobs": [-1.0, -2.0, -3.0],
        "engine_logprobs": [-1.5, -2.0, -2.5],
        "old_logprobs": [-1.0, -2.0, -1.5],
        "logprobs": [-1.0, -2.0, -3.0],
    }
    found = floor(measured(columns))
    # i = -0.5, 0, 0.5; c = 0.5, 0, 1; m = 0, 0, 1.5
    shares = {"engine_internal": 0.5 / 2.25, "cross_engine": 1.25 / 2.25, "interaction": 0.5 / 2.25}
    assert found["attribution"] == shares
    assert sum(found["attribution"].values()) == 1
    assert found["engine_internal"]["second_moment"] == pytest.approx(0.5 / 3)
    assert (found["cross_engine"]["k1"], found["cross_engine"]["exact_fraction"]) == (-0.5, pytest.approx(1 / 3))
    assert "trainer" not in found


def test_the_trainers_own_part_is_set_beside_the_mismatch_of_the_tokens_that_were_repeated() -> None:
    columns = {
        "sampling_logprobs": [-1.0, -1.0, -1.0, math.nan],
        "old_logprobs": [-1.5, -1.5, -9.0, -2.0],
        "old_logprobs_repeat": [-1.25, -1.75, math.nan, -2.5],
        "logprobs": [-1.0, -1.0, -1.0, -2.0],
    }
    found = floor(measured(columns))
    assert found.keys() == {"trainer"}
    assert (found["trainer"]["tokens"], found["trainer"]["second_moment"]) == (3, (0.0625 + 0.0625 + 0.25) / 3)
    assert found["trainer"]["of_mismatch"] == 0.125 / 0.5


def test_shards_of_which_some_were_rescored_merge_to_the_whole() -> None:
    source = np.random.default_rng(1)
    columns: Columns = {name: (-source.exponential(1.0, 40)).astype(np.float32).tolist() for name in NAMES}
    columns["engine_logprobs"][25:] = [math.nan] * 15
    parts = []
    for span in (slice(0, 10), slice(10, 25), slice(25, 40)):
        of_part = {name: values[span] for name, values in columns.items()}
        if span.start == 25:
            del of_part["engine_logprobs"]
        parts.append(measured(of_part))
    for summaries in (parts, parts[::-1]):
        assert_agrees(floor(merge_all(summaries)), columns)


def test_rescored_log_probs_change_no_other_figure_and_exclude_no_token() -> None:
    source = np.random.default_rng(2)
    columns: Columns = {name: (-source.exponential(1.0, 40)).astype(np.float32).tolist() for name in NAMES}
    columns["engine_logprobs"][:30] = [math.nan] * 30
    columns["old_logprobs_repeat"][5] = 0.5
    with_floor, without = (measured({name: columns[name] for name in sent}).figures() for sent in (NAMES, NAMES[:3]))
    assert with_floor.pop("noise_floor")["trainer"]["positive_tokens"] == 1
    assert with_floor == without and "noise_floor" not in without


def test_nothing_is_said_of_tokens_that_were_not_rescored() -> None:
    columns: Columns = {name: [-1.0, -2.0] for name in NAMES}
    columns["engine_logprobs"] = columns["old_logprobs_repeat"] = [math.nan, math.nan]
    assert floor(measured(columns)) == {}
    same = floor(measured({name: [-1.0, -2.0] for name in NAMES}))
    assert "attribution" not in same and "of_mismatch" not in same["trainer"]
    assert same["engine_internal"]["exact_fraction"] == 1
