"""Samples are read from a run's row by path; what is absent or not finite gives none."""

import math

from offpolicy_monitor.exposition.rows import all_samples, samples
from offpolicy_monitor.families import BY_NAME, RUN_GAUGES

ROW = {
    "gaps": {
        "mismatch": {
            "k1": 0.5,
            "k3": None,
            "ess": 0.9,
            "sequence": {"ess": 0.8, "perplexity_numerator": 3.0, "quantiles": {"0.5": 0.0, "0.9": 1.0}},
        },
        "staleness": {"k1": math.nan, "k2": math.inf, "sequence": {"perplexity_denominator": 4.0}},
    },
    "methods": {"opsm": {"masked_token_fraction": 0.25, "masked_sequence_fraction": 0.5}},
}


def test_a_path_gives_each_key_its_braces_stand_for() -> None:
    found = samples(BY_NAME["masked_ratio"], ROW)
    assert found == {("opsm", "token"): 0.25, ("opsm", "sequence"): 0.5}


def test_absent_null_and_non_finite_figures_give_no_sample() -> None:
    found = samples(BY_NAME["kl_nats"], ROW)
    assert found == {("mismatch", "k1"): 0.5}


def test_a_constant_label_tells_two_places_apart() -> None:
    found = samples(BY_NAME["effective_sample_size_ratio"], ROW)
    assert {labels[1]: value for labels, value in found.items()} == {"token": 0.9, "sequence": 0.8}


def test_of_two_places_for_the_same_labels_the_first_with_a_figure_counts() -> None:
    found = samples(BY_NAME["perplexity"], ROW)
    assert {labels[0]: value for labels, value in found.items()} == {"old": 3.0}


def test_quantiles_of_log_ratios_are_shown_as_ratios() -> None:
    found = samples(BY_NAME["geometric_ratio_quantile"], ROW)
    assert {labels[1]: value for labels, value in found.items()} == {"0.5": 1.0, "0.9": math.e}


def test_a_conversion_that_overflows_gives_no_sample() -> None:
    row = {"gaps": {"total": {"sequence": {"quantiles": {"0.5": 1e6}}}}}
    assert samples(BY_NAME["geometric_ratio_quantile"], row) == {}


def test_an_empty_row_gives_nothing() -> None:
    assert samples(BY_NAME["kl_nats"], {}) == {}


def test_a_family_read_with_all_others_has_the_samples_it_has_alone() -> None:
    found = all_samples(ROW)
    assert found == {family.name: samples(family, ROW) for family in RUN_GAUGES}
    assert sum(map(len, found.values())) == 8
