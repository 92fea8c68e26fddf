"""The worst sequences as version 2 stored them: columns over the sequences.

Knows the tree of stored.packed_tree: lists of whole numbers, and tables, numbered by the index of what they tell of.
Max |d| is not stored: it is the largest at the positions that are.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from offpolicy_monitor.summary.tables.worst import (
    Columns,
    GapFigures,
    Position,
    Worst,
    WorstSequence,
    abs_log_ratio_max,
)
from offpolicy_monitor.vocabulary import LOGPROBS


def from_tree(tree: Mapping[str, Any], ids: Sequence[str | None]) -> Worst:
    """The sequences of a tree and of their ids; any error where it is none."""
    if not tree:
        return Worst()
    number = len(tree["index"])
    positions = _positions(tree["positions"])
    stored = tree.get("columns", {"sequence": [], "places": [], "tokens": {"number": [], "position": []}})
    tokens = map(Columns, stored["places"], _positions(stored["tokens"]))
    columns = dict(zip(stored["sequence"], tokens, strict=True))
    found = tuple(
        WorstSequence(
            tree["shard"][index],
            tree["index"][index],
            tree["tokens"][index],
            _figures(tree["gaps"], index, tree["tokens"][index], positions[index]),
            positions[index],
            ids[index] if ids else None,
            columns.get(index),
        )
        for index in range(number)
    )
    return Worst.later(lambda: found)


def _figures(gaps: Mapping[str, Any], index: int, tokens: int, positions: Sequence[Position]) -> dict[str, GapFigures]:
    key = str(index)
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


def _positions(tree: Mapping[str, Any]) -> list[tuple[Position, ...]]:
    columns = [tree.get(name, {}) for name in LOGPROBS]
    flat = []
    for row, position in enumerate(tree["position"]):
        sampling, old, new = (column.get(str(row)) for column in columns)
        flat.append(Position(position, (sampling, old, new)))
    ends = accumulate(tree["number"], initial=0)
    return [tuple(flat[begin:end]) for begin, end in pairwise(ends)]
