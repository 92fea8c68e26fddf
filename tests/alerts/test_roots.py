"""One alert speaks for all that one cause raises; people are told of it, and of no other one."""

from dataclasses import replace

import pytest
from offpolicy_monitor.alerts import RULES, WALL_CLOCK_RULES, Episode, Severity
from offpolicy_monitor.alerts.episodes import CALM
from offpolicy_monitor.alerts.roots import group_of, roots_of, with_roots


def active(alert: str, severity: Severity = "warning", at: int | None = 10) -> Episode:
    return Episode(alert, severity, "active", at, at, 1, 2.0, 1.0, active_step=at)


def spoken_for(*episodes: Episode, step: int | None = 10) -> dict[str, str | None]:
    return {episode.alert: episode.inhibited_by for episode in with_roots(episodes, step)}


def told(episodes: list[Episode]) -> set[tuple[str, str]]:
    return {key for key, is_told in roots_of(episodes).items() if is_told}


def test_each_half_has_one_root_and_the_others_of_the_half_name_it() -> None:
    found = spoken_for(*map(active, ("MismatchKL", "ChiSquare", "PerplexityGap", "StaleData", "DataQuality")))
    assert found == {
        **{"MismatchKL": None, "ChiSquare": "MismatchKL", "PerplexityGap": "MismatchKL"},
        **{"StaleData": None, "DataQuality": None},
    }


def test_of_equal_severities_the_root_is_the_one_that_has_been_active_for_longest() -> None:
    first = with_roots([active("PerplexityGap", at=10)], 10)
    both = with_roots([*first, active("MismatchKL", at=12)], 12)
    assert [one.inhibited_by for one in both] == [None, "PerplexityGap"]
    assert told(both) == {("PerplexityGap", "warning")}


def test_a_worse_severity_takes_over_and_is_told_at_once() -> None:
    first = with_roots([active("MismatchKL")], 10)
    both = with_roots([*first, active("ChiSquare", "critical", 12)], 12)
    assert {one.alert: one.inhibited_by for one in both} == {"MismatchKL": "ChiSquare", "ChiSquare": None}
    assert told(both) == {("ChiSquare", "critical")}
    over = with_roots([both[0], replace(both[1], state="resolved")], 13)
    assert told(over) == {("MismatchKL", "warning")}  # as it was before: nothing is news


@pytest.mark.parametrize("change", [rule.name for rule in RULES if rule.change])
def test_a_change_that_begins_long_after_what_stands_is_another_fault_and_is_told(change: str) -> None:
    standing = with_roots([active("PerplexityGap", at=4)], 4)
    later = with_roots([*standing, active(change, at=4 + CALM)], 4 + CALM)
    assert [one.inhibited_by for one in later] == [change, None]
    assert told(later) == {(change, "warning")}
    assert with_roots(later, 4 + CALM) == later
    soon = with_roots([*standing, active(change, at=3 + CALM)], 3 + CALM)
    assert told(soon) == {("PerplexityGap", "warning")}
    level = with_roots([*standing, active("Correlation", at=40)], 40)
    assert told(level) == {("PerplexityGap", "warning")}


def test_of_one_change_people_are_told_once() -> None:
    standing = with_roots([active("PerplexityGap", at=4)], 4)
    first = with_roots([*standing, active("MismatchSpike", at=14), active("ChiSquare", at=14)], 14)
    assert [one.inhibited_by for one in first] == ["MismatchSpike", None, "MismatchSpike"]
    more = with_roots([*first, active("MismatchDrift", at=14 + CALM)], 14 + CALM)
    assert told(more) == {("MismatchSpike", "warning")}
    over = with_roots([more[0], replace(more[1], state="resolved"), *more[2:]], 15 + CALM)
    assert told(over) == {("PerplexityGap", "warning")}  # of which people were told before


def test_a_change_does_not_speak_for_something_worse() -> None:
    standing = with_roots([active("MismatchKL", "critical", 4)], 4)
    assert spoken_for(*standing, active("MismatchSpike", at=30), step=30)["MismatchSpike"] == "MismatchKL"


def test_of_rules_that_begin_together_the_one_that_names_the_cause_speaks() -> None:
    found = spoken_for(active("MismatchKL", "critical"), active("SyncBroken", "critical"))
    assert found == {"MismatchKL": "SyncBroken", "SyncBroken": None}


def test_a_rule_that_is_critical_speaks_for_its_own_warning() -> None:
    warning, critical = with_roots([active("MismatchKL"), active("MismatchKL", "critical")], 10)
    assert (warning.inhibited_by, critical.inhibited_by) == ("MismatchKL", None)


def over(episode: Episode, step: int) -> Episode:
    """One that its rule has let end, and that may come back."""
    return replace(episode, state="resolved", resolved_step=step, quiet_since=step)


def test_a_root_that_was_told_of_goes_on_while_one_of_its_severity_that_it_speaks_for_does() -> None:
    root, other = with_roots([active("MismatchSpike"), active("MismatchDrift", at=11)], 11)
    later = with_roots([over(root, 12), other], 12)
    assert later == [replace(root, quiet_since=12), other]
    assert with_roots(later, 12) == later
    assert told(later) == {("MismatchSpike", "warning")}
    both = with_roots([over(later[0], 90), over(other, 90)], 90)
    assert [one.state for one in both] == ["resolved", "resolved"]


def test_a_root_does_not_go_on_for_what_is_milder_nor_one_that_was_not_told_of() -> None:
    root, other = with_roots([active("MismatchKL", "critical"), active("ChiSquare")], 10)
    ended, left = with_roots([over(root, 12), other], 12)
    assert (ended.state, left.inhibited_by) == ("resolved", None)
    waiting, third = with_roots([left, active("Correlation", at=13)], 13)
    ended, _ = with_roots([over(waiting, 14), third], 14)
    assert ended.state == "resolved"


@pytest.mark.parametrize("rules", [("RunSilent", "IncompleteStep"), ("MismatchKL", "ChiSquare")])
def test_a_root_that_cannot_come_back_does_not_go_on(rules: tuple[str, str]) -> None:
    root, other = with_roots(list(map(active, rules)), 10)
    ended, _ = with_roots([replace(root, state="resolved", resolved_step=12), other], 12)
    assert ended.state == "resolved"


def test_what_begins_soon_after_something_as_bad_of_its_half_is_told_only_if_it_stays() -> None:
    [root] = with_roots([active("MismatchKL")], 10)
    ended = over(root, 12)
    _, soon = with_roots([ended, active("ChiSquare", at=15)], 15)
    assert told([soon]) == set()
    assert told(with_roots([soon], 15 + CALM)) == {("ChiSquare", "warning")}
    _, worse = with_roots([ended, active("ChiSquare", "critical", 15)], 15)
    assert told([worse]) == {("ChiSquare", "critical")}
    _, other_half = with_roots([ended, active("StaleData", at=15)], 15)
    assert told([other_half]) == {("StaleData", "warning")}


def test_one_that_has_come_back_is_told_when_it_breaches_not_while_it_is_quiet() -> None:
    back = replace(active("DataQuality", at=14), told_from=-24, resolved_step=15)
    assert told(with_roots([back], 23)) == told(with_roots([replace(back, quiet_since=22)], 26)) == set()
    assert told(with_roots([back], 26)) == {("DataQuality", "warning")}


def test_when_the_root_ends_another_takes_its_place_and_is_told_only_if_it_stays() -> None:
    root, other, third = with_roots(list(map(active, ("MismatchKL", "ChiSquare", "Correlation"))), 10)
    later = with_roots([replace(root, state="resolved"), other, third], 20)
    assert [one.inhibited_by for one in later] == [None, None, "ChiSquare"]
    assert told(later) == set()
    still = with_roots(later[1:], 20 + CALM - 1)
    assert told(still) == set()
    assert told(with_roots(still, 20 + CALM)) == {("ChiSquare", "warning")}


def test_a_root_that_comes_back_while_others_stay_is_not_told_again() -> None:
    _, other = with_roots([active("MismatchKL"), active("ChiSquare")], 10)
    [other] = with_roots([other], 20)
    both = with_roots([other, active("MismatchKL", at=22)], 22)
    assert told(both) == set()
    assert [one.inhibited_by for one in both] == [None, "ChiSquare"]


def test_what_waits_does_not_wait_longer_where_a_restart_goes_back() -> None:
    _, other = with_roots([active("MismatchKL", at=900), active("ChiSquare", at=900)], 900)
    waiting = with_roots(with_roots([other], 910), 400)
    assert told(with_roots(waiting, 400 + CALM)) == {("ChiSquare", "warning")}


def test_the_total_gap_goes_with_the_half_that_is_active_and_speaks_for_itself_where_none_is() -> None:
    assert spoken_for(active("TotalOffPolicy"), active("BadUpdates")) == {
        "TotalOffPolicy": None,
        "BadUpdates": "TotalOffPolicy",
    }
    assert spoken_for(active("TotalOffPolicy", at=2), active("MismatchKL"))["TotalOffPolicy"] == "MismatchKL"
    assert spoken_for(active("TotalOffPolicy", at=2), active("StaleData"))["TotalOffPolicy"] == "StaleData"


def test_the_total_gap_goes_with_no_half_that_it_is_known_not_to_be_of() -> None:
    found = spoken_for(*map(active, ("TotalOffPolicy", "MismatchKL")), active("StalenessDominates", "info"))
    assert found == {"TotalOffPolicy": None, "MismatchKL": None, "StalenessDominates": "TotalOffPolicy"}
    found = spoken_for(*map(active, ("TotalOffPolicy", "MismatchKL", "StaleData")), active("MismatchDominates", "info"))
    assert found["TotalOffPolicy"] == found["MismatchDominates"] == "MismatchKL"


def test_where_rules_on_the_mismatch_look_at_the_total_gap_both_are_one() -> None:
    found = with_roots([active("MismatchKL", at=5), active("BadUpdates", "critical"), active("MaskRate")], 10, True)
    assert [one.inhibited_by for one in found] == ["BadUpdates", None, "BadUpdates"]
    found = with_roots([active("MismatchKL"), active("TotalOffPolicy"), active("StaleData", at=3)], 10, True)
    assert [one.inhibited_by for one in found] == [None, "MismatchKL", None]


def test_nothing_is_hidden_behind_something_milder() -> None:
    found = spoken_for(active("MismatchKL"), active("TotalOffPolicy", "critical"), active("MaskRate", "critical"))
    assert found == {"MismatchKL": None, "TotalOffPolicy": None, "MaskRate": "TotalOffPolicy"}


def test_what_is_of_no_half_speaks_for_itself_and_what_follows_from_a_gap_does_not() -> None:
    found = spoken_for(*map(active, ("MismatchKL", "MaskRate", "LengthBias", "LengthSurge", "RewardCollapse")))
    assert found == {
        **{"MismatchKL": None, "MaskRate": "MismatchKL", "LengthBias": "MismatchKL"},
        **{"LengthSurge": None, "RewardCollapse": None},
    }
    assert spoken_for(active("MaskRate"), active("LengthBias")) == {"MaskRate": None, "LengthBias": None}


def test_the_signs_of_a_collapse_go_with_it() -> None:
    found = spoken_for(active("LengthSurge", at=2), active("EntropyCollapse", at=3), active("CollapseRisk", "critical"))
    assert found == {"LengthSurge": "CollapseRisk", "EntropyCollapse": "CollapseRisk", "CollapseRisk": None}


def test_a_silent_run_speaks_for_its_incomplete_step() -> None:
    clock = [active("IncompleteStep", at=None), active("RunSilent", at=None)]
    assert spoken_for(*clock, step=None) == {"IncompleteStep": "RunSilent", "RunSilent": None}
    assert told(with_roots(clock, None)) == {("RunSilent", "warning")}


@pytest.mark.parametrize("state", ["pending", "resolved"])
def test_what_is_not_active_speaks_for_none_and_stays_as_it_is(state: str) -> None:
    other = replace(active("MismatchKL", "critical", 2), state=state)  # pyrefly: ignore[bad-argument-type]
    found = with_roots([other, active("ChiSquare")], 10)
    assert found[0] == other and found[1].inhibited_by is None


def test_the_clock_changes_nothing_of_what_steps_have_settled() -> None:
    names = ("MismatchKL", "ChiSquare", "TotalOffPolicy", "LengthSurge")
    settled = with_roots([active(name, at=at) for at, name in enumerate(names)], 10)
    waiting = with_roots(settled[1:], 12)
    for episodes in (settled, waiting):
        assert with_roots(episodes, None) == episodes
    assert with_roots(settled, 10) == settled


def test_alerts_of_an_older_release_get_a_root_which_is_news_to_nobody() -> None:
    older = [
        replace(active("ChiSquare", at=3), active_step=None),
        replace(active("MismatchKL", at=5), active_step=None),
    ]
    found = with_roots(older, 10)
    assert {one.alert: (one.inhibited_by, one.told_from) for one in found} == {
        "MismatchKL": (None, 0),
        "ChiSquare": ("MismatchKL", None),
    }


def test_an_alert_of_a_rule_that_is_gone_speaks_for_itself() -> None:
    assert spoken_for(active("Retired"), active("MismatchKL")) == {"Retired": None, "MismatchKL": None}


def test_rules_follow_groups_that_there_are_and_none_follows_itself_round_about() -> None:
    rules = {rule.name: rule for rule in (*RULES, *WALL_CLOCK_RULES)}
    groups = {group_of(name) for name in rules}

    def led(group: str, through: tuple[str, ...]) -> None:
        assert group not in through
        for name, rule in rules.items():
            if group_of(name) == group:
                for other in rule.follows:
                    assert other in groups
                    led(other, (*through, group))

    for group in groups:
        led(group, ())
