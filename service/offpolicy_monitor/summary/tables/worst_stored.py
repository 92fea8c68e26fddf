"""The stored form of Worst: columns over its sequences, which pack smaller than one record a sequence.

Knows the tree of summary.packing: lists of whole numbers, and tables, here numbered by the place of what they tell of.
Max |d| is not stored: it is the largest at the positions that are.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from offpolicy_monitor.summary.tables.worst import (
    GAPS,
    LOGPROBS,
    Columns,
    GapFigures,
    Position,
    Worst,
    WorstSequence,
    abs_log_ratio_max,
)


def to_tree(worst: Worst) -> tuple[dict[str, Any], list[str | None]]:
    """The numbers of the sequences for summary.packing, and their ids; nothing where there are no sequences."""
    sequences = worst.sequences
    if not sequences:
        return {}, []
    kept = {place: s.columns for place, s in enumerate(sequences) if s.columns is not None}
    tree: dict[str, Any] = {
        **{name: [getattr(s, name) for s in sequences] for name in ("shard", "index", "tokens")},
        "gaps": {gap: _gap_tree(sequences, gap) for gap in GAPS if any(gap in s.gaps for s in sequences)},
        "positions": _positions_tree([s.positions for s in sequences]),
    }
    if kept:
        places = [columns.places for columns in kept.values()]
        tokens = _positions_tree([columns.tokens for columns in kept.values()])
        tree["columns"] = {"sequence": list(kept), "places": places, "tokens": tokens}
    return tree, [s.id for s in sequences] if any(s.id is not None for s in sequences) else []


def from_tree(tree: Mapping[str, Any], ids: Sequence[str | None]) -> Worst:
    """Read what `to_tree` made."""
    if not tree:
        return Worst()
    number = len(tree["index"])
    positions = _positions(tree["positions"])
    stored = tree.get("columns", {"sequence": [], "places": [], "tokens": {"number": [], "position": []}})
    tokens = map(Columns, stored["places"], _positions(stored["tokens"]))
    columns = dict(zip(stored["sequence"], tokens, strict=True))
    return Worst(
        tuple(
            WorstSequence(
                tree["shard"][place],
                tree["index"][place],
                tree["tokens"][place],
                _figures(tree["gaps"], place, tree["tokens"][place], positions[place]),
                positions[place],
                ids[place] if ids else None,
                columns.get(place),
            )
            for place in range(number)
        )
    )


def _gap_tree(sequences: Sequence[WorstSequence], gap: str) -> dict[str, Any]:
    """Means and sums of a gap; counts of tokens only where some of the sequence's tokens are not valid."""

    def table(read: Callable[[GapFigures], float]) -> dict[str, float]:
        return {str(place): read(s.gaps[gap]) for place, s in enumerate(sequences) if gap in s.gaps}

    counts = table(lambda figures: figures.tokens)
    partial = {place: count for place, count in counts.items() if count != sequences[int(place)].tokens}
    return {
        "log_geometric_ratio": table(lambda figures: figures.log_geometric_ratio),
        "k3_sum": table(lambda figures: figures.k3_sum),
        **({"tokens": partial} if partial else {}),
    }


def _figures(gaps: Mapping[str, Any], place: int, tokens: int, positions: Sequence[Position]) -> dict[str, GapFigures]:
    key = str(place)
    return {
        gap: GapFigures(
            tree.get("tokens", {}).get(key, tokens),
            abs_log_ratio_max(positions, gap),
            tree["log_geometric_ratio"][key],
            tree["k3_sum"][key],
        )
        for gap, tree in gaps.items()
        if key in tree["k3_sum"]
    }


def _positions_tree(groups: Sequence[Sequence[Position]]) -> dict[str, Any]:
    flat = [position for group in groups for position in group]
    columns = {
        name: {str(row): p.logprobs[place] for row, p in enumerate(flat) if p.logprobs[place] is not None}
        for place, name in enumerate(LOGPROBS)
    }
    return {
        "number": [len(group) for group in groups],
        "position": [p.position for p in flat],
        **{name: column for name, column in columns.items() if column},
    }


def _positions(tree: Mapping[str, Any]) -> list[tuple[Position, ...]]:
    columns = [tree.get(name, {}) for name in LOGPROBS]
    flat = []
    for row, position in enumerate(tree["position"]):
        sampling, old, new = (column.get(str(row)) for column in columns)
        flat.append(Position(position, (sampling, old, new)))
    ends = accumulate(tree["number"], initial=0)
    return [tuple(flat[begin:end]) for begin, end in pairwise(ends)]
