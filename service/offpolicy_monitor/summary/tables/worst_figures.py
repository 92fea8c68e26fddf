"""What is answered of Worst: an object per sequence, with its figures by gap, its ranks, its worst tokens.

Shares of total k3 are made here, against the sums of the step that the sequences are of. Knows no request.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.summary.step import StepSummary, finite
from offpolicy_monitor.summary.sums import fraction
from offpolicy_monitor.summary.tables.worst import (
    GAPS,
    RANKED_BY,
    RANKINGS,
    GapFigures,
    Position,
    Ranking,
    WorstSequence,
    ranked,
)
from offpolicy_monitor.vocabulary import LOGPROBS

#: What the rankings are called in answers.
NAMES: Final[Mapping[str, str]] = {
    "abs_log_ratio_max": "abs_log_ratio_max",
    "log_geometric_ratio": "log_geometric_ratio",
    "k3_sum": "k3_share",
}
BY: Final = tuple(NAMES[by] for by in RANKED_BY)


def worst_figures(summary: StepSummary, gap: str | None, by: str | None, limit: int) -> list[dict[str, Any]]:
    """The worst `limit` sequences, JSON-ready, by their best rank in the rankings of a gap, of a figure, or of all.

    Those of equal ranks stand in the order of GAPS and BY.
    """
    wanted = [r for r in RANKINGS if gap in (None, r[0]) and by in (None, NAMES[r[1]])]
    rankings = {ranking: ranked(summary.worst.sequences, ranking) for ranking in wanted}
    best: dict[object, tuple[int, int, WorstSequence]] = {}
    for number, sequences in enumerate(rankings.values()):
        for index, sequence in enumerate(sequences):
            entry = (index, number, sequence)
            best[sequence.order] = min(entry, best.get(sequence.order, entry), key=lambda found: found[:2])
    ordered = sorted(best.values(), key=lambda found: found[:2])[:limit]
    totals = {name: found.sums.get("k3", 0.0) for name, found in summary.gaps.items()}
    answers = [_sequence(sequence, totals, rankings) for _, _, sequence in ordered]
    return [finite(answer) for answer in answers]


def _sequence(
    sequence: WorstSequence, totals: Mapping[str, float], rankings: Mapping[Ranking, Sequence[WorstSequence]]
) -> dict[str, Any]:
    """One sequence; `id` is None and `columns` is left out where there are none."""
    ranks = [(found.index(sequence) + 1, ranking) for ranking, found in rankings.items() if sequence in found]
    ranks.sort(key=lambda found: found[0])
    return {
        "shard": sequence.shard,
        "index": sequence.index,
        "id": sequence.id,
        "tokens": sequence.tokens,
        "by": [{"gap": gap, "by": NAMES[by], "rank": rank} for rank, (gap, by) in ranks],
        "gaps": {gap: _gap(sequence.gaps[gap], totals.get(gap, 0.0)) for gap in GAPS if gap in sequence.gaps},
        "positions": sorted(map(_position, sequence.positions), key=_largest, reverse=True),
        **({} if sequence.columns is None else {"columns": _columns(sequence.columns.tokens)}),
    }


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


def _columns(tokens: Sequence[Position]) -> dict[str, list[Any]]:
    """One list a log-prob, None where it was not finite, and the tokens' positions; without what was not sent."""
    columns = {name: [token.logprobs[index] for token in tokens] for index, name in enumerate(LOGPROBS)}
    sent = {name: column for name, column in columns.items() if any(value is not None for value in column)}
    return {"position": [token.position for token in tokens], **sent}
