"""What a rule decides about tokens or sequences, and the sums that tell what it would do to a batch.

Shapes: T valid tokens, N sequences. A whole sequence's decision stands at each of its tokens, so token figures mean the
same for decisions on tokens and on sequences. Dropped tokens are held as places: a healthy run has few of them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.ragged import total
from offpolicy_monitor.core.select import no_places


@dataclass(frozen=True, eq=False)
class TokenDrops:
    """Places of the dropped tokens, [n] int64 each: below and above the bounds, or all in `low` without sides."""

    low: Tensor
    high: Tensor

    @property
    def places(self) -> Tensor:
        """All dropped tokens."""
        return torch.cat([self.low, self.high])


@dataclass(frozen=True, eq=False)
class SequenceDrops:
    """0/1 a sequence, [N] float64 each: dropped for being low or high, or all in `low` where a rule has no sides."""

    low: Tensor
    high: Tensor

    @property
    def dropped(self) -> Tensor:
        """[N] float64: 1 where the sequence is dropped."""
        return self.low + self.high


@dataclass(frozen=True, eq=False)
class Weights:
    """What a truncation multiplies the loss with, the same less 1, and 0/1 where it changed r: all [T], or all [N]."""

    weight: Tensor
    excess: Tensor
    truncated: Tensor
    a_token: bool


Decision = TokenDrops | SequenceDrops | Weights


def decision_sums(gap: GapTokens, decision: Decision, two_sided: bool) -> dict[str, Tensor]:
    """Counts and sums of one decision over the batch, 0-dim float64 by the names of summary.method."""
    if isinstance(decision, SequenceDrops):
        sums = _sequence_drops(gap, decision)
    else:
        nothing = no_places(gap.numerator)
        sums = _token_drops(gap, decision if isinstance(decision, TokenDrops) else TokenDrops(nothing, nothing))
    if not two_sided:
        sums = {name: value for name, value in sums.items() if name not in ("masked_low_tokens", "masked_high_tokens")}
    if gap.advantages is None:
        sums = {name: value for name, value in sums.items() if name != "masked_advantage_mass"}
    else:
        sums["advantage_mass"] = gap.advantages.mass.sum()
    return {**sums, **_weight_sums(gap, decision)} if isinstance(decision, Weights) else sums


def keep_tokens(gap: GapTokens, decision: Decision) -> Tensor:
    """[T] bool: which valid tokens the rule keeps."""
    if isinstance(decision, SequenceDrops):
        return gap.segments.spread(decision.dropped) == 0
    keep = torch.ones(gap.segments.tokens, dtype=torch.bool, device=gap.numerator.device)
    if isinstance(decision, TokenDrops):
        keep[decision.places] = False
    return keep


def token_weights(gap: GapTokens, decision: Decision) -> Tensor | None:
    """[T] float: the weight of each valid token, or None where the rule gives none."""
    if not isinstance(decision, Weights):
        return None
    return decision.weight if decision.a_token else gap.segments.spread(decision.weight)


def _token_drops(gap: GapTokens, decision: TokenDrops) -> dict[str, Tensor]:
    places = decision.places
    owners = gap.segments.owners(places)
    in_sequence = torch.bincount(owners, minlength=gap.segments.sequences).double()
    k3, square = gap.columns.k3, gap.columns.log_ratio_square
    k3_masked, square_masked = total(k3[places]), total(square[places])
    return {
        "masked_tokens": _count(gap, places),
        "masked_low_tokens": _count(gap, decision.low),
        "masked_high_tokens": _count(gap, decision.high),
        "masked_sequences": total(in_sequence == gap.segments.counts),
        "touched_sequences": total(in_sequence > 0),
        "k3_kept": _kept(k3, gap.sequence_k3_sum, k3_masked, places),
        "k3_masked": k3_masked,
        "log_ratio_square_kept": _kept(square, gap.sequence_square_sum, square_masked, places),
        "log_ratio_square_masked": square_masked,
        "masked_advantage_mass": _mass(gap, places),
    }


def _kept(values: Tensor, sequence_sums: Tensor, masked: Tensor, places: Tensor) -> Tensor:
    """The sum over kept tokens: all less the masked, or added up anew where that difference would cancel.

    A rule drops the largest values, so what is kept can be a rounding error of the whole.
    """
    whole = sequence_sums.sum()
    if float(masked) <= 0.5 * float(whole):
        return whole - masked
    kept = values.to(torch.float64, copy=True)
    kept[places] = 0
    return kept.sum()


def _mass(gap: GapTokens, places: Tensor) -> Tensor:
    """Sum of |A| over these tokens."""
    return total(places[:0] if gap.advantages is None else gap.advantages.at(places).abs())


def _count(gap: GapTokens, places: Tensor) -> Tensor:
    return torch.tensor(len(places), dtype=torch.float64, device=gap.numerator.device)


def _sequence_drops(gap: GapTokens, decision: SequenceDrops) -> dict[str, Tensor]:
    dropped, counts = decision.dropped, gap.segments.counts
    kept, sequences = 1 - dropped, dropped.sum()
    k3, square = gap.sequence_k3_sum, gap.sequence_square_sum
    return {
        "masked_tokens": torch.dot(dropped, counts),
        "masked_low_tokens": torch.dot(decision.low, counts),
        "masked_high_tokens": torch.dot(decision.high, counts),
        "masked_sequences": sequences,
        "touched_sequences": sequences,
        "k3_kept": torch.dot(k3, kept),
        "k3_masked": torch.dot(k3, dropped),
        "log_ratio_square_kept": torch.dot(square, kept),
        "log_ratio_square_masked": torch.dot(square, dropped),
        "masked_advantage_mass": counts.new_zeros(()) if gap.advantages is None else gap.advantages.mass @ dropped,
    }


def _weight_sums(gap: GapTokens, weights: Weights) -> dict[str, Tensor]:
    """Sums over tokens; squares in float64, since a weight without an upper bound may be as large as exp(80)."""
    weight, excess, truncated = weights.weight.double(), weights.excess.double(), weights.truncated.double()
    counts = torch.ones_like(weight) if weights.a_token else gap.segments.counts
    return {
        "weight": torch.dot(weight, counts),
        "weight_square": torch.dot(weight.square(), counts),
        "weight_excess": torch.dot(excess, counts),
        "weight_excess_square": torch.dot(excess.square(), counts),
        "weight_max": weight.amax(),
        "truncated_tokens": torch.dot(truncated, counts),
    }


def differing_tokens(gap: GapTokens, left: Decision, right: Decision) -> float:
    """How many of the gap's tokens one rule decides differently in two decisions of one kind."""
    if isinstance(left, TokenDrops) and isinstance(right, TokenDrops):
        marked = torch.zeros(gap.segments.tokens, dtype=torch.bool, device=gap.numerator.device)
        marked[left.places] = True
        both = int(marked[right.places].sum())
        return len(left.places) + len(right.places) - 2 * both
    if isinstance(left, SequenceDrops) and isinstance(right, SequenceDrops):
        return float(torch.dot((left.dropped != right.dropped).double(), gap.segments.counts))
    if isinstance(left, Weights) and isinstance(right, Weights):
        differs = (left.truncated != right.truncated).double()
        return float(differs.sum() if left.a_token else torch.dot(differs, gap.segments.counts))
    raise TypeError(f"cannot compare {type(left).__name__} with {type(right).__name__}")


def masked_in_sequences(gap: GapTokens, decision: Decision) -> Tensor | None:
    """[N] float64: dropped tokens of each sequence, or 0/1 for rules on whole sequences; None for weights."""
    if isinstance(decision, SequenceDrops):
        return decision.dropped
    if isinstance(decision, TokenDrops):
        return torch.bincount(gap.segments.owners(decision.places), minlength=gap.segments.sequences).double()
    return None
