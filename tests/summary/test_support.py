"""The gaps on a sampler's support: literals, a float64 loop over tokens with holes, merges, a nucleus undone."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offpolicy_monitor.summary.step import StepSummary, merge_all

from tests.reference import exp, k3, mean
from tests.strategies import LOGPROBS, ODD_VALUES
from tests.summary.columns import Columns, measured

NAMES = ("sampling_logprobs", "old_logprobs", "logprobs", "old_support_logprobs", "support_logprobs")
#: gap -> log-prob and mass of its numerator, the same of its denominator.
NEEDED = {
    "mismatch": ("old_logprobs", "old_support_logprobs", "sampling_logprobs"),
    "staleness": ("logprobs", "support_logprobs", "old_logprobs", "old_support_logprobs"),
    "total": ("logprobs", "support_logprobs", "sampling_logprobs"),
}


def on_support(summary: StepSummary) -> dict[str, Any]:
    found: dict[str, Any] = summary.figures().get("support", {})
    return found


def expected(columns: Columns) -> dict[str, Any]:
    """Every figure by a loop over tokens."""
    found: dict[str, Any] = {}
    for gap, names in NEEDED.items():
        rows = zip(*(columns[name] for name in names), strict=True) if columns.keys() >= set(names) else ()
        tokens = [row for row in rows if all(map(math.isfinite, row))]
        if tokens:
            d = [a - mass - (b - sum(rest)) for a, mass, b, *rest in tokens]
            found[gap] = {
                "tokens": len(d),
                "mass_mean": mean(exp(mass) for _, mass, *_ in tokens),
                "ratio_mean": mean(map(exp, d)),
                "k1": mean(-x for x in d),
                "k3": mean(map(k3, d)),
                "abs_log_ratio_mean": mean(map(abs, d)),
                "outside_tokens": sum(a - mass > 0.01 for a, mass, *_ in tokens),
            }
    return found


def assert_agrees(found: dict[str, Any], columns: Columns) -> None:
    wanted = expected(columns)
    assert found.keys() == wanted.keys()
    for gap, figures in wanted.items():
        assert found[gap] == pytest.approx(figures, rel=1e-9, abs=1e-15), gap


VALUES = st.one_of(LOGPROBS, LOGPROBS, LOGPROBS, LOGPROBS, ODD_VALUES)
NUMBERS = st.integers(1, 8)


@st.composite
def batches(draw: st.DrawFn) -> Columns:
    """A few tokens, some log-probs not finite, some arrays not sent."""
    sent = draw(st.sampled_from([NAMES, NAMES, NAMES[:4], (*NAMES[:3], NAMES[4]), (NAMES[0], *NAMES[2:])]))
    number = draw(NUMBERS)
    return {name: [float(np.float32(draw(VALUES))) for _ in range(number)] for name in sent}


@settings(max_examples=100, deadline=None)
@given(columns=batches())
def test_every_figure_is_that_of_a_loop_over_the_tokens_that_have_log_probs_and_masses(columns: Columns) -> None:
    assert_agrees(on_support(measured(columns, "support")), columns)


def test_a_log_prob_on_the_support_is_less_the_log_of_its_mass() -> None:
    half = math.log(0.5)
    columns = {
        "sampling_logprobs": [half, 0.0],
        "old_logprobs": [2 * half, half],
        "logprobs": [3 * half, half],
        "old_support_logprobs": [half, half],
        "support_logprobs": [half, 2 * half],
    }
    found = on_support(measured(columns))
    # on the support: mu 1/2, 1; pi_old 1/2, 1; pi 1/4, 2 (which no token can have)
    assert (found["mismatch"]["ratio_mean"], found["mismatch"]["mass_mean"]) == pytest.approx((1, 0.5), rel=1e-7)
    assert found["mismatch"]["k3"] == pytest.approx(0, abs=1e-14)
    assert (found["total"]["ratio_mean"], found["total"]["mass_mean"]) == pytest.approx((1.25, 0.375), rel=1e-7)
    assert [found[gap]["outside_tokens"] for gap in NEEDED] == [0, 1, 1]


def test_a_nucleus_is_in_the_ratios_and_not_in_those_on_its_support() -> None:
    source = np.random.default_rng(0)
    mass = np.log(source.uniform(0.8, 1.0, 4000))
    mu = -source.exponential(1.0, 4000)
    old = mu + mass + 0.01 * source.standard_normal(4000)
    sent = {"sampling_logprobs": mu, "old_logprobs": old, "logprobs": old, "old_support_logprobs": mass}
    figures = measured({name: column.tolist() for name, column in sent.items()}).figures()
    assert figures["gaps"]["mismatch"]["ratio_mean"] == pytest.approx(0.9, abs=0.01)
    found = figures["support"]["mismatch"]
    assert (found["ratio_mean"], found["mass_mean"]) == pytest.approx((1.0, 0.9), abs=0.01)
    assert found["k3"] < figures["gaps"]["mismatch"]["k3"] / 50
    assert figures["support"].keys() == {"mismatch"}


def test_shards_merge_to_the_whole_and_other_figures_stay_what_they_are() -> None:
    source = np.random.default_rng(1)
    columns: Columns = {name: (-source.exponential(1.0, 40)).astype(np.float32).tolist() for name in NAMES}
    columns["support_logprobs"][25:] = [math.nan] * 15
    parts = [measured({name: values[span] for name, values in columns.items()}) for span in (slice(9), slice(9, 40))]
    for summaries in (parts, parts[::-1]):
        assert_agrees(on_support(merge_all(summaries)), columns)
    whole, without = (measured({name: columns[name] for name in sent}).figures() for sent in (NAMES, NAMES[:3]))
    del whole["support"]
    assert whole == without
