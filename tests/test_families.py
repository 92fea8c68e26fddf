"""The families as data: sound names, exact bounds, and a page that lists them."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from offpolicy_monitor.families import ABSOLUTE, BY_NAME, FAMILIES, RUN_GAUGES, RUN_HISTOGRAMS, SIGNED, Family
from offpolicy_monitor.summary.histogram import EXACT_BOUNDS


def test_no_two_families_share_a_name() -> None:
    assert len(BY_NAME) == len(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_says_what_it_means_in_a_sentence_and_names_counters_as_totals(family: Family) -> None:
    assert family.help[0].isupper() and family.help.endswith(".")
    assert family.name.endswith("_total") == (family.type == "counter")
    assert not {"step", "shard", "sequence", "minibatch"} & set(family.labels)


@pytest.mark.parametrize("family", RUN_GAUGES, ids=lambda family: family.name)
def test_each_source_gives_every_label_of_its_family(family: Family) -> None:
    for source in family.sources:
        parts = [part[1:-1].partition(":")[0] for part in source.path.split(".") if part.startswith("{")]
        assert {"run", *source.labels, *parts} == set(family.labels)


def test_histogram_bounds_ascend_and_are_exact_in_what_is_stored() -> None:
    for bounds in (SIGNED, ABSOLUTE):
        assert list(bounds) == sorted(set(bounds))
        assert set(np.array(bounds, np.float32)) <= set(np.array(EXACT_BOUNDS, np.float32))


@pytest.mark.parametrize("family", RUN_HISTOGRAMS, ids=lambda family: family.name)
def test_the_bounds_that_are_shown_unless_all_are_asked_for_are_among_all(family: Family) -> None:
    assert list(family.bounds) == sorted(set(family.bounds))
    assert set(family.bounds) < set(family.all_bounds)


def test_the_bounds_that_are_shown_are_the_default_thresholds_and_what_rules_and_dashboards_ask_for() -> None:
    shown = [family.bounds for family in RUN_HISTOGRAMS]
    assert [round(math.exp(bound), 12) for bound in shown[0]] == [0.5, 0.8, 1, 1.2, 1.28, 2, 5]
    assert shown[1:] == [(-0.01, 0.0, 0.01), (0.01, 0.1, 1.0)]
    asked = set(re.findall(r"_nats_bucket\{[^}]*le=~?[\"']([^\"']+)", files_text()))
    names = {name for text in asked for name in text.split("|")}
    assert names == {"0.01", "0.1", "1.0", repr(math.log(2)), repr(-math.log(2)), "+Inf"}
    assert names <= {"+Inf", *(repr(bound) for bounds in shown for bound in bounds)}


def files_text() -> str:
    """Every rule file and every expression of the dashboards."""
    folder = Path(__file__).parents[1] / "dashboards"
    rules = [path.read_text() for path in sorted(folder.glob("prometheus/*.rules.yaml"))]
    boards = [json.loads(path.read_text()) for path in sorted(folder.glob("grafana/*.json"))]
    targets = [target["expr"] for board in boards for panel in board["panels"] for target in panel.get("targets", [])]
    return "\n".join([*rules, *targets])


def test_bounds_are_1_2_5_and_the_default_thresholds() -> None:
    assert ABSOLUTE[:4] == (1e-6, 2e-6, 5e-6, 1e-5) and ABSOLUTE[-2:] == (5.0, 10.0)
    assert SIGNED[0] == -5.0 and SIGNED[-1] == 5.0 and 0.0 in SIGNED
    assert [round(bound, 4) for bound in SIGNED if 0.15 < bound < 0.3] == [0.1823, 0.2, 0.2469]
