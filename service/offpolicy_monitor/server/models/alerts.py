"""Alerts, and what each rule says of a run."""

from pydantic import ConfigDict, Field

from offpolicy_monitor.server.models.shape import Shape


class Alert(Shape):
    """A breach of one severity of a rule."""

    id: int
    alert: str
    severity: str = Field(description="info, warning or critical.")
    state: str = Field(description="pending: has not lasted long enough; active; resolved: was active and is over.")
    run: str
    since_step: int | None = Field(description="First step of the breach; null where the rule is on the wall clock.")
    last_step: int | None
    active_step: int | None = Field(
        description="Step whose judgement made it active; null where the rule is on the wall clock."
    )
    quiet_since: int | None = Field(
        description="First step since its last breach, of an active one that goes on without: it has come back before, "
        "and is waited for ten steps, or alerts that it speaks for go on. Null while it breaches."
    )
    resolved_step: int | None = Field(
        description="Step whose judgement ended it; null where no step did. Of an active one: it has come back since."
    )
    breach_steps: int
    value: float | None
    peak: float | None = Field(description="The worst value while it was open; null of what an older release kept.")
    threshold: float | None
    message: str | None = Field(description="What it says to people; null of what an older release kept.")
    expression: str
    summary: str
    half: str | None = Field(description="What is at fault: mismatch, staleness, total, data; null for none of these.")
    runbook: str = Field(description="What it means and what to do.")
    inhibited_by: str | None = Field(
        description="The alert of the same run that speaks for this one, and of which people are told instead; null: "
        "it speaks for itself."
    )
    told: bool = Field(description="Whether people are told of it, or were.")
    evidence: list[str] = Field(description="Active alerts of the run that it speaks for; of one that is active.")
    joined: int | None = Field(None, description="With `merge`: breaches that are one here.")
    started_at: str
    active_at: str | None
    resolved_at: str | None


class Alerts(Shape):
    """A page of alerts, newest first."""

    alerts: list[Alert]
    next_cursor: str | None


class Baseline(Shape):
    """A figure over the run's 5th to 25th step: its median, and the band of the middle 80 %."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    median: float
    low: float
    high: float
    first: int = Field(alias="from")
    last: int = Field(alias="to")


class RuleState(Shape):
    """What one severity of a rule says of a run's newest step."""

    alert: str
    severity: str
    state: str = Field(description="disabled, silent (`missing` are the figures it needs), quiet, pending or active.")
    value: float | None = None
    threshold: float | None = None
    alone: float | None = Field(
        None, description="The value that is critical by itself, where a breach of `threshold` is so with growth alone."
    )
    required_steps: int | None = None
    breach_steps: int | None = None
    since_step: int | None = None
    missing: list[str] = Field([])
    root: bool | None = Field(
        None,
        description="Of one that is active and speaks for others that one cause raises: whether people are told of it.",
    )
    baseline: Baseline | None = Field(None, description="Of a rule that compares with the run's beginning.")
    expression: str
    summary: str
    half: str | None
    runbook: str


class Rules(Shape):
    """Every rule, at the step the run was judged at last."""

    step: int | None
    rules: list[RuleState]
