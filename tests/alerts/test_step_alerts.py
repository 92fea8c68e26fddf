"""Every rule on training steps, at each severity, through the real promtool: when it fires, when not, when it ends."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from offpolicy_monitor.alerts import RULES

from tests.fixtures.promtool import Key, Scene, check_queries, check_scenes

KEYS = [(rule.name, severity, rule.steps[severity]) for rule in RULES for severity in rule.severities]
RUNBOOK = "http://127.0.0.1:8900/runbook#MismatchKL"


def ramp(steps: int) -> str:
    """Breaching steps as they grow by one per minute from 0 to `steps`."""
    return " ".join(map(str, range(steps + 1)))


def samples(key: Key, run: str, breaches: str, required: int, finished: str = "0x60") -> dict[str, str]:
    """What the service exposes of a run and one alert; what goes stale with one series goes stale with all."""
    of_run, of_alert = f'run="{run}",job="m",instance="h"', f'alert="{key[0]}",severity="{key[1]}"'
    gone = [part == "stale" for part in breaches.split()]

    def also(value: float) -> str:
        return " ".join("stale" if stale else str(value) for stale in gone) + f" {value}x40"

    return {
        f"offpolicy_alert_breach_steps{{{of_run},{of_alert}}}": breaches,
        f"offpolicy_alert_active{{{of_run},{of_alert}}}": " ".join(
            _active(part, required) for part in breaches.split()
        ),
        f"offpolicy_alert_value{{{of_run},{of_alert}}}": also(0.25),
        f"offpolicy_alert_threshold{{{of_run},{of_alert}}}": also(0.125),
        f"offpolicy_run_finished{{{of_run}}}": finished,
        f"offpolicy_step{{{of_run}}}": "100+1x60",
    }


def _active(part: str, required: int) -> str:
    """`active` beside one part of a row of breaching steps: stale, a count, or a count and how often it stays."""
    count, repeat, times = part.partition("x")
    return part if part == "stale" else f"{int(int(count) >= required)}{repeat}{times}"


def samples_while_breached(key: Key, run: str, breaches: str, required: int) -> dict[str, str]:
    """The same as the service exposes it by default: a rule that is quiet shows its count of 0 alone."""
    counts = breaches.split()
    found = samples(key, run, breaches, required)
    for name, series in found.items():
        if "active" in name or "value" in name or "threshold" in name:
            shown = zip(counts, series.split(), strict=False)
            found[name] = " ".join("stale" if count in ("0", "stale") else value for count, value in shown)
    return found


def scene(steps: int) -> Scene:
    """All runs that matter for each alert that requires so many steps, beside each other.

    promtool evaluates all rules anew for each scene, which takes most of its time.
    """
    series: dict[str, str] = {}
    firing: dict[Key, dict[str, Iterable[int]]] = {}
    for rule, severity, required in KEYS:
        if required == steps:
            key, own = (rule, severity), f"{rule} {severity}"
            series |= runs(key, own, steps)
            firing[key] = {
                f"{own} breaching": (steps, steps + 1),
                f"{own} overridden": (steps + 2,),
                f"{own} restarted": range(7),
                f"{own} missed": range(4),
                f"{own} gone": range(7),
                f"{own} finishes": range(3),
            }
    return Scene(f"{steps} steps", series, range(steps + 12), firing)


def runs(key: Key, own: str, steps: int) -> dict[str, str]:
    """The series of the runs of one alert, whose names begin with `own`."""
    return (
        samples(key, f"{own} breaching", f"{ramp(steps)} {steps + 1} 0x20", steps)
        | samples(key, f"{own} one short", f"{ramp(steps - 1)} 0x20", steps)
        | samples(key, f"{own} healthy", "0x40", steps)
        | samples(key, f"{own} overridden", f"{ramp(steps + 2)} 0x20", steps + 2)
        | samples(key, f"{own} restarted", f"{steps} {steps} stale stale stale {steps} {steps} 0x20", steps)
        | samples(key, f"{own} restarted one short", f"{steps - 1} stale stale {steps - 1}x20", steps)
        | samples(key, f"{own} missed", f"{steps} stale {steps} {steps} 0x20", steps)
        | samples(key, f"{own} gone", f"{steps} {steps} stale", steps)
        | samples(key, f"{own} finished", f"{steps}x40", steps, finished="1x60")
        | samples(key, f"{own} finishes", f"{steps}x40", steps, finished="0 0 0 1x60")
        | samples(
            key, f"{own} finished and restarted", f"{steps} stale stale {steps}x40", steps,
            finished="1 stale stale 1x40",
        )
    )  # fmt: skip


@pytest.mark.parametrize("steps", sorted({required for _, _, required in KEYS}))
def test_every_alert_fires_at_its_step_count_and_at_no_other_time(steps: int, tmp_path: Path) -> None:
    check_scenes(tmp_path, [scene(steps)])


def test_an_alert_fires_and_ends_at_once_where_what_a_quiet_rule_needs_is_not_shown(tmp_path: Path) -> None:
    key = ("MismatchKL", "critical")
    quiet = " ".join(["0"] * 10)
    series = (
        samples_while_breached(key, "breaching", f"0 0 1 2 3 4 {quiet}", 3)
        | samples_while_breached(key, "one short", f"0 0 1 2 {quiet}", 3)
        | samples_while_breached(key, "again", f"1 2 3 0 1 2 3 {quiet}", 3)
        | samples_while_breached(key, "needs fewer now", f"3 4 0 0 1 2 {quiet}", 3)
    )
    active = next(name for name in series if "active" in name and "fewer" in name)
    series[active] = "1 1 stale stale 0 1"
    firing = {key: {"breaching": (4, 5), "again": (2, 6), "needs fewer now": (0, 1, 5)}}
    check_scenes(tmp_path, [Scene("quiet", series, range(14), firing)])


@pytest.mark.parametrize(("shown", "value", "threshold"), [(True, "0.25", "0.125"), (False, *["(see the page)"] * 2)])
def test_an_alert_names_run_step_value_and_threshold_and_links_the_runbook_and_the_page(
    tmp_path: Path, shown: bool, value: str, threshold: str
) -> None:
    """Of a run in which very much is wrong the service shows the values of the worst alerts alone."""
    key = ("MismatchKL", "critical")
    labels = {"run": 'a "quoted" run', "alert": key[0], "severity": key[1], "job": "m", "instance": "h"}
    summary = 'Engine and trainer disagree about the same tokens (run a "quoted" run)'
    description = (
        f'Run a "quoted" run, step 103: mismatch k3 is {value}, critical above {threshold}; breached at 3 step(s).'
    )
    links = {"runbook_url": RUNBOOK, "page_url": 'http://127.0.0.1:8900/runs/a "quoted" run'}
    annotations = {"summary": summary, "description": description, **links}
    expected = [{"exp_labels": {**labels, "half": "mismatch"}, "exp_annotations": annotations}]
    asked = {"alertname": "MismatchKL", "eval_time": "3m", "exp_alerts": expected}
    series = samples(key, 'a \\"quoted\\" run', "0 1 2 3 4", 3)
    series = {name: of for name, of in series.items() if shown or ("_value" not in name and "_threshold" not in name)}
    check_scenes(tmp_path, [Scene("texts", series, [2], {}, texts=[asked])])


def test_what_another_alert_speaks_for_is_named_until_it_speaks_itself(tmp_path: Path) -> None:
    root, other, older = ("MismatchKL", "critical"), ("ChiSquare", "critical"), ("RatioTail", "critical")
    of_root = 'offpolicy_alert_root{run="a",job="m",instance="h",alert="%s",severity="critical"}'
    series = (
        samples(root, "a", "3 3 3 0x9", 3)
        | {of_root % "MismatchKL": "1 1 1 stale"}
        | samples(other, "a", "5x9", 5)
        | {of_root % "ChiSquare": "_ _ _ 0 0 1x9"}
        | samples(older, "of an older service", "5x9", 5)
    )
    muted = 'ALERTS{alertstate="firing",alertname="Evidence",alert="ChiSquare",of="critical",severity="none",run="a"}'
    firing = {
        root: {"a": range(3)},
        other: {"a": range(10)},
        older: {"of an older service": range(10)},
        ("Evidence", "none"): {"a": range(5)},
    }
    check_scenes(tmp_path, [Scene("evidence", series, range(10), firing)])
    asked = [_count(muted, minute, int(minute < 5)) for minute in range(8)]
    check_queries(tmp_path, series, asked)


def _count(selector: str, minute: int, value: int) -> dict[str, Any]:
    return {
        "expr": f"count({selector}) or vector(0)",
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": "{}", "value": value}],
    }


def test_what_one_alert_counts_fires_no_other(tmp_path: Path) -> None:
    key = ("MismatchKL", "critical")
    check_scenes(tmp_path, [Scene("alone", samples(key, "a", "3x9", 3), range(10), {key: {"a": range(10)}})])


def test_a_run_whose_rules_are_silent_fires_nothing(tmp_path: Path) -> None:
    series = {'offpolicy_step{run="a"}': "0+1x60", 'offpolicy_run_finished{run="a"}': "0x60"}
    check_scenes(tmp_path, [Scene("silent rules", series, range(30), {})])
