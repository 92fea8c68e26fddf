"""The rules on a run's clock as Prometheus alerts, rendered from WALL_CLOCK_RULES.

They count seconds, in multiples of the run's own median step. A run that says it is finished may be silent, and a run
leaves /metrics after RUN_EXPIRY, so that even the slowest one must be called silent before.
"""

from dataclasses import dataclass
from typing import Final

from offpolicy_monitor.alerts.rule import Severity
from offpolicy_monitor.alerts.wall_clock import UNKNOWN_STEP, WALL_CLOCK_RULES, WallClockRule
from offpolicy_monitor.settings import Settings

from scripts.prometheus.alert import BRIDGE, Alert, latest, of_unfinished

RUN_EXPIRY: Final = int(Settings.model_fields["run_expiry"].default)
"""Seconds: what OFFPOLICY_RUN_EXPIRY is unless the operator says otherwise."""

LAST_BATCH: Final = latest("offpolicy_last_batch_timestamp_seconds")
MEDIAN: Final = f"({latest('offpolicy_step_seconds_median')} or {LAST_BATCH} * 0 + {UNKNOWN_STEP})"


@dataclass(frozen=True)
class _Clock:
    """What PromQL needs beside the row: the time that is compared, how it is told, and how a gap of it is treated."""

    since: str
    told: str
    lasting: str
    kept: str | None = None


CLOCKS: Final = {
    # After an outage of the service, the trainers have five minutes to come back.
    "RunSilent": _Clock(LAST_BATCH, "has sent no batch for", lasting="5m"),
    # Not bridged: the series goes when the step is complete, and one that is gone must not grow older.
    "IncompleteStep": _Clock(
        "offpolicy_open_step_timestamp_seconds", "has an incomplete step, begun before", lasting="1m", kept=BRIDGE
    ),
}
LATEST: Final[dict[Severity, int]] = {"warning": RUN_EXPIRY // 2, "critical": RUN_EXPIRY * 3 // 4}
"""Severity -> seconds after which it does not wait any longer, however slow the run."""


def clock_alerts() -> list[Alert]:
    """Every rule at every severity that it has."""
    return [_alert(rule, severity) for rule in WALL_CLOCK_RULES for severity in rule.severities]


def _alert(rule: WallClockRule, severity: Severity) -> Alert:
    clock, times = CLOCKS[rule.name], f"{rule.times[severity]:g}"
    wait = f"clamp({times} * {MEDIAN}, {rule.least:g}, {LATEST[severity]})"
    return Alert(
        rule.name,
        severity,
        of_unfinished(f"time() - {clock.since}\n> {wait}"),
        f"{rule.summary} (run {{{{ $labels.run }}}})",
        f"Run {{{{ $labels.run }}}} {clock.told} {{{{ $value | humanizeDuration }}}}: "
        f"longer than {times} of its usual steps, and it has not said that it is finished.",
        lasting=clock.lasting,
        kept=clock.kept,
    )
