"""SyncBroken names weights where a rise of the mismatch is of them, not wherever one begins, and stays to its end."""

from collections.abc import Sequence

import pytest
from offpolicy_monitor.alerts import RULES, History, Terms, evaluate, paths_of
from offpolicy_monitor.store.rows.histories import FIRST, NEWEST, RunHistory

from tests.alerts.test_rules import BY_NAME, HEALTHY, state

K3, SPREAD = "gaps.mismatch.k3", "gaps.mismatch.abs_log_ratio_mean"
Row = dict[str, float]


def run(times: Sequence[float], learned: bool = False, **figures: Sequence[float]) -> list[Row]:
    """A run by k3 over its usual one, step by step, with a new version at every step; or one that has learned what its
    engine has not."""
    rows = []
    for step, factor in enumerate(times):
        of_step = {K3: 2e-4 * factor, SPREAD: 0.01 * factor**0.5, "policy_version": float(step)}
        rows.append(
            HEALTHY | of_step | (LEARNED if learned else {}) | {path: values[step] for path, values in figures.items()}
        )
    return rows


BEFORE = [1.0] * 12
#: Rewarded answers that are likelier to the trainer than to the engine.
LEARNED = {"signature.learned.difference": 0.25, "signature.learned.z": 3.0}
GROWING = [4.0 + 2 * step for step in range(20)]
JUMPED = [4.0] * 20


def test_a_rise_that_grows_with_what_the_trainer_learns_is_of_weights_and_says_so() -> None:
    rows = run(BEFORE + GROWING, learned=True)
    assert state("SyncBroken", rows[:17]).state == "quiet"
    found = state("SyncBroken", rows[:18])
    assert (found.state, found.severity) == ("active", "critical") and found.value == pytest.approx(12)
    assert found.message == (
        "The engine samples with other weights than the trainer has: k3 is 0.0024, 12 times what it was before step "
        "22, and it has grown with new versions since, and rewarded answers are likelier to the trainer than to the "
        "engine."
    )


@pytest.mark.parametrize("lacking", LEARNED)
def test_noise_that_grows_from_step_to_step_is_a_drift_and_none_of_weights(lacking: str) -> None:
    rows = run(BEFORE + GROWING, learned=True)
    assert state("SyncBroken", [row | {lacking: HEALTHY[lacking]} for row in rows]).state == "quiet"
    one = [{path: value for path, value in row.items() if path != lacking} for row in rows]
    assert state("SyncBroken", one).state == "quiet"
    without = [{path: value for path, value in row.items() if path not in LEARNED} for row in rows]
    assert state("SyncBroken", without).state == "quiet"
    assert state("MismatchDrift", without).state == "active"


def test_a_bug_that_begins_between_two_steps_is_a_drift_and_no_broken_sync() -> None:
    rows = run(BEFORE + JUMPED)
    assert {state("SyncBroken", rows[:count]).state for count in range(6, 33)} == {"quiet"}
    found = state("MismatchDrift", run([1.0] * 12 + JUMPED))
    assert found.state == "active" and "k3 has grown" in (found.message or "")


def test_a_rise_that_grows_while_the_engine_takes_no_version_is_none_either() -> None:
    assert state("SyncBroken", run(BEFORE + GROWING, True, policy_version=[1.0] * 32)).state == "quiet"


def test_growth_that_improbable_tokens_hold_is_none_of_weights() -> None:
    tail = {"signature.low_probability.k3_share": 0.6, "signature.low_probability.direction": -1.0}
    assert state("SyncBroken", [row | tail for row in run(BEFORE + GROWING, learned=True)]).state == "quiet"


def test_growth_without_a_step_that_it_began_at_is_a_drift() -> None:
    assert state("SyncBroken", run([1.0] * 12 + [1.25**step for step in range(20)], learned=True)).state == "quiet"


def test_a_rise_with_one_of_few_new_versions_is_of_weights_and_one_without_is_not() -> None:
    seldom = [1.0] * 12 + [2.0] * 20
    assert state("SyncBroken", run(BEFORE + JUMPED, policy_version=seldom)[:14]).state == "quiet"
    assert state("SyncBroken", run(BEFORE + JUMPED, policy_version=seldom)[:15]).state == "active"
    assert state("SyncBroken", run(BEFORE + JUMPED, policy_version=[1.0] * 32)).state == "quiet"


EVIDENCE = {
    "one shard, engine or GPU has it alone": {"outliers.mismatch.ratio": 9.0},
    "it grows with the age of the tokens": {"signature.lag.share": 0.8, "signature.lag.z": 6.0},
    "tokens are older than any was before": {"policy_lag.max": 3.0},
}


@pytest.mark.parametrize("words", EVIDENCE)
def test_a_rise_in_one_machine_or_in_old_tokens_is_of_weights(words: str) -> None:
    rows = run(BEFORE + JUMPED)
    shown = [row | EVIDENCE[words] if step >= 12 else row for step, row in enumerate(rows)]
    found = state("SyncBroken", shown[:15])
    assert found.state == "active" and (found.message or "").endswith(f"and {words}.")
    flat = [row | EVIDENCE[words] for row in run([1.0] * 32)]
    assert state("SyncBroken", flat).state == "quiet"


def test_a_single_token_that_triples_k3_is_no_rise() -> None:
    rows = run(BEFORE + GROWING, learned=True)
    assert state("SyncBroken", [row | {SPREAD: 0.011} for row in rows]).state == "quiet"


def test_it_stays_while_the_engine_is_stale_and_ends_when_the_mismatch_is_back() -> None:
    stale = BEFORE + GROWING + [40.0] * 60 + [1.6] * 10
    assert state("SyncBroken", run(stale, learned=True)).state == "active"
    assert state("SyncBroken", run([*stale, 1.1], learned=True)).state == "active"
    assert state("SyncBroken", run([*stale, 1.1, 1.1], learned=True)).state == "quiet"
    hole = {path: value for path, value in HEALTHY.items() if path != K3}
    assert state("SyncBroken", [*run(stale, learned=True), hole]).state == "active"


def test_a_second_rise_after_the_end_of_one_is_told_again() -> None:
    again = run([*BEFORE, *GROWING, *BEFORE, *GROWING], learned=True)
    assert state("SyncBroken", again[:36]).state == "quiet"
    found = state("SyncBroken", again)
    assert found.state == "active" and "what it was before step 54" in (found.message or "")


def test_it_stays_longer_than_rules_look_back() -> None:
    """Of the store's own history, which drops steps between the first and the newest ones, and their notes."""
    kept = RunHistory([], {})
    rows = run([1.0] * 40 + GROWING + [42.0] * (FIRST + NEWEST), learned=True)
    states = set()
    for step, row in enumerate(rows):
        kept.put((step, 0, step), row)
        history = History(kept.steps, kept.columns, kept.noted)
        [found] = evaluate([BY_NAME["SyncBroken"]], history, Terms())
        if step >= 46:
            states.add(found.state)
    assert len(kept.steps) == FIRST + NEWEST and states == {"active"}


def test_what_lies_between_the_first_steps_and_the_newest_is_no_rise() -> None:
    rows = run([1.0] * FIRST + GROWING, learned=True)
    steps = [*range(FIRST), *range(900, 900 + len(GROWING))]
    history = History.of(list(zip(steps, rows, strict=True)), paths_of(RULES))
    [found] = evaluate([BY_NAME["SyncBroken"]], history, Terms())
    assert found.state == "quiet"
