"""Maker of what-if tables: how many tokens and sequences, and how much |A|, have a score in which bin.

A score (core.scores) is what a rule compares with its threshold; methods.catalogue says which are kept at which gap.
The mass of a cell keeps 8 bits. Tables: `whatif/<gap>/<score>/tokens`, `.../sequences`, `.../mass` by sign and bin,
and `.../lengths`, the rule's own unit by sign, length group and coarse bin (summary.cells).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.core.gap import GapTokens
from offpolicy_monitor.core.scores import Scores
from offpolicy_monitor.measure.bins import histogram_bins
from offpolicy_monitor.methods import METHODS
from offpolicy_monitor.methods.catalogue import kept_scores
from offpolicy_monitor.methods.curve import TOKEN_SCORES
from offpolicy_monitor.summary import cells
from offpolicy_monitor.summary.named import Table, Tables
from offpolicy_monitor.vocabulary import MIXED, SIGNS, UNKNOWN

if TYPE_CHECKING:
    from offpolicy_monitor.measure.tables import BlockView


def whatif(view: "BlockView") -> Tables:
    """The what-if tables of a block."""
    tables: dict[str, Table] = {}
    for name, valid in view.valid.items():
        scores, units = Scores(valid.gap), _Units(valid.gap)
        for score, measures in kept_scores(_methods(name, view)).items():
            if score not in TOKEN_SCORES:
                made = _of_sequences(scores.of_sequences(score), units, measures)
            elif score == "log_ratio":
                made = _of_tokens(view.log_ratio_bins[name], units)
            else:
                made = _of_tokens(histogram_bins(scores.of_tokens(score)), units)
            tables |= {f"whatif/{name}/{score}/{measure}": table for measure, table in made}
    return tables


def _methods(gap: str, view: "BlockView") -> frozenset[str]:
    """The methods asked for at this gap, those that stand on it by default, and those whose own gap was not sent."""
    sent = view.block.batch.gaps
    default = {method.name for method in METHODS.values() if method.gap == gap or method.gap not in sent}
    return frozenset(default | {row.method.name for row, _ in view.decisions if row.gap == gap})


def _of_sequences(values: Tensor, units: "_Units", measures: frozenset[str]) -> Iterator[tuple[str, Table]]:
    """Tables of a score of sequences [N]."""
    bins = _bins(values, cells.SEQUENCE_BINS)
    if "sequences" in measures:
        yield "sequences", _counts(torch.bincount(units.sequence_signs * cells.SEQUENCE_BINS.number + bins))
    if "tokens" in measures:
        groups = units.sequence_signs * cells.LENGTHS + units.lengths
        yield "lengths", _counts(torch.bincount(groups * cells.LENGTH_BINS.number + _bins(values, cells.LENGTH_BINS)))
        places = torch.cat([part.signs * cells.SEQUENCE_BINS.number + bins for part in units.parts])
        yield "tokens", _counts(torch.bincount(places, torch.cat([part.tokens for part in units.parts])))
        if units.gap.advantages is not None:
            yield "mass", _rounded(torch.bincount(places, torch.cat([part.mass for part in units.parts])))


def _of_tokens(bins: Tensor, units: "_Units") -> Iterator[tuple[str, Table]]:
    """Tables of a score of tokens, given in bins of summary.histogram [T]: one count, folded to its margins."""
    places = units.token_groups + _coarse(bins)
    shape = (len(SIGNS), cells.LENGTHS, cells.TOKEN_BINS.number)
    counts = torch.bincount(places, minlength=math.prod(shape)).view(shape)
    yield "tokens", _counts(counts.sum(1).ravel())
    by_length = counts.new_zeros((*shape[:2], cells.LENGTH_BINS.number))
    by_length.index_add_(2, _folds(counts.device), counts)
    yield "lengths", _counts(by_length.ravel())
    if units.token_mass is not None:
        mass = torch.bincount(places, units.token_mass, minlength=math.prod(shape)).view(shape)
        yield "mass", _rounded(mass.sum(1).ravel())


class _Part(NamedTuple):
    """Sequences with tokens of one sign each: [N] int64, how many tokens [N] and how much |A| [N]."""

    signs: Tensor
    tokens: Tensor
    mass: Tensor


@dataclass(frozen=True, eq=False)
class _Units:
    """The tokens and sequences of a gap by sign of A and length group."""

    gap: GapTokens

    @cached_property
    def lengths(self) -> Tensor:
        """[N] int64: the length group of each sequence."""
        exponents = torch.frexp(self.gap.segments.counts).exponent.long() - 1
        return exponents.clamp_(max=cells.LENGTHS - 1)

    @cached_property
    def sequence_signs(self) -> Tensor:
        """[N] int64: the sign that all tokens of a sequence have, or mixed, or unknown."""
        if len(self.parts) == 1:
            return self.parts[0].signs
        signs = torch.full_like(self.lengths, MIXED)
        for part in self.parts:
            signs = torch.where(part.tokens == self.gap.segments.counts, part.signs, signs)
        return signs

    @cached_property
    def parts(self) -> list[_Part]:
        """One part, or three where A changes inside sequences."""
        advantages, segments = self.gap.advantages, self.gap.segments
        if advantages is None:
            return [_Part(torch.full_like(self.lengths, UNKNOWN), segments.counts, segments.counts)]
        if not advantages.a_token:
            return [_Part(torch.sign(advantages.values).long() + 1, segments.counts, advantages.mass)]
        signs = torch.sign(advantages.values)
        positive = segments.sum(advantages.values.clamp(min=0.0))
        masses = (advantages.mass - positive, torch.zeros_like(positive), positive)
        return [
            _Part(torch.full_like(self.lengths, place), segments.sum((signs == place - 1).float()), mass)
            for place, mass in enumerate(masses)
        ]

    @cached_property
    def token_groups(self) -> Tensor:
        """[T] int32: where the cells of each token's sign and length begin."""
        advantages, spread = self.gap.advantages, self.gap.segments.spread
        number = cells.TOKEN_BINS.number
        if advantages is None or not advantages.a_token:
            groups = self.parts[0].signs * cells.LENGTHS + self.lengths
            return spread((groups * number).int())
        return spread((self.lengths * number).int()) + advantages.sign_groups * (cells.LENGTHS * number)

    @cached_property
    def token_mass(self) -> Tensor | None:
        """[T] float64: |A| of each token."""
        advantages = self.gap.advantages
        if advantages is None:
            return None
        mass = advantages.values.abs().double()
        return mass if advantages.a_token else self.gap.segments.spread(mass)


def _bins(values: Tensor, bins: cells.Bins) -> Tensor:
    """The bin of each score: [n] float, no NaN -> [n] int64."""
    ranks = torch.bucketize(values.abs().double(), torch.from_numpy(bins.magnitudes).to(values.device))
    return torch.where(values < 0, -ranks, ranks).add_(bins.zero)


def _coarse(fine: Tensor) -> Tensor:
    """Bins of summary.histogram [T] int32 -> those of TOKEN_BINS [T] int32."""
    return torch.index_select(_token_bins(fine.device), 0, fine)


@cache
def _token_bins(device: torch.device) -> Tensor:
    return torch.from_numpy(cells.token_bins()).int().to(device)


@cache
def _folds(device: torch.device) -> Tensor:
    """The bin among LENGTH_BINS of each of TOKEN_BINS."""
    edges = np.concatenate([[-np.inf], cells.TOKEN_BINS.edges, [np.inf]]).clip(-1e9, 1e9)
    return torch.from_numpy(np.searchsorted(cells.LENGTH_BINS.edges, (edges[1:] + edges[:-1]) / 2)).to(device)


def _counts(sums: Tensor) -> Table:
    added = sums.cpu().numpy().astype(np.int64)
    places = np.flatnonzero(added)
    return dict(zip(map(str, places.tolist()), added[places].tolist(), strict=True))


def _rounded(sums: Tensor) -> Table:
    added = sums.cpu().numpy()
    places = np.flatnonzero(added)
    mantissas, exponents = np.frexp(added[places])
    rounded = np.ldexp(np.round(mantissas * 2.0**cells.MASS_BITS), exponents - cells.MASS_BITS)
    return dict(zip(map(str, places.tolist()), rounded.tolist(), strict=True))
