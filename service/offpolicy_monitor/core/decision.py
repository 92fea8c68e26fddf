"""What a rule decides about tokens or sequences, and the sums that tell what it would do to a batch.

Shapes: T valid tokens, N sequences. A rule drops (0/1 floats) or reweights, per token [T] or per sequence [N]; a whole
sequence's decision stands at each of its tokens, so token figures mean the same for both kinds.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.ragged import total


@dataclass(frozen=True, eq=False)
class Decision:
    """The outcome of a rule; all tensors [T] if `a_token`, else [N].

    low, high  0/1: dropped on the low or on the high side; `dropped` alone where a rule has no sides
    weights    what a truncation multiplies the loss with; `truncated` 0/1 where it changed the ratio
    """

    a_token: bool
    dropped: Tensor | None = None
    low: Tensor | None = None
    high: Tensor | None = None
    weights: Tensor | None = None
    truncated: Tensor | None = None

    @classmethod
    def of_sides(cls, a_token: bool, low: Tensor, high: Tensor) -> "Decision":
        """Drop what is low or high; the two never hold at once."""
        return cls(a_token, low + high, low, high)


def decision_sums(gap: GapTokens, decision: Decision) -> dict[str, Tensor]:
    """Counts and sums of one decision over the batch, 0-dim float64 by the names of summary.method."""
    measure = _token_drops if decision.a_token else _sequence_drops
    return {**measure(gap, decision), **_weight_sums(gap, decision)}


def keep_tokens(gap: GapTokens, decision: Decision) -> Tensor:
    """[T] bool: which valid tokens the rule keeps."""
    if decision.dropped is None:
        return torch.ones(gap.segments.tokens, dtype=torch.bool, device=gap.log_ratio.device)
    dropped = decision.dropped if decision.a_token else gap.segments.spread(decision.dropped)
    return dropped == 0


def token_weights(gap: GapTokens, decision: Decision) -> Tensor | None:
    """[T] float64: the weight of each valid token, or None where the rule gives none."""
    if decision.weights is None:
        return None
    return (decision.weights if decision.a_token else gap.segments.spread(decision.weights)).double()


def _zero(gap: GapTokens) -> Tensor:
    return torch.zeros((), dtype=torch.float64, device=gap.log_ratio.device)


def _nothing_dropped(gap: GapTokens, decision: Decision) -> dict[str, Tensor]:
    zero = _zero(gap)
    sums = {
        "masked_tokens": zero,
        "masked_sequences": zero,
        "touched_sequences": zero,
        "k3_kept": gap.sequence_k3_sum.sum(),
        "k3_masked": zero,
        "log_ratio_square_kept": gap.sequence_square_sum.sum(),
        "log_ratio_square_masked": zero,
    }
    if gap.advantages is not None:
        sums |= {"advantage_mass": gap.advantages.mass.sum(), "masked_advantage_mass": zero}
    if decision.low is not None:
        sums |= {"masked_low_tokens": zero, "masked_high_tokens": zero}
    return sums


def _token_drops(gap: GapTokens, decision: Decision) -> dict[str, Tensor]:
    dropped = decision.dropped
    masked = None if dropped is None else total(dropped)
    if dropped is None or masked is None or float(masked) == 0:
        return _nothing_dropped(gap, decision)
    in_sequence = gap.segments.sum(dropped)
    kept = 1 - dropped
    sums = {
        "masked_tokens": masked,
        "masked_sequences": total(in_sequence == gap.segments.counts),
        "touched_sequences": total(in_sequence > 0),
        "k3_kept": total(gap.k3.forward * kept),
        "k3_masked": total(gap.k3.forward * dropped),
        "log_ratio_square_kept": total(gap.log_ratio_square * kept),
        "log_ratio_square_masked": total(gap.log_ratio_square * dropped),
    }
    if gap.advantages is not None:
        mass = gap.advantages.magnitude_tokens
        sums |= {"advantage_mass": gap.advantages.mass.sum(), "masked_advantage_mass": total(mass * dropped)}
    if decision.low is not None and decision.high is not None:
        sums |= {"masked_low_tokens": total(decision.low), "masked_high_tokens": total(decision.high)}
    return sums


def _sequence_drops(gap: GapTokens, decision: Decision) -> dict[str, Tensor]:
    if decision.dropped is None:
        return _nothing_dropped(gap, decision)
    dropped, counts = decision.dropped.double(), gap.segments.counts
    kept, sequences = 1 - dropped, dropped.sum()
    sums = {
        "masked_tokens": torch.dot(dropped, counts),
        "masked_sequences": sequences,
        "touched_sequences": sequences,
        "k3_kept": torch.dot(gap.sequence_k3_sum, kept),
        "k3_masked": torch.dot(gap.sequence_k3_sum, dropped),
        "log_ratio_square_kept": torch.dot(gap.sequence_square_sum, kept),
        "log_ratio_square_masked": torch.dot(gap.sequence_square_sum, dropped),
    }
    if gap.advantages is not None:
        mass = gap.advantages.mass
        sums |= {"advantage_mass": mass.sum(), "masked_advantage_mass": torch.dot(mass, dropped)}
    if decision.low is not None and decision.high is not None:
        sums |= {
            "masked_low_tokens": torch.dot(decision.low.double(), counts),
            "masked_high_tokens": torch.dot(decision.high.double(), counts),
        }
    return sums


def _weight_sums(gap: GapTokens, decision: Decision) -> dict[str, Tensor]:
    if decision.weights is None or decision.truncated is None:
        return {}
    excess = decision.weights - 1
    if decision.a_token:
        return {
            "weight_excess": total(excess),
            "weight_excess_square": total(excess.square()),
            "weight_max": decision.weights.amax().double(),
            "truncated_tokens": total(decision.truncated),
        }
    counts = gap.segments.counts
    return {
        "weight_excess": torch.dot(excess, counts),
        "weight_excess_square": torch.dot(excess.square(), counts),
        "weight_max": decision.weights.amax(),
        "truncated_tokens": torch.dot(decision.truncated.double(), counts),
    }
