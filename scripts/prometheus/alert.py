"""What a Prometheus rule is here: an alert or a recorded expression as a row, and the pieces of PromQL that rows share.

Knows PromQL and names of families; not which rules there are, nor YAML.
"""

from dataclasses import dataclass
from typing import Final

BRIDGE: Final = "5m"
"""How long a series may be missing (scrapes that fail, a restart) before what it said is forgotten."""

OF_RUN: Final = "job, instance, run"


@dataclass(frozen=True)
class Alert:
    """One alerting rule at one severity.

    expr          PromQL; what it returns is what fires
    summary, description   templates of Prometheus
    lasting       `for`: how long the expression must hold; None: at once
    kept          `keep_firing_for`: how long it stays after the expression went empty; None: not at all
    half          of a run, that it is told with; None: of none
    """

    name: str
    severity: str
    expr: str
    summary: str
    description: str
    lasting: str | None = None
    kept: str | None = None
    half: str | None = None


@dataclass(frozen=True)
class Recording:
    """One recording rule; its name is `level:metric:operation`."""

    record: str
    expr: str


def latest(series: str) -> str:
    """The newest sample of BRIDGE, also where scrapes failed since: a missed scrape then neither resolves nor fires."""
    return f"last_over_time({series}[{BRIDGE}])"


def of_unfinished(condition: str) -> str:
    """The condition, without the runs that ended on purpose: what their last steps said is of no use to anyone."""
    return f"{condition}\nunless on ({OF_RUN}) {latest('offpolicy_run_finished')} == 1"


def grew(counter: str, window: str) -> str:
    """Whether a counter grew within the window, counting a series that was born in it above 0.

    Only of a service that was watched before: to a Prometheus that has just started, every series is new.
    """
    before = f"[{window}] offset {window}"
    watched = f"and on (job, instance) last_over_time(offpolicy_build_info{before})"
    born = f"{counter} > 0 unless max_over_time({counter}{before}) {watched}"
    return f"increase({counter}[{window}]) > 0\nor ({born})"


def look_up(metric: str, *labels: str, form: str = "%.4g", otherwise: str = "") -> str:
    """A template that shows the metric's value for the alert's own labels, and `otherwise` where it has none."""
    matchers = ",".join(f"{label}=%q" for label in labels)
    values = " ".join(f"$labels.{label}" for label in labels)
    query = latest(f"{metric}{{{matchers}}}")
    found = f'{{{{ with printf "{query}" {values} | query }}}}{{{{ . | first | value | printf "{form}" }}}}'
    return found + (f"{{{{ else }}}}{otherwise}" if otherwise else "") + "{{ end }}"
