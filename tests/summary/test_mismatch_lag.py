"""The mark of a mismatch with version lag in it: literals, shards against their merge, and where it is absent."""

import math

import numpy as np
import pytest
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.summary.step import StepSummary, merge_all

MEASURER = Measurer("cpu")
GAPS = [0.0, 0.5, -0.25, 0.25]


def k3(*gaps: float) -> float:
    """Mean of exp(d) - 1 - d."""
    return sum(math.exp(d) - 1 - d for d in gaps) / len(gaps)


def measured(versions: list[int] | None, gaps: list[float] = GAPS, old: bool = True) -> StepSummary:
    """One sequence whose log pi_old (or pi) is log mu and these gaps, under `policy_version` 7."""
    mu = np.full(len(gaps), -1.0, np.float32)
    columns = {"sampling_logprobs": mu, "old_logprobs" if old else "logprobs": mu + np.array(gaps, np.float32)}
    if versions is not None:
        columns["policy_versions"] = np.array(versions)
    return MEASURER.measure(RaggedBatch.from_positions(np.array([len(gaps)]), columns, {}), (), Origin(7))


def test_the_mark_tells_how_many_tokens_are_older_and_k3_with_and_without_them() -> None:
    summary = measured([7, 4, 6, 7])
    found = summary.figures()["mismatch_lag"]
    assert (found["tokens"], found["token_fraction"]) == (2, 0.5)
    assert found["k3"] == pytest.approx(k3(0.5, -0.25), rel=1e-6)
    assert found["k3_current"] == pytest.approx(k3(0.0, 0.25), rel=1e-6)
    assert summary.step_figures()["mismatch_lag"] == found


def test_where_all_tokens_are_older_there_is_no_k3_without_lag() -> None:
    found = measured([1, 4, 6, 6]).figures()["mismatch_lag"]
    assert found["token_fraction"] == 1.0 and "k3_current" not in found


@pytest.mark.parametrize(
    ("versions", "old"),
    [([7, 7, 7, 7], True), ([7, 7, -1, 8], True), (None, True), ([4, 4, 4, 4], False)],
    ids=["no lag", "unknown or newer versions", "no versions", "no mismatch"],
)
def test_without_an_older_token_in_the_mismatch_there_is_no_mark(versions: list[int] | None, old: bool) -> None:
    assert "mismatch_lag" not in measured(versions, old=old).figures()


def test_the_mark_of_shards_is_that_of_their_merge() -> None:
    whole = measured([7, 4, 6, 7]).figures()["mismatch_lag"]
    parts = [measured([7, 4], GAPS[:2]), measured([6, 7], GAPS[2:])]
    assert merge_all(parts).figures()["mismatch_lag"] == pytest.approx(whole, rel=1e-9)
