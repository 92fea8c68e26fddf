"""Gaps: the tokens of several gaps in stacked columns, and what each of their sequences comes to.

Shapes: C policies, G gaps, T packed tokens, N sequences. A gap is a pair of policies; where a log-prob is not finite
its token is not valid for the gaps that need it: its d is 0, and it is in no count. Everything is computed once, for
all gaps at a time, and only when asked for. No sums over the batch here (core.columns, core.gap_sums), no rules
(core.corrections). The notation is that of core.columns; over a sequence, D is the sum and L the mean of d.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from offpolicy_monitor.core.advantages import Advantages
from offpolicy_monitor.core.checks import DOUBLE, MARKS, NUMBERS, check
from offpolicy_monitor.core.columns import TokenColumns, token_columns
from offpolicy_monitor.core.device import constant, where
from offpolicy_monitor.core.divergences import bernoulli, binary_kls
from offpolicy_monitor.core.ragged import Segments
from offpolicy_monitor.methods.curve import Given
from offpolicy_monitor.vocabulary import NEGATIVE, POSITIVE, ZERO


def chosen(rows: Tensor, indices: Sequence[int]) -> Tensor:
    """Some rows of a stack, in any order and as often as named: [K, ...] -> [len(indices), ...], one row at least.

    Rows are of any number's dtype, which they keep; those that stand evenly apart are not copied. Raises ValueError for
    a single number, IndexError for a row that is not there, TypeError for another dtype.
    """
    check("rows", rows, of=NUMBERS)
    if not all(0 <= index < len(rows) for index in indices):
        raise IndexError(f"rows {list(indices)} of {len(rows)}")
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    if step > 0 and all(second - first == step for first, second in pairwise(indices)):
        return rows[indices[0] : indices[-1] + 1 : step]
    return torch.stack([rows.select(0, index) for index in indices])


class PerSequence(NamedTuple):
    """What each sequence's valid tokens have, summed up or on average: [G, N] float64 each."""

    log_ratio: Tensor  # d; its sum is D, the log of the product ratio, its mean L, the log of the geometric ratio
    log_ratio_abs: Tensor
    log_ratio_square: Tensor
    k3: Tensor
    growth: Tensor  # exp|d| - 1
    numerator: Tensor  # a
    denominator: Tensor  # b


class Ends(NamedTuple):
    """The smallest and the largest value that each sequence's valid tokens have: [G, N] float64, 0 without one."""

    min: Tensor
    max: Tensor


@dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps over the same tokens.

    Raises ValueError for another rank or length, and for advantages of other sequences, IndexError for a pair of
    policies or two gaps that are not there, TypeError for another dtype.

    policies    [C, T] float32 or float64: log-probs, nats, finite; 0 where they were not
    pairs       which policy is the numerator of each gap, and which its denominator
    valid       [G, T] bool, or None where every token is valid
    crossed     two gaps that are valid for the same tokens, whose log-ratios are multiplied; None for none
    centres     [G] float64, about which squares are summed (core.columns), or None for 0
    """

    policies: Tensor
    pairs: Sequence[tuple[int, int]]
    segments: Segments
    advantages: Advantages | None = None
    valid: Tensor | None = None
    crossed: tuple[int, int] | None = None
    centres: Tensor | None = None

    def __post_init__(self) -> None:
        check("policies", self.policies, -1, self.segments.tokens)
        check("valid", self.valid, self.number, self.segments.tokens, of=MARKS)
        check("centres", self.centres, self.number, of=DOUBLE)
        if self.advantages is not None and not self.advantages.segments.equal(self.segments):
            raise ValueError("advantages are of other sequences")
        if not all(0 <= side < len(self.policies) for pair in self.pairs for side in pair):
            raise IndexError(f"pairs {list(self.pairs)} of {len(self.policies)} policies")
        if not all(0 <= gap < self.number for gap in self.crossed or ()):
            raise IndexError(f"gaps {self.crossed} of {self.number}")

    @property
    def number(self) -> int:
        """G."""
        return len(self.pairs)

    @cached_property
    def sides(self) -> Tensor:
        """a and b, [2, G, T] nats; 0 where not valid."""
        sides = [pair[side] for side in (0, 1) for pair in self.pairs]
        return self.kept(chosen(self.policies, sides).reshape(2, self.number, -1))

    @cached_property
    def columns(self) -> TokenColumns:
        """The derived columns, [G, T] each, and their totals."""
        return token_columns(self.sides, self.valid, self.centres)

    def kept(self, values: Tensor) -> Tensor:
        """The values [..., G, T] of valid tokens, 0 for the others, whatever stands there."""
        return values if self.valid is None else where(self.valid, values, 0.0)

    @cached_property
    def counts(self) -> Tensor:
        """[G, N] float64: valid tokens of each sequence."""
        if self.valid is None:
            return self.segments.counts.expand(self.number, -1)
        return self._sums[1]

    def counts_of(self, indices: Sequence[int]) -> Tensor:
        """`counts` of some of the gaps: [len(indices), N], or [1, N] where they are those of any."""
        return self.counts[:1] if self.valid is None else chosen(self.counts, indices)

    @cached_property
    def filled(self) -> Tensor:
        """[G, N] bool: sequences with a valid token."""
        return self.counts > 0

    def of_filled(self, values: Tensor) -> Tensor:
        """The values [..., G, N] of sequences with a valid token, 0 for the others, whatever stands there."""
        return values if self.valid is None else where(self.filled, values, 0.0)

    @cached_property
    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        """[7, G, N] in the order of PerSequence, [G, N] of `valid` and [1, N] of `product`, or [0, N]; float64 each."""
        columns = self.columns
        squares = columns.log_ratio_square, columns.k3, columns.growth
        rows = [columns.log_ratio, columns.log_ratio_abs, *squares, *self.sides]
        beside = [] if self.valid is None else [self.valid]
        beside += [] if self.crossed is None else [self.product[None]]
        found = self.segments.sum(torch.cat([*rows, *beside]))
        sizes = [len(rows) * self.number, 0 if self.valid is None else self.number, 0 if self.crossed is None else 1]
        sums, counts, product = torch.split(found, sizes)
        return sums.view(len(rows), self.number, -1), counts, product

    @cached_property
    def sums(self) -> PerSequence:
        """Sums over each sequence's valid tokens."""
        return PerSequence(*self._sums[0])

    @cached_property
    def means(self) -> PerSequence:
        """The same over the number of valid tokens; 0 where there are none."""
        counts = self.counts if self.valid is None else self.counts.clamp(min=1.0)
        return PerSequence(*self._sums[0] / counts)

    @cached_property
    def product(self) -> Tensor:
        """[T]: the product of the log-ratios of `crossed`; ValueError without."""
        if self.crossed is None:
            raise ValueError("a product is that of two gaps")
        first, second = (self.columns.log_ratio.select(0, gap) for gap in self.crossed)
        return first * second

    @property
    def product_of_sequences(self) -> Tensor:
        """[N] float64: its sum over each sequence; ValueError without `crossed`."""
        return self._sums[2].squeeze(0)

    def ends(self, columns: Mapping[str, Tensor]) -> Mapping[str, Ends]:
        """Those of some columns, [G, T] each, by their names."""
        values = torch.stack(list(columns.values()))
        if self.valid is None:
            low, high = self.segments.min(values), self.segments.max(values)
        else:  # one maximum finds both: the smallest is the largest of -x
            signs = constant([-1.0, 1.0], values.dtype, values.device)[:, None, None, None]
            signed = values * signs
            found = self.segments.max(where(self.valid, signed, -torch.inf, out=signed))
            low, high = (self.of_filled(found) * signs).unbind()
        return dict(zip(columns, map(Ends, low, high), strict=True))

    @cached_property
    def extremes(self) -> Mapping[str, Ends]:
        """Those of log-ratios, of differences of probabilities, and of binary KLs, which are found together."""
        names = ("log_ratio", "log_ratio_abs", "probability_difference", "probability_difference_abs")
        columns = {name: getattr(self.columns, name) for name in names}
        return self.ends(columns | dict(zip(("kl_away", "kl_larger"), self.binary_kls, strict=True)))

    @cached_property
    def binary_kls(self) -> tuple[Tensor, Tensor]:
        """KL(q || p) with the sign of d, and the larger of KL(q || p) and KL(p || q): [G, T] float64 each, nats.

        Of a token that is not valid without meaning, and not NaN.
        """
        of_policies, sides = bernoulli(self.policies), [pair[side] for side in (1, 0) for pair in self.pairs]
        stacked = torch.stack([part.select(0, policy) for part in of_policies for policy in sides])
        moved, back = binary_kls(stacked.view(len(of_policies), 2, self.number, -1))
        return torch.copysign(moved, self.columns.log_ratio), torch.maximum(moved, back)

    @cached_property
    def outward(self) -> dict[tuple[str, Given], Tensor]:
        """[G, T] each: the scores of core.outward that were asked for, by their names and what they depend on."""
        return {}

    @cached_property
    def token_weights(self) -> Tensor:
        """k3, d^2 and |A| (0 without advantages) of each token: [G, 3, T]."""
        return torch.stack([self.columns.k3, self.columns.log_ratio_square, self.mass], 1)

    @cached_property
    def sequence_weights(self) -> Tensor:
        """The same added up over each sequence's valid tokens: [G, 3, N] float64."""
        return torch.stack([self.sums.k3, self.sums.log_ratio_square, self.sequence_mass], 1)

    @cached_property
    def mass(self) -> Tensor:
        """[G, T]: |A| of valid tokens, 0 without advantages."""
        if self.advantages is None:
            return self._nothing.expand(self.number, self.segments.tokens)
        return self.kept(self.advantages.magnitudes.expand(self.number, -1))

    @cached_property
    def sequence_mass(self) -> Tensor:
        """[G, N] float64: sum of |A| over each sequence's valid tokens, 0 without advantages."""
        if self.advantages is None:
            return self._nothing.expand(self.number, self.segments.sequences)
        if self.advantages.per_token:
            return self.by_sign.select(1, 1).sum(1)
        return self.advantages.values.abs() * self.counts

    @cached_property
    def by_sign(self) -> Tensor:
        """[G, 2, 3, N] float64: valid tokens of each sequence with A < 0, A = 0 and A > 0, and the sums of their |A|.

        Raises ValueError without advantages.
        """
        if self.advantages is None:
            raise ValueError("tokens by the sign of A need advantages")
        signs = constant([[NEGATIVE], [ZERO], [POSITIVE]], torch.int64, self.policies.device)
        marks = self.advantages.groups == signs
        if not self.advantages.per_token:
            return marks * torch.stack([self.counts, self.sequence_mass], 1)[:, :, None]
        sizes = self.advantages.magnitudes
        values = torch.stack([constant(1.0, sizes.dtype, sizes.device).expand(len(sizes)), sizes])[:, None]
        if self.valid is None:
            return self.segments.sum(marks * values).expand(self.number, -1, -1, -1)
        return self.segments.sum((marks & self.valid[:, None])[:, None] * values)

    @cached_property
    def _nothing(self) -> Tensor:
        return torch.zeros((), dtype=torch.float64, device=self.policies.device)
