"""What is answered of the worst sequences: of each its figures by gap, its ranks, its worst tokens.

Of one gradient step, or of several, whose sequences are ranked against each other. Shares of total k3 are made here,
against the sums of the step that a sequence is of. Knows no request.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offpolicy_monitor.summary.arrays import Array
from offpolicy_monitor.summary.sums import finite, fraction
from offpolicy_monitor.summary.tables.ranking import first_of_each
from offpolicy_monitor.summary.tables.worst.columns import BESIDE, GAPS, MOST, RANKINGS, Ranking, Sequences
from offpolicy_monitor.vocabulary import LOGPROBS

if TYPE_CHECKING:
    from offpolicy_monitor.summary.step import StepSummary


class OfStep(NamedTuple):
    """The worst sequences of a gradient step, and the sum of k3 of that step by gap."""

    step: int
    minibatch: int
    sequences: Sequences
    totals: Mapping[str, float]

    @classmethod
    def of(cls, step: int, minibatch: int, summary: "StepSummary") -> "OfStep":
        """Those of a summary."""
        totals = {name: found.sums.get("k3", 0.0) for name, found in summary.gaps.items()}
        return cls(step, minibatch, summary.worst.sequences, totals)


class Standing(NamedTuple):
    """A sequence among those of its step, with its ranks, from 1, the best first."""

    step: OfStep
    row: int
    ranks: Sequence[tuple[int, Ranking]]

    @property
    def sequence(self) -> Sequences:
        """It alone."""
        return self.step.sequences.of(np.array([self.row]))

    def answer(self) -> dict[str, Any]:
        """JSON-ready; `id` is None and `columns` is left out where there are none."""
        one, (step, minibatch, _, totals) = self.sequence, self.step
        [(shard, index, tokens)] = one.whole.tolist()
        figures = zip(GAPS, one.gaps[0].tolist(), one.furthest_of_gaps[0].tolist(), strict=True)
        positions = map(_position, one.furthest.positions.tolist(), one.furthest.logprobs)
        found = {
            "step": step,
            "minibatch": minibatch,
            "shard": shard,
            "index": index,
            "id": one.ids[0] if one.ids else None,
            "tokens": tokens,
            "by": [{"gap": gap, "by": by, "rank": rank} for rank, (gap, by) in self.ranks],
            "gaps": {gap: _gap(own, most, totals.get(gap, 0.0)) for gap, own, most in figures if own[0] == own[0]},
            "positions": sorted(positions, key=_largest, reverse=True),
            **({"columns": _columns(one)} if len(one.kept) else {}),
        }
        return {name: finite(value) for name, value in found.items()}


def first_of(found: Sequence[OfStep], gap: str | None = None, by: str | None = None) -> list[Standing]:
    """Those that stand in the rankings of a gap, of a figure, or of all, by their best rank; steps in their order.

    Those of equal ranks stand in the order of RANKINGS. Of several steps a ranking by k3 is by its sum, so that a
    quiet step, where much is the share of few, does not hide a loud one.
    """
    wanted, ranked, there = _ranked(found, gap, by)
    ranks: dict[int, list[tuple[int, int]]] = {}
    for (index, rank), row in np.ndenumerate(ranked):
        if there[index, rank]:
            ranks.setdefault(int(row), []).append((rank + 1, wanted[index]))
    rows = [(of_step, row) for of_step in found for row in range(len(of_step.sequences))]
    ordered = sorted(ranks.items(), key=lambda entry: min(entry[1]))
    return [Standing(*rows[row], [(rank, RANKINGS[index]) for rank, index in sorted(own)]) for row, own in ordered]


def still_first(found: Sequence[OfStep], gap: str | None = None, by: str | None = None) -> list[OfStep]:
    """The steps of which `first_of` has sequences, with these alone."""
    _, ranked, there = _ranked(found, gap, by)
    left, rows, begin = [], np.unique(ranked[there]), 0
    for of_step in found:
        own, begin = (
            rows[(rows >= begin) & (rows < begin + len(of_step.sequences))] - begin,
            begin + len(of_step.sequences),
        )
        if len(own):
            left.append(of_step._replace(sequences=of_step.sequences.of(own)))
    return left


def _ranked(found: Sequence[OfStep], gap: str | None, by: str | None) -> tuple[list[int], Array, Array]:
    """Which rankings are asked for, and the first of each among the sequences of all steps."""
    wanted = [index for index, ranking in enumerate(RANKINGS) if gap in (None, ranking[0]) and by in (None, ranking[1])]
    values = [of_step.sequences.values[wanted] for of_step in found]
    return wanted, *first_of_each(np.concatenate(values, 1) if values else np.zeros((len(wanted), 0)), MOST)


def _gap(figures: Sequence[float], most: float, total: float) -> dict[str, Any]:
    """The figures that /v1/evaluate has of a sequence, and its share of the step's k3; None where that is 0."""
    tokens, mean, k3 = figures
    share = fraction(k3, total)
    return {
        "tokens": int(tokens),
        "log_geometric_ratio": mean,
        "log_product_ratio": mean * tokens,
        "abs_log_ratio_max": most,
        "k1": -mean,
        "k3": k3 / tokens,
        "k3_share": None if share is None else min(share, 1.0),  # both are rounded, each in its own way
    }


def _position(position: int, logprobs: Array) -> dict[str, Any]:
    known = _known(logprobs)
    pairs = {gap: (known[above], known[below]) for gap, (above, below) in GAPS.items()}
    ratios = {gap: above - below for gap, (above, below) in pairs.items() if above is not None and below is not None}
    return {"position": position, **dict(zip(LOGPROBS, known, strict=True)), "log_ratio": ratios}


def _largest(position: Mapping[str, Any]) -> float:
    """The largest |d| at a position."""
    return max(map(abs, position["log_ratio"].values()), default=0.0)


def _columns(one: Sequences) -> dict[str, Any]:
    """One list per log-prob, None where it was not finite, and the tokens' positions; without what was not sent.

    Beside them lists, or the sequence's one number.
    """
    logprobs = dict(zip(LOGPROBS, map(_known, one.raw.logprobs.T), strict=True))
    sent = {name: column for name, column in logprobs.items() if any(value is not None for value in column)}
    beside = {name: own for name, own in zip(BESIDE, one.beside, strict=False) if own.counts[0]}
    told = {name: _known(own.values)[0] if own.counts[0] == 1 else _known(own.values) for name, own in beside.items()}
    return {"position": one.raw.positions.tolist(), **sent, **told}


def _known(values: Array) -> list[float | None]:
    return [value if value == value else None for value in values.tolist()]
