"""What is answered of Worst: an object per sequence, with its figures by gap, its ranks, its worst tokens.

Of one gradient step, or of several, whose sequences are ranked against each other. Shares of total k3 are made here,
against the sums of the step that a sequence is of. Knows no request.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

from offpolicy_monitor.summary.step import StepSummary, finite
from offpolicy_monitor.summary.sums import fraction
from offpolicy_monitor.summary.tables.worst import (
    GAPS,
    MOST,
    RANKED_BY,
    RANKINGS,
    Columns,
    GapFigures,
    Position,
    Ranking,
    WorstSequence,
)
from offpolicy_monitor.vocabulary import LOGPROBS

#: What RANKED_BY is called in answers: of the sum of k3 they have the share.
By = Literal["abs_log_ratio_max", "log_geometric_ratio", "k3_share"]
NAMES: Final[Mapping[str, By]] = dict(zip(RANKED_BY, get_args(By), strict=True))


class Standing(NamedTuple):
    """A sequence among the worst of its gradient step, and the sum of k3 of that step by gap."""

    step: int
    minibatch: int
    sequence: WorstSequence
    totals: Mapping[str, float]

    @property
    def order(self) -> tuple[object, ...]:
        """Decides between equal values."""
        return self.step, self.minibatch, self.sequence.order


class Ranked(NamedTuple):
    """A sequence with its ranks, from 1, the best first."""

    standing: Standing
    ranks: Sequence[tuple[int, Ranking]]

    def answer(self) -> dict[str, Any]:
        """JSON-ready; `id` is None and `columns` is left out where there are none."""
        step, minibatch, sequence, totals = self.standing
        found = {
            "step": step,
            "minibatch": minibatch,
            "shard": sequence.shard,
            "index": sequence.index,
            "id": sequence.id,
            "tokens": sequence.tokens,
            "by": [{"gap": gap, "by": NAMES[by], "rank": rank} for rank, (gap, by) in self.ranks],
            "gaps": {gap: _gap(sequence.gaps[gap], totals.get(gap, 0.0)) for gap in GAPS if gap in sequence.gaps},
            "positions": sorted(map(_position, sequence.positions), key=_largest, reverse=True),
            **({} if sequence.columns is None else {"columns": _columns(sequence.columns)}),
        }
        return {name: finite(value) for name, value in found.items()}


def standing_in(step: int, minibatch: int, summary: StepSummary) -> list[Standing]:
    """The worst sequences of a gradient step."""
    totals = {name: found.sums.get("k3", 0.0) for name, found in summary.gaps.items()}
    return [Standing(step, minibatch, sequence, totals) for sequence in summary.worst.sequences]


def first_of(found: Iterable[Standing], gap: str | None = None, by: str | None = None) -> list[Ranked]:
    """Those that stand in the rankings of a gap, of a figure, or of all, by their best rank.

    Those of equal ranks stand in the order of RANKINGS. Of several steps a ranking by k3 is by its sum, so that a
    quiet step, where much is the share of few, does not hide a loud one.
    """
    wanted = [r for r in RANKINGS if gap in (None, r[0]) and by in (None, NAMES[r[1]])]
    candidates = list(found)
    ranks: dict[object, list[tuple[int, int]]] = {}
    standing: dict[object, Standing] = {}
    for number, ranking in enumerate(wanted):
        for rank, one in enumerate(_ranked(candidates, ranking), 1):
            standing[one.order] = one
            ranks.setdefault(one.order, []).append((rank, number))
    ordered = sorted(ranks.items(), key=lambda entry: min(entry[1]))
    return [Ranked(standing[order], [(rank, wanted[number]) for rank, number in sorted(own)]) for order, own in ordered]


def _ranked(found: Iterable[Standing], ranking: Ranking) -> list[Standing]:
    """The first of a ranking, as summary.tables.worst.ranked has them."""
    values = [(-value, one.order, one) for one in found if (value := one.sequence.value(ranking)) > 0]
    return [one for _, _, one in sorted(values, key=lambda entry: entry[:2])[:MOST]]


def _gap(figures: GapFigures, total: float) -> dict[str, Any]:
    """The figures that /v1/evaluate has of a sequence, and its share of the step's k3; None where that is 0."""
    mean = figures.log_geometric_ratio
    share = fraction(figures.k3_sum, total)
    return {
        "tokens": figures.tokens,
        "log_geometric_ratio": mean,
        "log_product_ratio": mean * figures.tokens,
        "abs_log_ratio_max": figures.abs_log_ratio_max,
        "k1": -mean,
        "k3": figures.k3_sum / figures.tokens,
        "k3_share": None if share is None else min(share, 1.0),  # both are rounded, each in its own way
    }


def _position(found: Position) -> dict[str, Any]:
    ratios = {gap: d for gap in GAPS if (d := found.log_ratio(gap)) is not None}
    return {"position": found.position, **dict(zip(LOGPROBS, found.logprobs, strict=True)), "log_ratio": ratios}


def _largest(position: Mapping[str, Any]) -> float:
    """The largest |d| at a position."""
    return max(map(abs, position["log_ratio"].values()), default=0.0)


def _columns(kept: Columns) -> dict[str, Any]:
    """One list a log-prob, None where it was not finite, and the tokens' positions; without what was not sent.

    Beside them lists, or the sequence's one number.
    """
    columns = {name: [token.logprobs[index] for token in kept.tokens] for index, name in enumerate(LOGPROBS)}
    sent = {name: column for name, column in columns.items() if any(value is not None for value in column)}
    beside = {name: list(found) if isinstance(found, tuple) else found for name, found in kept.beside.items()}
    return {"position": [token.position for token in kept.tokens], **sent, **beside}
