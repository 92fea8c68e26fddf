"""The rules on a run's clock through the real promtool; promtool's clock starts at 0, so timestamps are small."""

from collections.abc import Mapping
from pathlib import Path

from scripts.prometheus.clock import RUN_EXPIRY
from tests.fixtures.promtool import Scene, check_scenes

WARNING, CRITICAL, INCOMPLETE = ("RunSilent", "warning"), ("RunSilent", "critical"), ("IncompleteStep", "warning")


def runs(family: str, values: Mapping[str, str]) -> dict[str, str]:
    return {f'offpolicy_{family}{{run="{run}",job="m",instance="h"}}': text for run, text in values.items()}


def test_a_silent_run_fires_after_its_own_steps_and_ends_with_its_next_batch(tmp_path: Path) -> None:
    """Wait for 3 and 10 median steps, at least 600 s, then 5 minutes; a run of unknown steps gets 1800 s per step.

    Last batches were so many seconds before the scene that each wait ends with its 36th minute.
    """
    series = (
        runs("last_batch_timestamp_seconds", {
            "fast": "0x20 1260+60x40", "slow": "0x60", "slow since": "-4200x60", "one step": "-3600x60",
            "one step since": "-16200x60", "healthy": "0+60x60", "finished": "0x60", "finishes": "0x19 0x40",
            "restarted": "0x17 stale stale 0x40",
        })
        | runs("step_seconds_median", {
            "fast": "60x60", "slow": "600x60", "slow since": "600x60", "healthy": "60x60", "finished": "60x60",
            "finishes": "60x60", "restarted": "60x17 stale stale 60x40",
        })
        | runs("run_finished", {
            "fast": "0x60", "slow": "0x60", "slow since": "0x60", "one step": "0x60", "one step since": "0x60",
            "healthy": "0x60", "finished": "1x60", "finishes": "0x19 1x40", "restarted": "0x17 stale stale 0x40",
        })
    )  # fmt: skip
    always = {"fast": range(16, 21), "finishes": range(16, 20), "restarted": range(16, 60)}
    since = {"slow since": range(5, 60), "one step since": range(5, 60)}
    firing = {
        WARNING: {**always, **since, "slow": range(36, 60), "one step": range(36, 60)},
        CRITICAL: {**always, "slow since": range(36, 60), "one step since": range(36, 60)},
    }
    check_scenes(tmp_path, [Scene("silent", series, (0, 4, 5, 9, *range(11, 23), 34, 35, 36, 37), firing)])


def test_trainers_may_come_back_after_an_outage_of_the_service(tmp_path: Path) -> None:
    """Twenty minutes without samples, the same old timestamp after them, and a batch three minutes later."""
    gap = "stale " * 20
    series = (
        runs("last_batch_timestamp_seconds", {"a": f"0 60 120 180 240 {gap} 240 240 240 1680+60x20"})
        | runs("step_seconds_median", {"a": f"60x4 {gap} 60x30"})
        | runs("run_finished", {"a": f"0x4 {gap} 0x30"})
    )
    check_scenes(tmp_path, [Scene("outage", series, range(45), {})])


def test_the_slowest_run_is_called_silent_before_it_leaves_the_exposition(tmp_path: Path) -> None:
    """From 726 and 1086 minutes after its last batch on. Each run is looked at so many minutes after its own."""
    ends, now = RUN_EXPIRY // 60, 10
    after = {f"{minute} minutes": minute for minute in (600, 725, 726, 1085, 1086, ends)}
    series = (
        runs("last_batch_timestamp_seconds", {run: f"{60 * (now - minute)}x30" for run, minute in after.items()})
        | runs("step_seconds_median", dict.fromkeys(after, "20000x30"))
        | runs("run_finished", dict.fromkeys(after, "0x30"))
    )
    firing = {
        WARNING: {run: [now] for run, minute in after.items() if minute >= 726},
        CRITICAL: {run: [now] for run, minute in after.items() if minute >= 1086},
    }
    assert ends > 1086
    check_scenes(tmp_path, [Scene("slow", series, [now], firing)])


def test_an_incomplete_step_fires_after_three_steps_and_a_minute_and_outlives_a_missed_scrape(tmp_path: Path) -> None:
    names = ("quick", "slow", "healthy", "finished", "missed")
    series = (
        runs("open_step_timestamp_seconds", {
            "quick": "0x5 stale", "slow": "0x40", "healthy": "0+60x40", "finished": "0x40", "missed": "0x4 stale 0x40",
        })
        | runs("step_seconds_median", {name: "300x40" if name == "slow" else "10x40" for name in names})
        | runs("run_finished", {name: "1x40" if name == "finished" else "0x40" for name in names})
        | runs("last_batch_timestamp_seconds", {name: "0+60x40" for name in names})
    )  # fmt: skip
    firing = {INCOMPLETE: {"quick": range(3, 11), "slow": range(17, 41), "missed": range(3, 41)}}
    check_scenes(tmp_path, [Scene("incomplete", series, range(30), firing)])


def test_a_step_that_completes_fast_never_fires_though_scrapes_saw_it_open(tmp_path: Path) -> None:
    open_steps = " ".join(f"{60 * minute} stale stale" for minute in range(0, 30, 3))
    series = (
        runs("open_step_timestamp_seconds", {"a": open_steps})
        | runs("step_seconds_median", {"a": "10x40"})
        | runs("last_batch_timestamp_seconds", {"a": "0+60x40"})
        | runs("run_finished", {"a": "0x40"})
    )
    check_scenes(tmp_path, [Scene("open for a moment", series, range(32), {})])
