"""What-if tables: how many tokens and sequences, and how much |A|, have a score in which bin.

A score (core.scores) is what a rule compares with its threshold; methods.catalogue says which are kept at which gap.
The mass of a cell keeps 8 bits. Tables: `whatif/<gap>/<score>/tokens`, `.../sequences`, `.../mass` by sign and bin, and
`.../lengths`, the rule's own unit by sign, length group and coarse bin (summary.cells).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.cells import tally
from offpolicy_monitor.core.gap import chosen
from offpolicy_monitor.core.scores import sequence_scores, token_scores
from offpolicy_monitor.measure.bins import histogram_bins
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.methods import METHODS
from offpolicy_monitor.methods.catalogue import kept_scores
from offpolicy_monitor.methods.curve import TOKEN_SCORES
from offpolicy_monitor.summary import cells
from offpolicy_monitor.vocabulary import MIXED, NEGATIVE, POSITIVE, SIGNS, UNKNOWN, ZERO

_SIGNS = len(SIGNS)


class Kept(NamedTuple):
    """A score that is kept of a gap, by the gap's place, with its measures."""

    gap: int
    score: str
    measures: frozenset[str]


def kept(view: BlockView) -> tuple[list[Kept], list[Kept]]:
    """The scores of tokens that are kept, log-ratios first; those of sequences, which have counts of tokens first."""
    sent, rows = view.block.batch.gaps, view.decider.rows
    found = []
    for place, gap in enumerate(sent):
        default = {method.name for method in METHODS.values() if method.gap == gap or method.gap not in sent}
        asked = {row.method.name for row in rows if row.gap == gap}
        found += [Kept(place, *entry) for entry in kept_scores(frozenset(default | asked)).items()]
    of_tokens = sorted(
        (entry for entry in found if entry.score in TOKEN_SCORES), key=lambda entry: entry.score != "log_ratio"
    )
    of_sequences = (entry for entry in found if entry.score not in TOKEN_SCORES)
    return of_tokens, sorted(of_sequences, key=lambda entry: "tokens" not in entry.measures)


def sums_of(view: BlockView) -> dict[str, Tensor]:
    """[scores, signs, bins] of each measure of tokens' scores and of sequences', and [scores, signs, lengths, bins]."""
    of_tokens, of_sequences = kept(view)
    units = _Units(view)
    return {**_of_tokens(view, units, of_tokens), **_of_sequences(view, units, of_sequences)}


def _of_tokens(view: BlockView, units: "_Units", scores: Sequence[Kept]) -> dict[str, Tensor]:
    """One count of each score by sign, length and bin, folded to its margins. Every gap has its log-ratio first."""
    bins = view.bins
    if len(scores) > view.number:
        further = token_scores(view.gaps, [(score.gap, score.score) for score in scores[view.number :]])
        bins = torch.cat([bins, histogram_bins(further)])
    gaps = [score.gap for score in scores]
    groups = units.token_groups if len(units.token_groups) == 1 else chosen(units.token_groups, gaps)
    coarse = _token_bins(bins.device).index_select(0, bins.reshape(-1)).view(bins.shape)
    number = cells.TOKEN_BINS.number
    places, shape = groups + coarse, (len(scores), _SIGNS, cells.LENGTHS, number)
    valid = None if view.valid is None else chosen(view.valid, gaps)
    counts = tally(places, _SIGNS * cells.LENGTHS * number, valid).view(shape)
    by_length = counts.new_zeros((*shape[:3], cells.LENGTH_BINS.number))
    found = {"tokens": counts.sum(2), "lengths": by_length.index_add_(3, _folds(counts.device), counts)}
    if units.token_mass is not None:
        mass = units.token_mass.expand(len(scores), -1)
        mass = mass if valid is None else mass * valid
        found["mass"] = tally(places, _SIGNS * cells.LENGTHS * number, mass).view(shape).sum(2)
    return {f"whatif/tokens/{name}": values for name, values in found.items()}


def _of_sequences(view: BlockView, units: "_Units", scores: Sequence[Kept]) -> dict[str, Tensor]:
    """Those that have tokens and mass first: the others are of sequences alone."""
    gaps, number = [score.gap for score in scores], cells.SEQUENCE_BINS.number
    values = sequence_scores(view.gaps, [(score.gap, score.score) for score in scores])
    signs, bins = chosen(units.sequence_signs, gaps), _bins(values, cells.SEQUENCE_BINS)
    filled = None if view.filled is None else chosen(view.filled, gaps)
    shape = (_SIGNS, number)
    found = {"sequences": tally(signs * number + bins, _SIGNS * number, filled).view(-1, *shape)}
    own = sum("tokens" in score.measures for score in scores)
    gaps, bins, parts = gaps[:own], bins[:own], len(units.part_signs)
    by_length = (signs[:own] * cells.LENGTHS + chosen(units.lengths, gaps)) * cells.LENGTH_BINS.number
    coarse = by_length + _bins(values[:own], cells.LENGTH_BINS)
    groups = (_SIGNS, cells.LENGTHS, cells.LENGTH_BINS.number)
    there = None if filled is None else filled[:own]
    found["lengths"] = tally(coarse, groups[0] * groups[1] * groups[2], there).view(-1, *groups)
    places = torch.cat([sign * number + bins for sign in units.part_signs], 1)
    for name, of_parts in (("tokens", units.part_tokens), ("mass", units.part_mass)):
        if of_parts is not None:
            weights = torch.cat([chosen(of_parts[part], gaps) for part in range(parts)], 1)
            found[name] = tally(places, _SIGNS * number, weights).view(-1, *shape)
    return {f"whatif/sequences/{name}": values for name, values in found.items()}


@dataclass(frozen=True, eq=False)
class _Units:
    """The tokens and sequences of gaps by sign of A and length group.

    A part is the tokens of one sign of each sequence: there are three, or one where there are no advantages.
    """

    view: BlockView

    @cached_property
    def lengths(self) -> Tensor:
        """[G, N] int64: the length group of each sequence."""
        counts = self.view.own(self.view.gaps.counts).clamp(min=1.0)
        return (torch.frexp(counts).exponent.long() - 1).clamp_(max=cells.LENGTHS - 1)

    @property
    def part_signs(self) -> tuple[int, ...]:
        """The sign of each part."""
        return (UNKNOWN,) if self.view.gaps.advantages is None else (NEGATIVE, ZERO, POSITIVE)

    @cached_property
    def part_tokens(self) -> Tensor:
        """[parts, G, N] float64: tokens of each."""
        gaps, advantages = self.view.gaps, self.view.gaps.advantages
        counts = self.view.own(gaps.counts)
        if advantages is None:
            return counts[None]
        signs = advantages.signs.unbind()
        marks = torch.stack([signs[1], signs[2] & ~signs[1], signs[3]])
        if not advantages.a_token:
            return marks[:, None, :] * counts
        marks = marks[:, None, :].expand(-1, self.view.number, -1)
        return gaps.segments.sum(marks if gaps.valid is None else marks & self.view.own(gaps.valid))

    @cached_property
    def part_mass(self) -> Tensor | None:
        """[parts, G, N] float64: |A| of each; None without advantages."""
        gaps, advantages = self.view.gaps, self.view.gaps.advantages
        if advantages is None:
            return None
        mass = self.view.own(gaps.sequence_mass)
        if not advantages.a_token:
            return torch.stack([mass * sign for sign in (advantages.signs[1], 0.0, advantages.signs[3])])
        positive = self.view.own(gaps.kept(advantages.values.clamp(min=0.0).expand(gaps.number, -1)))
        above = gaps.segments.sum(positive)
        return torch.stack([mass - above, torch.zeros_like(mass), above])

    @cached_property
    def sequence_signs(self) -> Tensor:
        """[G, N] int64: the sign that all tokens of a sequence have, or mixed, or unknown."""
        if self.view.gaps.advantages is None:
            return torch.full_like(self.lengths, UNKNOWN)
        whole = self.part_tokens == self.view.own(self.view.gaps.counts)
        signs = torch.full_like(self.lengths, MIXED)
        for sign, part in zip(self.part_signs, whole.unbind(), strict=True):
            signs = torch.where(part, sign, signs)
        return signs

    @cached_property
    def token_groups(self) -> Tensor:
        """[1 or G, T] int32: where the cells of each token's sign and length begin."""
        gaps, advantages = self.view.gaps, self.view.gaps.advantages
        number = cells.TOKEN_BINS.number
        lengths = self.lengths if gaps.valid is not None else self.lengths[:1]
        if advantages is None:
            return gaps.segments.spread(((lengths + UNKNOWN * cells.LENGTHS) * number).int())
        return gaps.segments.spread((lengths * number).int()) + advantages.groups * (cells.LENGTHS * number)

    @cached_property
    def token_mass(self) -> Tensor | None:
        """[T] float64: |A| of each token."""
        advantages = self.view.gaps.advantages
        return None if advantages is None else advantages.of_tokens.abs().double()


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The what-if tables of gaps with a token."""
    for kind, scores in zip(("tokens", "sequences"), kept(view), strict=True):
        for place, score in enumerate(scores):
            if not arrays["gaps/tokens"][score.gap]:
                continue
            path = f"whatif/{view.block.batch.gaps[score.gap]}/{score.score}"
            for measure in _measures(score):
                found = arrays.get(f"whatif/{kind}/{measure}")
                if found is not None:
                    yield f"{path}/{measure}", {"": _rounded(found[place]) if measure == "mass" else found[place]}


def _measures(score: Kept) -> frozenset[str]:
    return score.measures | {"lengths"} if "tokens" in score.measures else score.measures


def _bins(values: Tensor, bins: cells.Bins) -> Tensor:
    """The bin of each score: [...] float64, no NaN -> [...] int64."""
    ranks = torch.bucketize(values.abs(), _magnitudes(bins, values.device))
    return torch.where(values < 0, -ranks, ranks).add_(bins.zero)


@cache
def _magnitudes(bins: cells.Bins, device: torch.device) -> Tensor:
    return torch.from_numpy(bins.magnitudes).to(device)


@cache
def _token_bins(device: torch.device) -> Tensor:
    """The bin among TOKEN_BINS of each bin of summary.histogram."""
    return torch.from_numpy(cells.token_bins()).int().to(device)


@cache
def _folds(device: torch.device) -> Tensor:
    """The bin among LENGTH_BINS of each of TOKEN_BINS."""
    edges = np.concatenate([[-np.inf], cells.TOKEN_BINS.edges, [np.inf]]).clip(-1e9, 1e9)
    return torch.from_numpy(np.searchsorted(cells.LENGTH_BINS.edges, (edges[1:] + edges[:-1]) / 2)).to(device)


def _rounded(sums: Array) -> Array:
    mantissas, exponents = np.frexp(sums)
    rounded: Array = np.ldexp(np.round(mantissas * 2.0**cells.MASS_BITS), exponents - cells.MASS_BITS)
    return rounded
