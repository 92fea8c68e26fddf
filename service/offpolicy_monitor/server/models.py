"""Shapes of the answers, for the OpenAPI document only: answers are built from plain values and not checked again.

Further fields may come; the ones listed stay.
"""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.config import JsonDict

from offpolicy_monitor.server.figure_shapes import figures_below

Figures = dict[str, Any]
Gaps = Annotated[dict[str, Figures], WithJsonSchema(figures_below("gaps"))]
Methods = Annotated[dict[str, Figures], WithJsonSchema(figures_below("methods"))]
Routing = Annotated[
    dict[str, Figures],
    WithJsonSchema(figures_below("routing")),
    Field(description="Only where two of the expert arrays were sent, by gap."),
]
Attribution = Annotated[Figures, WithJsonSchema(figures_below("attribution"))]
Breakdowns = Annotated[Figures, WithJsonSchema(figures_below("breakdowns"))]
Outliers = Annotated[Figures, WithJsonSchema(figures_below("outliers"))]
Versions = Annotated[Figures, WithJsonSchema(figures_below("versions"))]
Signature = Annotated[Figures, WithJsonSchema(figures_below("signature"))]
SERIES: Final[JsonDict] = {"field": "gaps.mismatch.k3", "step": [1, 2], "minibatch": [0, 0], "value": [0.001, None]}
VERDICTS: Final[JsonDict] = {"field": "verdict", "step": [1, 2], "minibatch": [0, 0], "value": ["accept", "skip"]}

VERDICT: Final[JsonDict] = {
    "verdict": "skip",
    "state": "drifting",
    "sentence": "Drifting since step 97: it looks like top-p renormalisation (score 0.83). Mismatch k3 is 0.0018 nats "
    "per token, 41× this run's own start. It is 92% of the gap.",
    "head": "Drifting since step 97: it looks like top-p renormalisation (score 0.83).",
    "why": "Mismatch k3 is 0.0018 nats per token, 41× this run's own start. It is 92% of the gap.",
    "since_step": 97,
    "half": "mismatch",
    "cause": "top_p",
    "score": 0.83,
    "action": "Sample with top_p = 1 and top_k off. Or apply the same nucleus mask to the trainer's logits. dppo_tv, "
    "the correction in use, masks 2.7% of the tokens. OPSM at 0.01 would mask 31%; at 0.41 it masks 1%.",
}


class Shape(BaseModel):
    """An object with at least these fields."""

    model_config = ConfigDict(extra="allow")


class FieldProblem(Shape):
    """One field at fault."""

    field: str
    message: str


class ProblemDocument(Shape):
    """RFC 9457. `type` is `urn:offpolicy-monitor:problem:<kind>`, stable and compared as a string."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = []


class BatchReceipt(Shape):
    """Where the shard stands, and the run after it: the whole answer with `detail=none`."""

    run: str
    step: int
    minibatch: int
    shard: int
    stored: bool = Field(description="False only for the first half of a two-phase post, which is kept in memory.")
    duplicate: bool
    received_shards: int
    shards: int
    complete: bool
    verdict: str = Field(description="skip while a critical alert of the run is active, warn while a warning is.")
    alerts: list["Alert"] = Field(description="The run's alerts that are not over, the worst of each rule.")


class BatchAnswer(BatchReceipt):
    """The same, and the figures of this shard alone."""

    tokens: int
    sequences: int
    empty_sequences: int
    excluded_tokens: dict[str, int]
    suspect_tokens: dict[str, int]
    gaps: Gaps
    methods: Methods
    routing: Routing = {}


class EvaluateAnswer(Shape):
    """Figures of the batch; `methods` in the order asked."""

    tokens: int
    sequences: int = Field(description="How many, at every level of detail.")
    gaps: Gaps
    methods: list[Figures] = Field(
        description="In the order asked. With detail sequence or token also `keep_sequences`; with token also "
        "`keep_tokens`, and `weights` of a method that gives any."
    )
    routing: Routing = {}
    per_sequence: list[Figures] = Field([], description="One object per sequence, with detail sequence or token alone.")


class Spark(Shape):
    """A figure over all steps of a run, by step, in few values: the least and the largest of each stretch."""

    field: str = Field(description="gaps.mismatch.k3, or gaps.total.k3 where that was not sent.")
    values: list[float | None] = Field(description="At most 48, in order.")


class Summary(Shape):
    """What is said of a run, in plain words, and what that rests on."""

    verdict: str = Field(description="accept; warn while a warning of the run is active, skip while a critical one is.")
    state: str = Field(
        description="healthy, too_early, drifting, off_policy (which half cannot be told), data_wrong, alarm (of "
        "neither half), silent, finished, or not_measured."
    )
    sentence: str = Field(description="`head` and `why`.")
    head: str = Field(description="State, since when, what it looks like.")
    why: str = Field(description="How much, against the run's own start, and which share of the gap; may be empty.")
    since_step: int | None = Field(
        description="First step of the first breach of the worst open severity in the half at fault."
    )
    half: str | None = Field(description="What is at fault: mismatch, staleness, data; null where none is.")
    cause: str | None = Field(description="Name of the hypothesis, from a score of 0.5 on.")
    score: float | None


class Verdict(Summary):
    """What is said of a run, and what to do."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [VERDICT]})

    action: str = Field(
        description="In the imperative; then what the correction in use masks, what OPSM would, and where it masks 1%."
    )


class RunRow(Shape):
    """One run."""

    run: str
    profile: str
    state: str = Field(description="live, silent or finished.")
    last_step: int | None
    verdict: str
    labels: dict[str, str]
    steps: int = Field(description="Training steps that count.")
    steps_per_minute: float | None = Field(description="60 over the usual seconds from step to step.")
    active_alerts: int
    spark: Spark | None = Field(description="Null before a step has mismatch or total.")
    summary: Summary = Field(description="A cause may be as it was up to 25 steps ago.")


class Run(RunRow):
    """One run, with what runs on its batches."""

    methods: list[Figures] = Field(description="Rows in effect, as `methods` of PATCH takes them.")
    default_methods: bool = Field(description="Whether none were chosen, so that the default rows run.")
    correction: str | None = Field(description="The row that the trainer really uses, if it said so.")
    alerts: dict[str, Figures] = Field(description="The run's own thresholds, by rule.")
    median_step_seconds: float | None = Field(
        description="From one step's first shard to the next one's, over the last 32 steps; null with fewer than two."
    )
    silent_after: float = Field(description="Seconds without a batch after which the run is silent.")


class Runs(Shape):
    """A page of runs."""

    runs: list[RunRow]
    next_cursor: str | None


class StepAlert(Shape):
    """A rule in breach, by its severity."""

    alert: str
    severity: str


class Step(Shape):
    """One merged gradient step."""

    step: int
    minibatch: int
    received_at: str = Field(description="When its newest shard came.")
    verdict: str | None = Field(description="accept, warn or skip, of the training step; null before it is judged.")
    alerts: list[StepAlert] | None = Field(description="Warnings and worse that were active at it.")
    gaps: Gaps
    methods: Methods
    routing: Routing = {}
    attribution: Attribution | None = None
    outliers: Outliers = {}
    versions: Versions | None = None
    signature: Signature = {}
    breakdowns: Breakdowns = Field({}, description="In the answer to one step alone.")


class Steps(Shape):
    """A page of steps in order."""

    steps: list[Step]
    next_cursor: str | None


class Series(Shape):
    """One figure over the steps, as columns."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [SERIES]})

    field: str
    step: list[int]
    minibatch: list[int]
    value: list[float | str | None] = Field(description="Words of `verdict`, times of `received_at`, else numbers.")


class SeveralSeries(Shape):
    """Several figures over the steps, in the order asked."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [{"series": [SERIES, VERDICTS]}]})

    series: list[Series]


class CataloguedFigure(Shape):
    """What a figure means."""

    path: str
    unit: str
    meaning: str
    source: str
    headline: bool = Field(description="Whether it is kept narrow: read over thousands of steps in milliseconds.")
    since: str = Field(description="The release that first answered it.")


class Catalogue(Shape):
    """Every figure that is answered."""

    figures: list[CataloguedFigure]


class Bins(Shape):
    """Bins that hold something, ascending: low < value <= high."""

    low: list[float | None]
    high: list[float | None]
    count: list[int]


class Cells(Shape):
    """Cells that hold something of a grid whose two axes have the same bins: bin k lies above edge k - 1, at most at
    edge k."""

    edges: list[float] = Field(description="Log-probs between bins, ascending, nats; the outermost bins are open.")
    numerator: list[int] = Field(description="Of each cell, the bin of the numerator's log-prob.")
    denominator: list[int] = Field(description="The bin of the denominator's, which is log mu.")
    count: list[int] = Field(description="Tokens.")


class StepHistograms(Shape):
    """Of one gradient step: per gap `log_ratio` counts tokens, `log_geometric_ratio` sequences."""

    step: int
    minibatch: int
    gaps: dict[str, dict[str, Bins]]
    densities: dict[str, Cells] = Field(
        description="Tokens by both of their log-probs, of mismatch and total where log mu was sent; a step of which "
        "some shard was counted by an older release has none."
    )


class Hypothesis(Shape):
    """A cause that the mismatch may have."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    name: str
    title: str = Field(description="In a few words, as in: it looks like top-p renormalisation.")
    score: float = Field(description="0 to 1; beyond one half it beats plain noise.")
    summary: str
    evidence: dict[str, float | str | None] = Field(
        description="Figures by their paths, and the replica, column or sequence that some of them are of."
    )
    tries: list[str] = Field(alias="try", description="What to do, first things first.")
    since_step: int | None = Field(None, description="Where it is believed, and k3 jumped and stayed: since when.")


class Diagnosis(Shape):
    """Hypotheses, best first; none where there is no mismatch to explain."""

    hypotheses: list[Hypothesis]
    steps: list[int] = Field(description="First and last step looked at; empty where none counts.")


class Setting(Shape):
    """A row as a framework writes it."""

    framework: str
    lines: list[str]
    differs: str = Field(description="What is a little different there; empty for nothing.")


class Curve(Shape):
    """Shares dropped at each threshold; null where there is nothing to share."""

    threshold: list[float]
    masked_token_fraction: list[float | None]
    masked_sequence_fraction: list[float | None]
    masked_advantage_mass: list[float | None]
    error: list[float] = Field(description="The most by which any of the three is off, at each threshold.")
    by_advantage_sign: dict[str, Figures]
    by_length_quartile: dict[str, list[float | None]] = Field(
        description="Share of the rule's own unit, tokens or sequences, within quarters of the sequences by length."
    )
    config: list[Setting] | None = Field(None, description="Where one threshold was asked for: the setting to paste.")


class Preset(Shape):
    """A threshold that a row has."""

    name: str
    parameter: str
    threshold: float


class WhatIf(Shape):
    """The fields of a Curve where a method has one threshold; else a Curve per bound, `lower` and `upper`."""

    method: str
    gap: str
    level: str
    max_error: float
    steps: list[int] = Field(description="First and last step read; empty where none counts.")
    steps_read: int
    steps_in_range: int
    parameter: str | None = Field(description="The threshold's name in a row, where the method has but one.")
    presets: list[Preset] = Field(description="Rows that differ in their thresholds alone, to be marked on the axis.")
    lower: Curve | None = None
    upper: Curve | None = None


class Threshold(Shape):
    """A threshold that drops a wanted share of the tokens, and how sure it is."""

    method: str
    gap: str
    level: str
    parameter: str = Field(description="The threshold's name in a row of the method.")
    threshold: float
    low: float = Field(description="95 % of the thresholds that resampled steps give lie between low and high.")
    high: float
    between: list[float] | None = Field(description="The histogram's edges next to the threshold; null for m2po.")
    masked_token_fraction: float
    masked_token_fraction_at_double_length: float
    summary: str


class PresetState(Shape):
    """What a row has dropped."""

    name: str
    state: str = Field(description="inert, active or saturated.")
    steps: int
    summary: str


class WorstSequence(Shape):
    """One sequence, to be found again by its id, or by its shard and index."""

    step: int
    minibatch: int
    shard: int
    index: int = Field(description="Among the sequences of the shard as posted, from 0.")
    id: str | None = Field(description="Null where no sequence_ids were sent.")
    tokens: int
    by: list[Figures] = Field(description="The rankings that it stands in: gap, by, rank from 1.")
    gaps: dict[str, Figures]
    positions: list[Figures] = Field(description="The token of the largest |d| of each gap, with its log-probs.")
    columns: dict[str, list[float | None] | float | None] | None = Field(
        None, description="Raw tokens, where they were kept; one number for what is of the whole sequence."
    )
    keep: dict[str, list[int] | None] = Field(
        {}, description="By row of `methods`, 1 or 0 for each raw token; null where these cannot decide it."
    )


class Worst(Shape):
    """Worst sequences first."""

    sequences: list[WorstSequence]


class Recommendations(Shape):
    """Thresholds for the target, and the rows of the run that do nothing or too much."""

    target: float
    methods: list[Threshold]
    presets: list[PresetState]
    steps: list[int] = Field(description="First and last step looked at; empty where none counts.")


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
    resolved_step: int | None = Field(description="Step whose judgement ended it; null where no step did.")
    breach_steps: int
    value: float | None
    peak: float | None = Field(description="The worst value while it was open; null of what an older release kept.")
    threshold: float | None
    expression: str
    summary: str
    half: str | None = Field(description="What is at fault: mismatch, staleness, total, data; null for none of these.")
    runbook: str = Field(description="What it means and what to do.")
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
    required_steps: int | None = None
    breach_steps: int | None = None
    since_step: int | None = None
    missing: list[str] = []
    baseline: Baseline | None = Field(None, description="Of a rule that compares with the run's beginning.")
    expression: str
    summary: str
    half: str | None
    runbook: str


class Rules(Shape):
    """Every rule, at the step the run was judged at last."""

    step: int | None
    rules: list[RuleState]
