"""Runs, what is said of one, and what may cause its mismatch."""

from typing import Final

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from offpolicy_monitor.server.models.figures import Figures
from offpolicy_monitor.server.models.shape import Shape

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


class Spark(Shape):
    """A figure over all steps of a run, by step, in few values: the least and the largest of each stretch."""

    field: str = Field(description="gaps.mismatch.k3, or gaps.total.k3 where that was not sent.")
    values: list[float | None] = Field(description="At most 48, in order.")
    limit: float | None = Field(description="From where on MismatchKL warns in this run; null where nothing judges it.")


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
        description="In the imperative; then what the correction in use masks, what the standard method would, "
        "and where it masks 1%."
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


class RowCurves(Shape):
    """What-if of a row."""

    query: dict[str, str] = Field(description="What `whatif` is asked for its curves.")
    thresholds: list[str] = Field(description="Its thresholds that have a curve, by their names in the row.")


class Run(RunRow):
    """One run, with what runs on its batches."""

    methods: list[Figures] = Field(description="Rows in effect, as `methods` of PATCH takes them.")
    default_methods: bool = Field(description="Whether none were chosen, so that the default rows run.")
    correction: str | None = Field(description="The row that the trainer really uses, if it said so.")
    compared: list[str] = Field(description="Rows that pages show beside the correction, the first ones first.")
    whatif: dict[str, RowCurves] = Field(description="By the names of rows, those that have curves.")
    length_cap: int | None = Field(description="Tokens that an answer may have at most, if the trainer said so.")
    alerts: dict[str, Figures] = Field(description="The run's own thresholds, by rule.")
    median_step_seconds: float | None = Field(
        description="From one step's first shard to the next one's, over the last 32 steps; null with fewer than two."
    )
    silent_after: float = Field(description="Seconds without a batch after which the run is silent.")


class Runs(Shape):
    """A page of runs."""

    runs: list[RunRow]
    next_cursor: str | None


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


class Finding(Shape):
    """Something that is wrong with the way a run is posted."""

    name: str
    severity: str = Field(
        description="`warning` where figures are wrong or steps never count, `info` where something cannot be told."
    )
    title: str
    summary: str = Field(description="What was found, with its figures.")
    change: str = Field(description="The line to change.")


class Checks(Shape):
    """Findings, warnings first; none where nothing is wrong."""

    findings: list[Finding]
    steps: list[int] = Field(description="First and last step looked at; empty where none has come.")
