"""What-if tables: how many tokens and sequences, and how much |A|, have a score in which bin.

A score (core.scores) is what a rule compares with its threshold; methods.catalogue says which are kept at which gap.
The mass of a cell keeps 8 bits. Tables: `whatif/<gap>/<score>/tokens`, `.../sequences`, `.../mass` by sign and bin, and
`.../lengths`, the rule's own unit by sign, length group and coarse bin (summary.cells).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.cells import Tally
from offpolicy_monitor.core.device import constant, where
from offpolicy_monitor.core.gap import chosen
from offpolicy_monitor.core.scores import Score, sequence_scores
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.methods.catalogue import GIVEN, kept_at
from offpolicy_monitor.methods.curve import TOKEN_SCORES
from offpolicy_monitor.summary import cells
from offpolicy_monitor.vocabulary import MIXED, NEGATIVE, POSITIVE, SIGNS, UNKNOWN, ZERO

_SIGNS = len(SIGNS)


class Kept(NamedTuple):
    """A score that is kept of a gap, by the gap's index, with its measures."""

    gap: int
    score: str
    measures: frozenset[str]

    @property
    def wanted(self) -> Score:
        """The score, by the defaults of what it depends on."""
        return Score(self.gap, self.score, GIVEN.get(self.score.removesuffix("_min"), ()))


def kept(sent: Sequence[str], rows: Sequence[MethodRow]) -> tuple[list[Kept], list[Kept]]:
    """The scores of tokens that are kept of the gaps that were sent, log-ratios first; those of sequences, which have
    counts of tokens first."""
    found = []
    for index, gap in enumerate(sent):
        asked = {row.method.name for row in rows if row.gap == gap}
        found += [Kept(index, *entry) for entry in kept_at(gap, sent, asked).items()]
    of_tokens = sorted(
        (entry for entry in found if entry.score in TOKEN_SCORES), key=lambda entry: entry.score != "log_ratio"
    )
    of_sequences = (entry for entry in found if entry.score not in TOKEN_SCORES)
    return of_tokens, sorted(of_sequences, key=lambda entry: "tokens" not in entry.measures)


def binned(sent: Sequence[str], rows: Sequence[MethodRow]) -> list[Score]:
    """The scores of tokens that are kept beside the log-ratio, which every gap has."""
    return [score.wanted for score in kept(sent, rows)[0][len(sent) :]]


def sums_of(view: BlockView) -> dict[str, Tally]:
    """Tallies of the scores of tokens and of those of sequences."""
    of_tokens, of_sequences = kept(view.block.batch.gaps, view.decider.rows)
    units = _Units(view)
    return {"whatif/tokens": _of_tokens(view, units, of_tokens), **_of_sequences(view, units, of_sequences)}


def _of_tokens(view: BlockView, units: "_Units", scores: Sequence[Kept]) -> Tally:
    """[1 or 2, scores, signs x lengths x bins]: tokens, and |A| with advantages."""
    bins, number = view.score_bins, cells.TOKEN_BINS.number
    gaps = [score.gap for score in scores]
    groups = units.token_groups if len(units.token_groups) == 1 else chosen(units.token_groups, gaps)
    coarse = _token_bins(bins.device).index_select(0, bins.view(-1)).view(bins.shape)
    indices = torch.add(coarse, groups, alpha=number)
    weights = [None if view.valid is None else chosen(view.valid, gaps)]
    if view.gaps.advantages is not None:
        mass = view.gaps.advantages.magnitudes.expand(len(scores), -1)
        weights.append(mass if weights[0] is None else mass * weights[0])
    return Tally(indices, _SIGNS * cells.LENGTHS * number, weights)


def _of_sequences(view: BlockView, units: "_Units", scores: Sequence[Kept]) -> dict[str, Tally]:
    """[1, scores, signs x bins]: sequences. Of the first scores, which have tokens and |A| too, sequences also
    [1, those, signs x lengths x bins], and tokens, and |A| with advantages, [1, those, 1 or 2, signs x bins].
    """
    gaps, number = [score.gap for score in scores], cells.SEQUENCE_BINS.number
    values = torch.stack(sequence_scores(view.gaps, [score.wanted for score in scores]))
    bins = torch.bucketize(values, _edges(values.device))
    filled = None if view.filled is None else chosen(view.filled, gaps)
    indices = torch.add(bins, chosen(units.signs, gaps), alpha=number)
    of_sequences = Tally(indices, _SIGNS * number, (filled,))
    own = sum("tokens" in score.measures for score in scores)
    gaps, bins, filled = gaps[:own], bins[:own], None if filled is None else filled[:own]
    groups = (_SIGNS, cells.LENGTHS, cells.LENGTH_BINS.number)
    coarse = _coarse(bins.device).index_select(0, bins.reshape(-1)).view(bins.shape)
    by_length = torch.add(coarse, chosen(units.groups, gaps), alpha=groups[2])
    lengths = Tally(by_length, math.prod(groups), (filled,))
    indices = torch.add(bins[:, None, :], units.parts, alpha=number).flatten(1)
    weights = chosen(units.part_weights, gaps).flatten(2)
    both = Tally(indices[:, None].expand_as(weights), _SIGNS * number, (weights,))
    return {"whatif/sequences": of_sequences, "whatif/lengths": lengths, "whatif/weights": both}


@dataclass(frozen=True, eq=False)
class _Units:
    """The tokens and sequences of gaps by sign of A and length group.

    A part is the tokens of one sign of each sequence: there are P = 3, or 1 where there are no advantages.
    """

    view: BlockView

    @cached_property
    def lengths(self) -> Tensor:
        """[G, N] int64: the length group of each sequence."""
        return self.view.lengths_among(_powers(self.view.gaps.policies.device))

    @cached_property
    def parts(self) -> Tensor:
        """[P, 1] int64: the sign of each part."""
        signs = [UNKNOWN] if self.view.gaps.advantages is None else [NEGATIVE, ZERO, POSITIVE]
        return constant(signs, torch.int64, self.view.gaps.policies.device)[:, None]

    @cached_property
    def part_weights(self) -> Tensor:
        """[G, 2, P, N] float64: tokens of each part, and |A|; without advantages [G, 1, 1, N]: tokens."""
        gaps = self.view.gaps
        return self.view.own(gaps.counts[:, None, None] if gaps.advantages is None else gaps.by_sign)

    @cached_property
    def signs(self) -> Tensor:
        """[G, N] int64: the sign that all tokens of a sequence have, or mixed, or unknown."""
        gaps, advantages = self.view.gaps, self.view.gaps.advantages
        if advantages is None:
            return self.parts.expand(self.view.number, gaps.segments.sequences)
        if not advantages.per_token:
            return advantages.groups.expand(self.view.number, -1)
        whole = self.part_weights[:, 0] == self.view.own(gaps.counts)[:, None]
        return where(whole, self.parts, MIXED).amin(1)

    @cached_property
    def groups(self) -> Tensor:
        """[G, N] int64: the sign and the length group of each sequence as one number."""
        return torch.add(self.lengths, self.signs, alpha=cells.LENGTHS)

    @cached_property
    def token_groups(self) -> Tensor:
        """[1 or G, T] int64: the sign and the length group of each token as one number."""
        gaps, advantages = self.view.gaps, self.view.gaps.advantages
        different = self.view.number if gaps.valid is not None else 1
        if advantages is not None and advantages.per_token:
            lengths = gaps.segments.spread(self.lengths[:different])
            return torch.add(lengths, advantages.groups, alpha=cells.LENGTHS)
        return gaps.segments.spread(self.groups[:different])


def tables_of(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The what-if tables of gaps with a token."""
    by_kind = kept(view.block.batch.gaps, view.decider.rows)
    for scores, measured in zip(by_kind, (_measured_of_tokens(arrays), _measured_of_sequences(arrays)), strict=True):
        for index, score in enumerate(scores):
            if not arrays["gaps/tokens"][score.gap]:
                continue
            path = f"whatif/{view.block.batch.gaps[score.gap]}/{score.score}"
            for measure in _measures(score):
                if measure in measured:
                    found = measured[measure][index]
                    yield f"{path}/{measure}", {"": _rounded(found) if measure == "mass" else found}


def _measured_of_tokens(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """[scores, signs, bins] of each measure, and [scores, signs, lengths, coarse bins]: the margins of one count."""
    counts = arrays["whatif/tokens"]
    counts = counts.reshape(*counts.shape[:2], _SIGNS, cells.LENGTHS, -1)
    return {**_weighed(counts.sum(3)), "lengths": counts[0] @ _folds()}


def _measured_of_sequences(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """The same of sequences, whose measures are counted one by one."""
    sequences, lengths, weights = (arrays[f"whatif/{name}"] for name in ("sequences", "lengths", "weights"))
    return {
        **_weighed(weights[0].swapaxes(0, 1).reshape(*weights.shape[2:0:-1], _SIGNS, -1)),
        "sequences": sequences.reshape(sequences.shape[1], _SIGNS, -1),
        "lengths": lengths.reshape(lengths.shape[1], _SIGNS, cells.LENGTHS, -1),
    }


def _weighed(sums: Array) -> Mapping[str, Array]:
    """Tokens, and |A| where there are advantages."""
    return dict(zip(("tokens", "mass"), sums, strict=False))


def _measures(score: Kept) -> Sequence[str]:
    """In one order, so that equal batches have equal schemes in whatever process."""
    kept = score.measures | {"lengths"} if "tokens" in score.measures else score.measures
    return [measure for measure in ("sequences", "tokens", "lengths", "mass") if measure in kept]


@cache
def _edges(device: torch.device) -> Tensor:
    """Edges of SEQUENCE_BINS: a score that equals one stands in the bin nearer to zero, as bucketize has it above 0."""
    edges = cells.SEQUENCE_BINS.edges
    return torch.from_numpy(np.where(edges < 0, np.nextafter(edges, -np.inf), edges)).to(device, non_blocking=True)


@cache
def _powers(device: torch.device) -> Tensor:
    """The lengths with which a length group begins, after the first."""
    return constant([2.0**power for power in range(1, cells.LENGTHS)], torch.float64, device)


@cache
def _token_bins(device: torch.device) -> Tensor:
    """The bin among TOKEN_BINS of each bin of summary.histogram."""
    return torch.from_numpy(cells.token_bins()).to(device, non_blocking=True)


@cache
def _coarse(device: torch.device) -> Tensor:
    """The bin among LENGTH_BINS of each of SEQUENCE_BINS, whose edges are among theirs."""
    return torch.from_numpy(_within_lengths(cells.SEQUENCE_BINS)).to(device, non_blocking=True)


@cache
def _folds() -> Array:
    """[TOKEN_BINS, LENGTH_BINS] float64: 1 where a bin of tokens lies within a coarse one."""
    folds: Array = np.eye(cells.LENGTH_BINS.number)[_within_lengths(cells.TOKEN_BINS)]
    return folds


def _within_lengths(bins: cells.Bins) -> Array:
    """The bin among LENGTH_BINS in which each bin's middle lies."""
    edges = np.concatenate([[-np.inf], bins.edges, [np.inf]]).clip(-1e9, 1e9)
    found: Array = np.searchsorted(cells.LENGTH_BINS.edges, (edges[1:] + edges[:-1]) / 2)
    return found


def _rounded(sums: Array) -> Array:
    mantissas, exponents = np.frexp(sums)
    rounded: Array = np.ldexp(np.round(mantissas * 2.0**cells.MASS_BITS), exponents - cells.MASS_BITS)
    return rounded
