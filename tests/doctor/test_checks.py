"""Each check finds what it is for, and a run that is posted as it should be has none."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from offpolicy_monitor.diagnosis.hypotheses import HYPOTHESES
from offpolicy_monitor.doctor import CHECKS, Arrival, Posted, look
from offpolicy_monitor.doctor.checks import OF_POSTING

GAP = {"tokens": 400, "k3": 1e-3, "abs_log_ratio_max": 0.5, "exact_fraction": 0.01, "advantage_second_moment": 1.0}
OTHER = GAP | {"k3": 2e-3}
GAPS = {"mismatch": GAP, "staleness": GAP, "total": GAP}
FIGURES: Mapping[str, Any] = {
    "gaps": GAPS,
    "policy_lag": {"mean": 0.5, "max": 1},
    "breakdowns": {"shard": {"0": {"gaps": {"mismatch": GAP}}, "1": {"gaps": {"mismatch": OTHER}}}},
    "outliers": {"mismatch": {"ratio": 2.0, "dimension": "shard", "bucket": "1", "k3": 2e-3}},
}


def arrivals(
    steps: Sequence[int] = range(8), minibatches: int = 1, received: int = 2, shards: int = 2, version: int | None = 1
) -> list[Arrival]:
    """Gradient steps of some steps; versions go on by `version`, None: there is none."""
    return [
        Arrival(step, minibatch, shards, received, None if version is None else index * version)
        for index, step in enumerate(steps)
        for minibatch in range(minibatches)
    ]


def figures(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**FIGURES, **changes}.items() if value is not None}


def gaps(*names: str, **changes: float) -> dict[str, Any]:
    return {name: {**GAP, **changes} for name in names}


def names(came: Sequence[Arrival] | None = None, bitwise: bool = False, **changes: Any) -> list[str]:
    """What is found."""
    posted = Posted(arrivals() if came is None else came, figures(**changes), {}, bitwise)
    return [row["name"] for row in look(posted)]


@pytest.mark.parametrize(
    "came",
    [
        arrivals(),
        arrivals(minibatches=4),
        arrivals(range(0, 32, 4), minibatches=4),  # a step is the optimizer step that its rollout began at
        arrivals()[:-1] + arrivals(range(7, 8), received=1),  # the newest step is under way
        arrivals((0, 1, 2, 3, 10, 11, 12, 13)),  # a gap, once
        arrivals(range(3), received=1),  # too few to say
    ],
)
def test_a_run_that_is_posted_as_it_should_be_has_no_findings(came: list[Arrival]) -> None:
    assert names(came) == []


@pytest.mark.parametrize(
    ("name", "came"),
    [
        ("one_shard_of_many", arrivals(received=1, shards=8)),
        ("incomplete_steps", arrivals(received=3, shards=8)),
        ("jumping_steps", arrivals(range(0, 32, 4))),
        ("jumping_steps", arrivals((0, 7, 9, 20, 26, 40, 47))),
        ("no_policy_version", arrivals(version=None)),
        ("versions_of_steps", arrivals(version=4)),
    ],
)
def test_how_steps_arrive_tells_what_is_wrong(name: str, came: list[Arrival]) -> None:
    assert names(came) == [name]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("no_old_logprobs", {"gaps": gaps("total")}),
        ("no_sampling_logprobs", {"gaps": gaps("staleness")}),
        ("no_logprobs", {"gaps": gaps("mismatch")}),
        ("old_is_sampling", {"gaps": GAPS | gaps("mismatch", exact_fraction=1)}),
        ("no_advantages", {"gaps": {name: {"tokens": 400} for name in GAPS}}),
        ("no_policy_versions", {"policy_lag": None}),
        ("shard_apart", {"outliers": {"mismatch": {"ratio": 40.0, "dimension": "shard", "bucket": "3"}}}),
        ("lagged_mismatch", {"mismatch_lag": {"tokens": 300, "token_fraction": 0.7, "k3": 3e-3, "k3_current": 2e-4}}),
        (
            "same_tokens",
            {"breakdowns": {"shard": {"0": {"gaps": {"mismatch": GAP}}, "1": {"gaps": {"mismatch": GAP}}}}},
        ),
    ],
)
def test_figures_tell_what_is_wrong(name: str, changes: dict[str, Any]) -> None:
    assert names(**changes) == [name]


def test_a_policy_that_has_not_moved_after_several_gradient_steps_is_a_copy_and_after_one_is_none() -> None:
    copied = GAPS | gaps("staleness", exact_fraction=1)
    assert names(arrivals(minibatches=2), gaps=copied) == ["old_is_current"]
    assert names(gaps=copied) == []


@pytest.mark.parametrize("changes", [{"tokens": 20}, {"k3_current": 2e-3}, {"k3_current": None}])
def test_older_weights_that_make_no_difference_that_can_be_told_are_no_finding(changes: dict[str, Any]) -> None:
    lag = {"tokens": 300, "token_fraction": 0.7, "k3": 3e-3, "k3_current": 2e-4} | changes
    assert names(mismatch_lag={name: value for name, value in lag.items() if value is not None}) == []


def test_an_engine_that_is_meant_to_agree_to_the_bit_has_copied_nothing() -> None:
    assert names(bitwise=True, gaps=GAPS | gaps("mismatch", exact_fraction=1)) == []


def test_a_label_that_is_apart_is_no_fault_of_posting_and_two_shards_without_any_mismatch_are_not_the_same() -> None:
    apart = {"mismatch": {"ratio": 40.0, "dimension": "label:engine", "bucket": "a"}}
    none = {"gaps": {"mismatch": GAP | {"k3": 0.0}}}
    assert names(outliers=apart, breakdowns={"shard": {"0": none, "1": none}}) == []


def test_a_run_without_a_step_that_counts_is_judged_by_its_arrivals_alone() -> None:
    assert look(Posted([], {}, {})) == []
    assert [row["name"] for row in look(Posted(arrivals(received=1), {}, {}))] == ["one_shard_of_many"]


def test_causes_of_how_log_probs_are_taken_are_findings_and_no_others_are() -> None:
    told = {name: ("two different temperatures", "Logits differ.", "Divide.") for name in ("temperature", "routing")}
    assert look(Posted(arrivals(), figures(), told)) == [
        {
            "name": "temperature",
            "severity": "warning",
            "title": "Two different temperatures",
            "summary": "Logits differ.",
            "change": "Divide.",
        }
    ]
    assert set(OF_POSTING) <= {row.name for row in HYPOTHESES}


def test_warnings_come_first_and_each_check_has_a_name_of_its_own_and_a_line_to_change() -> None:
    found = look(Posted(arrivals(version=None, received=1), figures(gaps=gaps("total")), {}))
    assert [row["name"] for row in found] == ["one_shard_of_many", "no_old_logprobs", "no_policy_version"]
    assert len({check.name for check in CHECKS}) == len(CHECKS) and all(check.change for check in CHECKS)
