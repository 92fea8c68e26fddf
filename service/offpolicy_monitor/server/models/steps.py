"""Gradient steps: their figures, histograms and worst sequences."""

from pydantic import Field

from offpolicy_monitor.server.figure_shapes import OF_A_STEP
from offpolicy_monitor.server.models.figures import ALWAYS_OF_A_STEP, Figures, with_figures
from offpolicy_monitor.server.models.shape import Shape


class StepAlert(Shape):
    """A rule in breach, by its severity."""

    alert: str
    severity: str


class Step(Shape):
    """One merged gradient step, with its figures."""

    model_config = with_figures(OF_A_STEP, ALWAYS_OF_A_STEP)

    step: int
    minibatch: int
    attempt: int
    shards: int = Field(description="Shards that it has when it is whole.")
    received_shards: int = Field(description="Of these, those in its figures.")
    complete: bool
    policy_version: int | None = Field(description="The newest that a shard told; null where none did.")
    received_at: str = Field(description="When its newest shard came.")
    verdict: str | None = Field(description="accept, warn or skip, of the training step; null before it is judged.")
    alerts: list[StepAlert] | None = Field(description="Warnings and worse that were active at it.")


class Steps(Shape):
    """A page of steps in order."""

    steps: list[Step]
    next_cursor: str | None


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
