"""What a dashboard is made of: queries that answer questions, in sections, on boards.

Knows no SDK and no JSON. Expressions may use the variables `$job`, `$run`, `$method` and `$window`, and Grafana's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["timeseries", "stat", "table", "bargauge", "heatmap", "statetimeline"]
Repeat = Literal["", "run"]
Colour = Literal["orange", "red", "green"]
# What every query of the service, and every query of a run's figures, is narrowed to.
JOB = 'job=~"$job"'
RUN = 'job=~"$job",run=~"$run"'


@dataclass(frozen=True)
class Query:
    """An expression and what its series are called; in a table the legend is the title of the column."""

    expression: str
    legend: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Line:
    """A fixed threshold, drawn where no alert rule gives one, or where runs of several profiles share a panel."""

    value: float
    colour: Colour


@dataclass(frozen=True)
class Question:
    """One panel: its title is the question, its description says what the figure means and what to do.

    alert      rule whose section of the runbook the panel links
    drawn      whether the thresholds in force of that rule are queried and drawn
    lines      fixed thresholds, from the lowest on
    names      what whole numbers mean, where they stand for states
    """

    id: int
    title: str
    description: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    alert: str = ""
    drawn: bool = False
    lines: tuple[Line, ...] = ()
    base: Literal["green", "red", "text"] = "green"
    names: Mapping[int, tuple[str, str]] | None = None
    minimum: float | None = None
    maximum: float | None = None
    log: bool = False
    stacked: bool = False


@dataclass(frozen=True)
class Section:
    """A row of panels; with `repeat` once for each run that is chosen."""

    id: int
    title: str
    questions: tuple[Question, ...]
    repeat: Repeat = ""


@dataclass(frozen=True)
class Board:
    """One dashboard. `variables` are names of those that it has beside the data source, the job and the page's URL."""

    uid: str
    title: str
    description: str
    sections: tuple[Section, ...]
    variables: tuple[Literal["run", "method", "window"], ...] = ("run", "window")


def off_by(gap: str, by: str) -> str:
    """|mean log-ratio| of a gap: k1 without its sign."""
    selector = f'gap="{gap}",estimator="k1"'
    return f"abs({of_run('kl_nats', selector, by)})"


def of_run(name: str, labels: str = "", by: str = "") -> str:
    """The selector of a family for the runs chosen, as the largest by the labels in `by` so that restarts add none."""
    selector = f"offpolicy_{name}{{{RUN}{',' if labels else ''}{labels}}}"
    return f"max by ({by}) ({selector})" if by else selector


def active(labels: str = "") -> str:
    """1 for an alert that is active, 0 for one that is not: of a quiet one the service shows what it counts alone."""
    return f"({of_run('alert_active', labels)} or 0 * {of_run('alert_breach_steps', labels)})"


def value_of(alert: str) -> tuple[Query, ...]:
    """What a rule compares with its thresholds, as the service last saw it: while it is breached."""
    return (Query(f'max(offpolicy_alert_value{{{RUN},alert="{alert}"}})', "what the rule compares"),)
