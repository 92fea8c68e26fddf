"""The language of paths: what a path finds, and which paths a pattern stands for."""

import re

import pytest
from offpolicy_monitor.figures import at, is_headline, is_known, walk
from offpolicy_monitor.figures.path import expression

FIGURES = {
    "gaps": {"total": {"k2": 0.5, "quantiles": {"0.001": -1.0, "0.5": 0.0}, "sequence": {"k1": None}}},
    "breakdowns": {"label:engine": {"host.1": {"gaps": {"total": {"k3": 0.25}}}, "host": {"1": {"gaps": {}}}}},
    "routing": {"total": {"by_layer": [0.75, 1.0]}},
    "outliers": {"total": {"dimension": "shard", "ratio": 2.0}},
    "complete": True,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("gaps.total.k2", 0.5),
        ("gaps.total.quantiles.0.001", -1.0),
        ("breakdowns.label:engine.host.1.gaps.total.k3", 0.25),
        ("routing.total.by_layer.1", 1.0),
        ("outliers.total.ratio", 2.0),
        ("gaps.total.sequence.k1", None),
        ("gaps.total", None),
        ("gaps.total.k2.x", None),
        ("routing.total.by_layer.2", None),
        ("outliers.total.dimension", None),
        ("complete", None),
        ("", None),
        (".", None),
    ],
)
def test_a_path_finds_the_number_that_its_keys_lead_to(path: str, value: float | None) -> None:
    assert at(FIGURES, path) == value


def test_figures_that_stand_by_their_paths_are_found_too() -> None:
    assert at({"gaps.total.k2": 0.5}, "gaps.total.k2") == 0.5


def test_a_walk_gives_every_number_by_a_path_that_finds_it() -> None:
    found = dict(walk(FIGURES))
    assert len(found) == 7
    assert {path: at(FIGURES, path) for path in found} == found


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("gaps.mismatch.k3", True),
        ("gaps.drift.k3", False),
        ("gaps.{gap}.k3", False),
        ("gaps.total.quantiles.0.5", True),
        ("gaps.total.quantiles.0x5", False),
        ("gaps.total.quantiles.0.6", False),
        ("methods.anything.masked_tokens", True),
        ("methods.a.b.masked_tokens", False),
        ("correction.length_bias.ratio", True),
        ("breakdowns.label:engine.host.1.gaps.total.k3", True),
        ("breakdowns.position.first.gaps.total.js", False),
        ("routing.total.by_layer.31", True),
        ("routing.total.by_layer.x", False),
        ("versions.sequence_lag.counts.-1", True),
        ("signature.lag.z", True),
        ("policy_version", False),
        ("", False),
    ],
)
def test_a_path_is_known_if_a_step_may_have_a_figure_there(path: str, known: bool) -> None:
    assert is_known(path) == known


def test_a_headline_may_be_that_of_one_gap_alone() -> None:
    assert is_headline("gaps.total.bad_update_fraction")
    assert not is_headline("gaps.mismatch.bad_update_fraction")
    assert is_known("gaps.mismatch.bad_update_fraction")


def test_a_pattern_is_no_regular_expression_but_for_its_names() -> None:
    assert re.fullmatch(expression("a.b"), "axb") is None
    assert re.fullmatch(expression("a.{gap}.b"), "a.total.b") is not None
