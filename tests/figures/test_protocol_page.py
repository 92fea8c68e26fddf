"""docs/protocol.md names every figure of the catalogue, each in the section of its kind, and no other there."""

import re
from pathlib import Path
from typing import Final

import pytest
from offpolicy_monitor.figures import FIGURES, Figure, is_known
from offpolicy_monitor.store.rows.step_columns import READERS

PAGE: Final = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
#: Arrays of log-probs, by which several sections say what they are of.
SENT: Final = {"sampling_logprobs", "old_logprobs"}
OF_A_BATCH: Final = "Fields of a batch"
#: By section the fields of a step that it is of, and what it names beside figures. What no other is of, is of a batch.
SECTIONS: Final[dict[str, tuple[set[str], set[str]]]] = {
    OF_A_BATCH: (set(), {"entropy", "rewards", "policy_version", "policy_versions"}),
    "Fields of a gap": ({"gaps"}, {"d", "log_geometric_ratio"}),
    "Fields of routing": ({"routing"}, {"routing"}),
    "Fields of the noise floor": (
        {"noise_floor"},
        {"d", "noise_floor", "excluded_tokens", "suspect_tokens", "engine_logprobs", "old_logprobs_repeat", *SENT},
    ),
    "Fields of the support": (
        {"support"},
        {
            *("d", "support", "mismatch", "total", "staleness", "gaps", "methods"),
            *("old_support_logprobs", "support_logprobs", *SENT),
        },
    ),
    "Fields of the mismatch's lag": (
        {"mismatch_lag"},
        {
            *("mismatch_lag", "lagged_mismatch", "pi_old", "policy_version"),
            *("versions", "staleness_curve", "mismatch", "intercept"),
        },
    ),
    "Fields of a method": ({"methods", "correction"}, {"method", "gap", "level", "unit", "correction"}),
    "Fields of breakdowns": (
        {"breakdowns"},
        {
            *("breakdowns", "outliers", "versions", "signature"),
            *("mu_probability", "position", "length", "lag", "advantage_sign", "turn", "shard", "first", "last"),
        },
    ),
    "Fields of outliers": ({"outliers"}, {"outliers", "dimension", "bucket"}),
    "Fields of versions": ({"versions"}, {"versions", "policy_versions", "policy_version", "total", "mismatch"}),
    "Fields of the signature": ({"signature"}, {"signature", "column", "sampling", "old", "name", "advantages"}),
    "Fields of the calibration": ({"calibration"}, {"calibration", "sampling_logprobs"}),
}


def named_in(section: str) -> set[str]:
    """The keys that a section of the page has between backticks."""
    text = PAGE.split(f"### {section}\n")[1].split("\n## ")[0].split("\n### ")[0]
    return {key for name in re.findall(r"`([a-z][a-z0-9_.]*)`", text) for key in name.split(".")}


def section_of(figure: Figure) -> str:
    """The section that a figure is named in."""
    first = figure.path.partition(".")[0]
    return next((section for section, (fields, _) in SECTIONS.items() if first in fields), OF_A_BATCH)


def keys_of(section: str) -> set[str]:
    """The fixed keys of its figures, without the field that all of them are below."""
    paths = [figure.path.split(".") for figure in FIGURES if section_of(figure) == section]
    keys = {key for path in paths for key in (path if section == OF_A_BATCH else path[1:])}
    return {key for key in keys if not key.startswith("{")}


@pytest.mark.parametrize("section", SECTIONS)
def test_protocol_page_names_every_figure_in_its_section_and_no_other(section: str) -> None:
    assert named_in(section) - SECTIONS[section][1] == keys_of(section)


def test_every_section_of_fields_is_compared() -> None:
    assert re.findall(r"^### (Fields of .*)$", PAGE, re.M) == list(SECTIONS)


def test_every_field_that_the_page_asks_for_can_be_plotted() -> None:
    asked = set(re.findall(r'\bfield(?:=|": ")([a-z][\w.]*)', PAGE))
    assert {"gaps.mismatch.k3", "correction.masked_token_fraction", "verdict"} <= asked
    assert [path for path in sorted(asked) if not is_known(path) and path not in READERS] == []
