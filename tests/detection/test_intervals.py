"""Intervals are those of tables, and tables that are written have them."""

import pytest

from tests.detection.false_alarms import Counted
from tests.detection.intervals import rate, share
from tests.detection.report import Seen, false_alarm_table, scenario_table, verdict
from tests.detection.scenarios import SCENARIOS


@pytest.mark.parametrize(
    ("hits", "of", "least", "most"),
    [(8, 8, 0.6306, 1.0), (0, 4, 0.0, 0.6024), (5, 5, 0.4782, 1.0), (5, 10, 0.1871, 0.8129), (1, 64, 0.0004, 0.0840)],
)
def test_shares_have_the_limits_of_clopper_and_pearson(hits: int, of: int, least: float, most: float) -> None:
    assert share(hits, of) == pytest.approx((least, most), abs=1e-4)


@pytest.mark.parametrize(
    ("hits", "least", "most"), [(0, 0.0, 3.6889), (1, 0.0253, 5.5716), (9, 4.1154, 17.0848), (100, 81.3640, 121.6273)]
)
def test_rates_have_the_limits_of_garwood(hits: int, least: float, most: float) -> None:
    assert rate(hits, 1.0) == pytest.approx((least, most), abs=1e-3)
    assert rate(hits, 20.0) == pytest.approx((least / 20, most / 20), abs=1e-3)


def test_the_tables_say_how_sure_they_are() -> None:
    scenario = next(one for one in SCENARIOS if one.name == "sync-broken")
    seen = [Seen("sync-broken", "medium", None, 6, True, "stale_weights")] * 4
    seen.append(Seen("sync-broken", "medium", None, None, False, "noise"))
    [row] = list(scenario_table([scenario], seen))[2:]
    assert "| 4 of 5 (28 to 99 %) | `stale_weights` 4, `noise` 1 |" in row
    counted = Counted(steps=20_000, runs=60)
    counted.episodes["LengthSurge", "warning"] = 1
    counted.seeds["LengthSurge", "warning"] = [7]
    table = list(false_alarm_table(counted))
    assert "| `LengthSurge` | warning | 1 | 0.05 (0.00 to 0.28) | 1 |" in table
    assert table[-1].endswith("| all | 0 | 0 (0.00 to 0.18) | 0 |")
    said = list(verdict([scenario], seen, counted))
    assert said[0].endswith("strength: all but sync-broken: 4 of 5 plays (95 %: 28 to 99 %).")
    assert said[1].endswith("strength: all but sync-broken: 4 of 5 plays (95 %: 28 to 99 %).")
    assert said[2].endswith("; per 1,000 steps 0.00 to 0.18 and 0.00 to 0.28 (95 %).")
