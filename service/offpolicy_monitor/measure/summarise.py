"""RaggedBatch -> StepSummary: sums of core become the named sums of summary, block by block.

A block's summary is a StepSummary like any other, and a batch's is the merge of its blocks'. This package is the only
place that knows both core and summary.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from torch import Tensor

from offpolicy_monitor.batch import Array, Origin
from offpolicy_monitor.core.decision import Decision, decision_sums
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.gap_sums import cross_sums, sequence_sums, tiny_probability_sums, to_floats, token_sums
from offpolicy_monitor.core.histogram import bin_counts
from offpolicy_monitor.measure.bins import histogram_bins, layout
from offpolicy_monitor.measure.blocks import Block, DeviceBatch, ValidTokens
from offpolicy_monitor.measure.counts import batch_sums, lag_sums
from offpolicy_monitor.measure.decide import Decider, applicable
from offpolicy_monitor.measure.tables import BlockView, Maker, tables_of
from offpolicy_monitor.measure.worst import worst
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary.method import Spec
from offpolicy_monitor.summary.named import Parts, summary_of
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.tables.worst import Worst

#: Groups of core.advantages.sign_groups; histograms of batches without advantages go under `unknown`.
ADVANTAGE_SIGNS: Final = ("negative", "zero", "positive")
UNKNOWN_SIGN: Final = "unknown"

#: A block whose probabilities sum up to less has them summed in float64: float32 holds none below 1e-38 well, which in
#: any other block are nothing beside the rest.
TINY_PROBABILITIES: Final = 1e-30


def summarise(
    loaded: DeviceBatch,
    rows: Sequence[MethodRow],
    block_tokens: int,
    origin: Origin,
    makers: Sequence[Maker],
    keep_worst: int | None = None,
) -> StepSummary:
    """The summary of a batch.

    `keep_worst` sequences of each ranking of the worst keep raw log-probs; None looks for no worst sequences.
    """
    rows = applicable(rows, loaded)
    decider = Decider(rows, loaded)
    summary = started(loaded, rows, origin)
    for block in loaded.blocks(block_tokens):
        summary = summary.merge(summarise_block(block, decider, origin, makers, keep_worst))
    return summary


def started(loaded: DeviceBatch, rows: Sequence[MethodRow], origin: Origin) -> StepSummary:
    """The summary before any block: counts of the whole batch, and every gap and row without tokens."""
    batch = {**batch_sums(loaded.source, loaded), **lag_sums(loaded.source, origin.policy_version)}
    methods = {row.name: no_drops(row) for row in rows}
    return summary_of(Parts(batch, {gap: {} for gap in loaded.gaps}, methods=methods, specs=_specs(rows)))


def summarise_block(
    block: Block, decider: Decider, origin: Origin, makers: Sequence[Maker], keep_worst: int | None
) -> StepSummary:
    """The summary of one block: gaps, methods, cross terms, tables and the worst sequences."""
    valid = {gap: tokens for gap in block.batch.gaps if (tokens := block.valid(gap)) is not None}
    bins = {gap: histogram_bins(tokens.gap.log_ratio) for gap, tokens in valid.items()}
    decisions = [
        (row, decider.decide(place, valid[row.gap].gap)) for place, row in enumerate(decider.rows) if row.gap in valid
    ]
    view = BlockView(block, valid, bins, decisions, origin)
    return summary_of(
        Parts(
            {},
            {name: gap_sums(tokens.gap) for name, tokens in valid.items()},
            {name: _histograms(tokens.gap, bins[name]) for name, tokens in valid.items()},
            {row.name: method_sums(row, valid[row.gap].gap, decision) for row, decision in decisions},
            _specs(row for row, _ in decisions),
            _cross(block, valid),
            tables_of(view, makers),
            Worst() if keep_worst is None else worst(view, keep_worst),
        )
    )


def gap_sums(gap: GapTokens) -> dict[str, float]:
    """Sums of one gap over a block."""
    sums = to_floats({**token_sums(gap), **sequence_sums(gap)})
    if min(sums["p"], sums["q"]) < TINY_PROBABILITIES:
        sums |= to_floats(tiny_probability_sums(gap))
    return {"tokens": gap.segments.tokens, "sequences": gap.segments.sequences, **sums}


def method_sums(row: MethodRow, gap: GapTokens, decision: Decision) -> dict[str, float]:
    """Sums of one row's decision over a block."""
    counts = {"tokens": gap.segments.tokens, "sequences": gap.segments.sequences}
    return {**counts, **to_floats(decision_sums(gap, decision, row.two_sided))}


def no_drops(row: MethodRow) -> dict[str, float]:
    """The row's sums before any token: its counts are 0, and adding them changes nothing."""
    names = ["masked_tokens", "masked_sequences", "touched_sequences"]
    if row.two_sided:
        names += ["masked_low_tokens", "masked_high_tokens"]
    return dict.fromkeys(names, 0)


def _specs(rows: Iterable[MethodRow]) -> dict[str, Spec | None]:
    return {row.name: row.spec for row in rows}


def _histograms(gap: GapTokens, token_bins: Tensor) -> dict[str, Array]:
    advantages = gap.advantages
    token_groups = None if advantages is None else advantages.sign_groups
    sequence_groups = None if advantages is None else advantages.sequence_sign_groups
    return {
        **_histogram("log_ratio", token_bins, token_groups),
        **_histogram("log_geometric_ratio", histogram_bins(gap.sequence_mean), sequence_groups),
        **_histogram("log_product_ratio", histogram_bins(gap.sequence_sum), sequence_groups),
    }


def _histogram(quantity: str, bins: Tensor, groups: Tensor | None) -> dict[str, Array]:
    names = (UNKNOWN_SIGN,) if groups is None else ADVANTAGE_SIGNS
    counts = bin_counts(bins, groups, len(names), layout(bins.device)).cpu().numpy()
    return {f"{quantity}/{name}": row for name, row in zip(names, counts, strict=True)}


def _cross(block: Block, valid: Mapping[str, ValidTokens]) -> dict[str, float]:
    if len(valid) < 3:
        return {}
    mismatch, staleness = block.jointly_valid("mismatch"), block.jointly_valid("staleness")
    if mismatch is None or staleness is None:
        return {}
    sums = to_floats(cross_sums(mismatch.gap, staleness.gap))
    return {"tokens": mismatch.gap.segments.tokens, **sums}
