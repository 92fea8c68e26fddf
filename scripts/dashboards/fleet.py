"""The fleet: every run at a glance, the worst first. One series or one row per run."""

from typing import Any, Final

from offpolicy_monitor.alerts import RULES
from offpolicy_monitor.alerts.rule import Severity

from scripts.dashboards.model import RUN, Board, Colour, Line, Query, Question, Section, active, of_run, off_by

PROFILE = "dense_bf16"
#: Rules whose figure alone is critical from a higher level on: below it they are critical only with growth.
CRITICAL_ALONE = {rule.name: alone for rule in RULES if (alone := rule.critical_alone(PROFILE)) is not None}


def default_lines(alert: str) -> tuple[Line, ...]:
    """A rule's thresholds under the default profile, from the lowest on; red is where the figure alone is critical."""
    rule = next(rule for rule in RULES if rule.name == alert)
    severities: Final[tuple[tuple[Severity, Colour], ...]] = (("warning", "orange"), ("critical", "red"))
    found: dict[Colour, float | None] = {colour: rule.threshold(severity, PROFILE) for severity, colour in severities}
    found["red"] = CRITICAL_ALONE.get(alert, found["red"])
    lines = sorted((value, colour) for colour, value in found.items() if value is not None)
    return tuple(Line(value, colour) for value, colour in lines)


def compared(id: int, title: str, description: str, expression: str, alert: str, **more: Any) -> Question:
    """Runs compared on one figure, with the default thresholds of the rule that watches it."""
    note = f" Lines: {alert} under the profile {PROFILE}; a run's own thresholds are on its dashboard."
    if alert in CRITICAL_ALONE:
        note += f" Below {CRITICAL_ALONE[alert]:g} it is critical only with growth."
    query = (Query(expression, "{{run}}"),)
    return Question(id, title, description + note, query, alert=alert, lines=default_lines(alert), **more)


SILENT = (
    f"count(max by (run) ((time() - offpolicy_last_batch_timestamp_seconds{{{RUN}}}) "
    f"> clamp_min(3 * offpolicy_step_seconds_median{{{RUN}}}, 600)) "
    f"unless on (run) (offpolicy_run_finished{{{RUN}}} == 1)) or vector(0)"
)


def having(severity: str) -> str:
    """How many runs have an active alert of a severity."""
    active = of_run("alert_active", f'severity="{severity}"', "run")
    return f"count({active} == 1) or vector(0)"


def active_of(severity: str) -> str:
    """How many alerts of a severity each run has."""
    return "sum by (run) " + active(f'severity="{severity}"')


GLANCE = (
    Question(
        1, "How many runs are critical?",
        "Runs with at least one active critical alert. Anything but 0: open the run at the top of the table.",
        (Query(having("critical")),), "stat", width=6, height=4, lines=(Line(1, "red"),),
    ),
    Question(
        2, "How many runs have a warning?",
        "Runs with at least one active warning: something drifts, and there is time to act before it wrecks the run.",
        (Query(having("warning")),), "stat", width=6, height=4, lines=(Line(1, "orange"),),
    ),
    Question(
        3, "How many runs fell silent?",
        "Runs without a batch for three times their median step, at least ten minutes, that were not finished. "
        "Look at the trainer: it hangs, crashed, or cannot reach the service.",
        (Query(SILENT),), "stat", width=6, height=4, alert="RunSilent", lines=(Line(1, "orange"),),
    ),
    Question(
        4, "How many runs are watched?",
        "Runs that the service exports; a run that is silent for a day leaves. At 200 the quietest are left out "
        "(OFFPOLICY_MAX_EXPORTED_RUNS).",
        (Query(f"count({of_run('step', by='run')})"),), "stat", width=6, height=4, base="text",
    ),
    Question(
        5, "Which run needs me first?",
        "One row per run, those with the most critical alerts first. k3 is the KL estimate in nats per token; ESS is "
        "the share of tokens that the ratios leave effective, 1 is best; lag is in policy versions. Follow the run's "
        "name.",
        (
            Query(active_of("critical"), "critical"),
            Query(active_of("warning"), "warnings"),
            Query(of_run("kl_nats", 'gap="mismatch",estimator="k3"', "run"), "mismatch k3"),
            Query(of_run("kl_nats", 'gap="staleness",estimator="k3"', "run"), "staleness k3"),
            Query(of_run("effective_sample_size_ratio", 'gap="total",level="token"', "run"), "ESS", "percentunit"),
            Query(of_run("policy_lag_versions", 'stat="max"', "run"), "lag"),
            Query(of_run("step", by="run"), "step"),
            Query(f"time() - {of_run('last_batch_timestamp_seconds', by='run')}", "silent for", "s"),
        ),
        "table", width=24, height=10,
    ),
    Question(
        6, "Which alerts are active now?",
        "One row per active alert, with the figure that breached and for how many steps. Follow the alert's name to "
        "what it means and what to try, in order.",
        (
            Query(f"{of_run('alert_breach_steps', by='run, alert, severity')} and "
                  f"{of_run('alert_active', by='run, alert, severity')} == 1", "steps in breach"),
            Query(of_run("alert_value", by="run, alert, severity")
                  + f" and {of_run('alert_active', by='run, alert, severity')} == 1", "value"),
            Query(of_run("alert_threshold", by="run, alert, severity")
                  + f" and {of_run('alert_active', by='run, alert, severity')} == 1", "threshold"),
        ),
        "table", width=24, height=8,
    ),
)  # fmt: skip

DRIFT = (
    compared(
        21, "In which run do engine and trainer disagree most?",
        "k3 of the mismatch, in nats per token: the same weights, two programs. It should be flat; a run that rises "
        "against its own beginning is about to break.",
        of_run("kl_nats", 'gap="mismatch",estimator="k3"', "run"), "MismatchKL", log=True, width=12,
    ),
    compared(
        22, "Which run's data is furthest off-policy?",
        "|mean log-ratio| between the policy that sampled and the one that trains. Fewer gradient steps per batch, or "
        "less lag, bring it down.",
        off_by("total", "run"), "TotalOffPolicy", width=12, minimum=0,
    ),
    compared(
        23, "How much of each batch is still effective?",
        "Effective sample size of the mismatch's token ratios, as a share. Below the lines a few tokens carry the "
        "gradient: truncate or mask, and find out why.",
        of_run("effective_sample_size_ratio", 'gap="mismatch",level="token"', "run"), "LowEffectiveSampleSize",
        unit="percentunit", base="text", minimum=0, maximum=1, width=12,
    ),
    compared(
        24, "How old is the oldest data of each run?",
        "Policy versions between sampling and training, the largest of the step. Lower the queue between rollout and "
        "trainer, or drop what is too old.",
        of_run("policy_lag_versions", 'stat="max"', "run"), "StaleData", minimum=0, width=12,
    ),
)  # fmt: skip

PACE = (
    Question(
        41, "How fast does each run step?",
        "Median seconds between two steps over the latest 32. A run that slows down waits for something.",
        (Query(of_run("step_seconds_median", by="run"), "{{run}}"),), unit="s", width=12, minimum=0,
    ),
    Question(
        42, "How many tokens per second does each run post?",
        "Tokens under the mask, over the window chosen above. Choose one longer than a step.",
        (Query(f"sum by (run) (rate(offpolicy_tokens_total{{{RUN}}}[$window]))", "{{run}}"),), width=12, minimum=0,
    ),
)  # fmt: skip

FLEET = Board(
    "offpolicy-fleet", "Off-policy: all runs",
    "Every run at a glance, the worst first: which is healthy, drifting or silent.",
    (Section(100, "Which runs need attention?", GLANCE), Section(101, "How do the runs compare?", DRIFT),
     Section(102, "Do they move?", PACE)),
)  # fmt: skip
