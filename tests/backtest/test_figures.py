"""Columns become figures by our paths or by the names that frameworks have, and it is told how."""

from collections.abc import Mapping

import pytest
from offpolicy_monitor.alerts import RULES, paths_of
from offpolicy_monitor.backtest.errors import BadHistory
from offpolicy_monitor.backtest.figures import Figures, figures_of
from offpolicy_monitor.backtest.tables import Table
from offpolicy_monitor.peers import metrics, rows

WANTED = paths_of(RULES)


def read(**columns: Mapping[int, float]) -> Figures:
    table = Table()
    for name, values in columns.items():
        for step, value in values.items():
            table.steps.add(step)
            table.put(step, name, value, "somewhere")
    return figures_of([table], WANTED)


def test_names_of_one_framework_are_read_whatever_its_logger_puts_before_them() -> None:
    found = read(**{"actor/rollout_corr/k3_kl": {1: 2e-3}, "rollout_corr/chi2_token": {1: 1e-2}, "actor/lr": {1: 1e-6}})
    assert found.columns == {"gaps.mismatch.k3": {1: 2e-3}, "gaps.mismatch.chi2": {1: 1e-2}}
    assert found.other == ["actor/lr"]
    assert found.notes[0].startswith("actor/rollout_corr/k3_kl is gaps.mismatch.k3 as verl defines it (same, but")


def test_a_tag_whose_slashes_a_file_name_could_not_hold_is_known() -> None:
    assert read(rollout_corr_k3_kl={1: 2e-3}).columns == {"gaps.mismatch.k3": {1: 2e-3}}


def test_what_prime_rl_calls_mismatch_is_the_total_gap() -> None:
    assert "gaps.total.k3" in {metric.path for metric in metrics() if metric.name == "mismatch_kl/all/mean"}


def test_k1_stands_in_for_k3_where_only_it_was_published() -> None:
    found = read(**{"gaps.mismatch.k1": {1: 6e-3, 2: -1e-4}})
    assert found.columns == {"gaps.mismatch.k3": {1: 6e-3, 2: 1e-4}}
    assert found.notes[0].startswith("gaps.mismatch.k1 stands in for gaps.mismatch.k3")
    both = read(**{"gaps.mismatch.k1": {1: 6e-3}, "gaps.mismatch.k3": {1: 2e-3}})
    assert both.columns["gaps.mismatch.k3"] == {1: 2e-3}


def test_a_printed_zero_is_below_the_prints_precision_and_a_full_one_is_zero() -> None:
    printed = read(**{"gaps.mismatch.k3": {1: 0.0004, 2: 0.0, 3: 0.0022}})
    assert printed.columns["gaps.mismatch.k3"] == {1: 0.0004, 3: 0.0022}
    assert "1 steps" in printed.notes[0]
    full = {1: 0.000412345678, 2: 0.0, 3: 0.0022}
    assert read(**{"gaps.mismatch.k3": full}).columns["gaps.mismatch.k3"] == full
    assert read(**{"gaps.mismatch.k3": {1: 0.0, 2: 0.0}}).columns["gaps.mismatch.k3"] == {1: 0.0, 2: 0.0}


def test_a_file_without_any_figure_is_refused_and_says_what_it_has() -> None:
    with pytest.raises(BadHistory, match=r"no column is a figure of ours.*: loss, lr"):
        read(loss={1: 1.0}, lr={1: 1e-6})
    assert read(**{"gaps.mismatch.probability_diff_max": {1: 0.5}}).columns == {}


def test_every_framework_names_a_figure_that_rules_look_at() -> None:
    looked_at = {*WANTED, "gaps.mismatch.k1", "gaps.total.k1"}
    named = {metric.peer for metric in metrics() if metric.path in looked_at}
    assert named == {row[0] for row in rows()}
