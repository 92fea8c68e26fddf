"""RaggedBatch -> StepSummary: sums of core become the named sums of summary, block by block.

A block's summary is a StepSummary like any other, and a batch's is the merge of its blocks'. This package is the only
place that knows both core and summary.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import LOGPROB_COLUMNS, RaggedBatch
from offpolicy_monitor.core import rules
from offpolicy_monitor.core.decision import Decision, TokenDrops, decision_sums
from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.gap_sums import cross_sums, sequence_sums, to_floats, token_sums
from offpolicy_monitor.core.histogram import Layout, bin_counts, bin_numbers
from offpolicy_monitor.core.select import no_places, places_above, places_below
from offpolicy_monitor.measure.blocks import Block, DeviceBatch, ValidTokens
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.summary import histogram as bins
from offpolicy_monitor.summary.gap import GapSummary
from offpolicy_monitor.summary.histogram import Histogram
from offpolicy_monitor.summary.method import MethodSummary
from offpolicy_monitor.summary.step import StepSummary

#: Groups of core.advantages.sign_groups; histograms of batches without advantages go under `unknown`.
ADVANTAGE_SIGNS: Final = ("negative", "zero", "positive")
UNKNOWN_SIGN: Final = "unknown"

#: Integer-valued sums, stored as integers.
COUNTS: Final = frozenset(
    {
        "tokens", "sequences", "tail_tokens", "exact_tokens", "clamped_tokens", "masked_tokens", "masked_low_tokens",
        "masked_high_tokens", "masked_sequences", "touched_sequences", "truncated_tokens",
    }
)  # fmt: skip

#: Of all numbers only zero has a smaller magnitude than this subnormal float32.
SMALLEST_MAGNITUDE: Final = 2.0**-149

#: For each request-wide row, by its place in the rows: the [n] 0/1 cut over the gap's valid tokens, None if all stay.
Cuts = Mapping[int, Tensor | None]


def applicable(rows: Sequence[MethodRow], batch: DeviceBatch) -> list[MethodRow]:
    """The rows whose gap, and whose advantages where the rule needs them, were sent."""
    return [row for row in rows if row.gap in batch.gaps and (batch.advantages is not None or not row.method.signed)]


def request_cuts(rows: Sequence[MethodRow], batch: DeviceBatch) -> Cuts:
    """Decide the request-wide rules over all tokens of the batch at once."""
    cuts: dict[int, Tensor | None] = {}
    for place, row in enumerate(rows):
        if row.method.request_wide:
            valid = batch.whole().valid(row.gap)
            if valid is not None:
                log_ratio = valid.gap.numerator - valid.gap.denominator
                cuts[place] = rules.second_moment_cut(log_ratio, **row.parameters)
    return cuts


class Decider:
    """Runs rows on the blocks of one batch in order, handing request-wide rules their part of the cut."""

    def __init__(self, rows: Sequence[MethodRow], batch: DeviceBatch) -> None:
        self.rows = rows
        self._cuts = request_cuts(rows, batch)
        self._seen: dict[int, int] = dict.fromkeys(self._cuts, 0)

    def decide(self, place: int, gap: GapTokens) -> Decision:
        """The decision of the row at `place` on the valid tokens of its gap in the next block."""
        row = self.rows[place]
        if not row.method.request_wide:
            return row.method.rule(gap, **row.arguments)
        cut, start = self._cuts[place], self._seen[place]
        self._seen[place] = start + gap.segments.tokens
        if cut is None:
            return TokenDrops(no_places(gap.numerator), no_places(gap.numerator))
        return row.method.rule(gap, cut=cut[start : self._seen[place]])


def summarise(batch: RaggedBatch, loaded: DeviceBatch, rows: Sequence[MethodRow], block_tokens: int) -> StepSummary:
    """The summary of a batch, without the figures that need its envelope (see `batch_sums`)."""
    rows = applicable(rows, loaded)
    decider = Decider(rows, loaded)
    summary = StepSummary(
        batch_sums(batch, loaded),
        {gap: GapSummary() for gap in loaded.gaps},
        {row.name: _no_drops(row) for row in rows},
    )
    for block in loaded.blocks(block_tokens):
        summary = summary.merge(summarise_block(block, decider))
    return summary


def summarise_block(block: Block, decider: Decider) -> StepSummary:
    """The summary of one block: gaps, methods and cross terms."""
    valid = {gap: block.valid(gap) for gap in block.batch.gaps}
    gaps = {name: gap_summary(tokens.gap) for name, tokens in valid.items() if tokens is not None}
    methods = {}
    for place, row in enumerate(decider.rows):
        tokens = valid[row.gap]
        if tokens is not None:
            methods[row.name] = method_summary(row, tokens.gap, decider.decide(place, tokens.gap))
    return StepSummary({}, gaps, methods, _cross(block, valid))


def gap_summary(gap: GapTokens) -> GapSummary:
    """Sums and histograms of one gap over a block."""
    sums = to_floats({**token_sums(gap), **sequence_sums(gap)})
    counts = {"tokens": gap.segments.tokens, "sequences": gap.segments.sequences}
    return GapSummary(_with_integers({**counts, **sums}), _histograms(gap))


def method_summary(row: MethodRow, gap: GapTokens, decision: Decision) -> MethodSummary:
    """Sums of one row's decision over a block."""
    counts = {"tokens": gap.segments.tokens, "sequences": gap.segments.sequences}
    return MethodSummary(row.spec, _with_integers({**counts, **to_floats(decision_sums(gap, decision, row.two_sided))}))


def _no_drops(row: MethodRow) -> MethodSummary:
    """The row's summary before any token: its counts are 0, and adding them changes nothing."""
    names = ["masked_tokens", "masked_sequences", "touched_sequences"]
    if row.two_sided:
        names += ["masked_low_tokens", "masked_high_tokens"]
    return MethodSummary(row.spec, dict.fromkeys(names, 0))


def _with_integers(sums: Mapping[str, float]) -> dict[str, float]:
    return {name: int(value) if name in COUNTS else value for name, value in sums.items()}


@cache
def _layout(device: torch.device) -> Layout:
    return Layout(
        bins.SMALLEST_EXPONENT,
        bins.LARGEST_EXPONENT,
        bins.MANTISSA_BITS,
        torch.from_numpy(bins.splits()).to(device),
    )


def _histograms(gap: GapTokens) -> dict[str, Histogram]:
    advantages = gap.advantages
    token_groups = None if advantages is None else advantages.sign_groups
    sequence_groups = None if advantages is None else advantages.sequence_sign_groups
    return {
        **_histogram("log_ratio", gap.log_ratio, token_groups),
        **_histogram("log_geometric_ratio", gap.sequence_mean, sequence_groups),
        **_histogram("log_product_ratio", gap.sequence_sum, sequence_groups),
    }


def _histogram(quantity: str, values: Tensor, groups: Tensor | None) -> dict[str, Histogram]:
    layout = _layout(values.device)
    names = (UNKNOWN_SIGN,) if groups is None else ADVANTAGE_SIGNS
    counts = bin_counts(bin_numbers(values, layout), groups, len(names), layout).cpu().numpy()
    return {f"{quantity}/{name}": Histogram(row) for name, row in zip(names, counts, strict=True) if row.any()}


def _cross(block: Block, valid: Mapping[str, ValidTokens | None]) -> dict[str, float]:
    if len(valid) < 3:
        return {}
    mismatch, staleness = valid["mismatch"], valid["staleness"]
    if block.batch.finite:
        mismatch, staleness = block.jointly_valid("mismatch"), block.jointly_valid("staleness")
    if mismatch is None or staleness is None:
        return {}
    sums = to_floats(cross_sums(mismatch.gap, staleness.gap))
    return {"tokens": mismatch.gap.segments.tokens, **sums}


def batch_sums(batch: RaggedBatch, loaded: DeviceBatch) -> dict[str, float]:
    """Counts of the whole batch (summary.step.BATCH_SUMS): what was sent, what was excluded, what is suspect."""
    lengths = np.diff(batch.offsets)
    sums: dict[str, float] = {
        "tokens": batch.tokens,
        "sequences": batch.sequences,
        "empty_sequences": int((lengths == 0).sum()),
        **_suspects(loaded),
    }
    for name, column in (("entropy", "entropy"), ("reward", "rewards")):
        if column in batch.columns:
            sums |= _finite_sum(name, column in batch.a_token, batch.columns[column])
    return sums


def _finite_sum(name: str, a_token: bool, values: Any) -> dict[str, float]:
    finite = values[np.isfinite(values)]
    count = f"{name}_tokens" if a_token else f"{name}_sequences"
    return {count: len(finite), name: float(finite.sum(dtype=np.float64))} if len(finite) else {}


def _suspects(loaded: DeviceBatch) -> dict[str, int]:
    """Tokens with a non-finite log-prob (excluded); with a positive one, or with log mu exactly 0 (kept, but odd).

    Where every column's largest value is negative, which is the rule, nothing has to be counted.
    """
    columns = [loaded.columns[name] for name in LOGPROB_COLUMNS if name in loaded.columns]
    counts = {"nonfinite_tokens": 0, "positive_tokens": 0, "exact_zero_tokens": 0}
    if not loaded.finite and all(not len(column) or float(column.amax()) < 0 for column in columns):
        return counts
    if loaded.finite:
        finite = torch.stack(list(loaded.finite.values())).all(0)
        counts["nonfinite_tokens"] = len(finite) - int(finite.sum())
    if "sampling_logprobs" in loaded.columns:
        counts["exact_zero_tokens"] = len(places_below(loaded.columns["sampling_logprobs"].abs(), SMALLEST_MAGNITUDE))
    return {**counts, "positive_tokens": len(torch.unique(torch.cat([_positive(column) for column in columns])))}


def _positive(column: Tensor) -> Tensor:
    """Places of finite log-probs above 0."""
    places = places_above(column, 0.0)
    return places[torch.isfinite(column[places])]


def lag_sums(batch: RaggedBatch, policy_version: int | None) -> dict[str, float]:
    """Version lag over tokens: policy_version - policy_versions ([S] or [T]); -1 is not generated."""
    versions = batch.columns.get("policy_versions")
    if versions is None or policy_version is None:
        return {}
    weights = np.ones(len(versions)) if "policy_versions" in batch.a_token else np.diff(batch.offsets)
    known = (versions >= 0) & (weights > 0)
    if not known.any():
        return {}
    lags = policy_version - versions[known].astype(np.float64)
    return {
        "lag_tokens": int(weights[known].sum()),
        "lag": float((lags * weights[known]).sum()),
        "lag_max": float(lags.max()),
    }
