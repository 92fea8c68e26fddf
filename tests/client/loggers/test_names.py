"""One table of peers' names, used both ways: what is logged under a name is read back from it as the same figure."""

import pytest
from offpolicy_monitor import peers
from offpolicy_monitor.backtest.figures import figures_of
from offpolicy_monitor.backtest.tables import Table
from offpolicy_monitor.client.loggers import names
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.server.routes.runs import MOST_FIELDS

FRAMEWORKS = sorted({metric.peer for metric in peers.metrics()})


def test_a_figure_is_called_by_its_path_where_no_framework_was_named() -> None:
    row = {"step": 3, "shards": 2, "complete": True, "verdict": "warn", "tokens": 5, "gaps": {"total": {"k3": 0.5}}}
    assert names.named(names.flat(row), "warn", names.of_framework(None)) == {
        "offpolicy/tokens": 5,
        "offpolicy/gaps.total.k3": 0.5,
        "offpolicy/verdict": 1.0,
    }


def test_lists_texts_flags_and_what_is_absent_are_no_figures_of_a_logger() -> None:
    routing = {"total": {"agreement": 0.75, "by_layer": [0.5, 1.0]}}
    row = {"complete": True, "verdict": "warn", "attribution": None, "alerts": [], "routing": routing}
    assert names.flat(row) == {"routing.total.agreement": 0.75}


def test_a_framework_has_several_names_for_a_figure_and_the_sign_of_each() -> None:
    figures = {"gaps.mismatch.k1": 0.25, "gaps.mismatch.log_ratio_min": -3.0, "gaps.total.k1": 1.0}
    assert names.named(figures, None, names.of_framework("verl")) == {
        "rollout_corr/kl": 0.25,
        "rollout_corr/rollout_rs_token_k1_mean": 0.25,
        "rollout_corr/rollout_rs_token_k1_max": 3.0,
        "offpolicy/gaps.total.k1": 1.0,
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_logged_under_a_frameworks_names_is_read_back_as_the_same_figures(framework: str) -> None:
    known = names.of_framework(framework.upper())
    figures = {path: float(number) for number, path in enumerate(known, start=1)} | {"gaps.total.chi2": 0.5}
    table = Table()
    table.steps.add(4)
    for name, value in names.named(figures, "accept", known).items():
        table.put(4, name, value, "exported")
    assert figures_of([table], figures).at(4) == figures


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_a_trainer_logs_of_its_own_loss_and_its_data_keeps_its_own_values(framework: str) -> None:
    gaps = {row.name: row.gap for row in PRESETS}
    for path in names.of_framework(framework):
        kind, name, *_ = path.split(".")
        assert kind in ("gaps", "methods") and gaps.get(name, name) != "staleness"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_names_of_a_framework_fit_one_question(framework: str) -> None:
    assert len(names.of_framework(framework)) <= MOST_FIELDS


def test_names_that_mean_something_else_or_stand_for_others_are_not_used() -> None:
    of_all = {name for framework in FRAMEWORKS for of in names.of_framework(framework).values() for name, _ in of}
    assert not [name for name in of_all if "OPTION" in name or "AGG" in name or name == "train/opsm_clipfrac"]
    assert {"rollout_corr/k3_kl", "mismatch_kl/all/mean", "train/mis_k3_kl"} <= of_all
