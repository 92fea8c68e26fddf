"""The families as data: sound names, exact bounds, and a page that lists them."""

from pathlib import Path

import numpy as np
import pytest
from offpolicy_monitor.exposition.document import render_markdown
from offpolicy_monitor.families import ABSOLUTE, BY_NAME, FAMILIES, RUN_GAUGES, SIGNED, Family
from offpolicy_monitor.summary.histogram import EXACT_BOUNDS


def test_docs_metrics_md_is_what_the_families_say() -> None:
    page = Path(__file__).parents[1] / "docs" / "metrics.md"
    assert page.read_text() == render_markdown()


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


def test_bounds_are_1_2_5_and_the_default_thresholds() -> None:
    assert ABSOLUTE[:4] == (1e-6, 2e-6, 5e-6, 1e-5) and ABSOLUTE[-2:] == (5.0, 10.0)
    assert SIGNED[0] == -5.0 and SIGNED[-1] == 5.0 and 0.0 in SIGNED
    assert [round(bound, 4) for bound in SIGNED if 0.15 < bound < 0.3] == [0.1823, 0.2, 0.2469]
