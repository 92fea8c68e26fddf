"""Version 2 of the stored form: numbers by name as stored.packed_tree reads them, and JSON beside them.

Clients of release 0.1 that reduce their shards post it; what they post is checked by summary.checks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from offpolicy_monitor.summary.histogram import BINS, Counts
from offpolicy_monitor.summary.step import StepSummary
from offpolicy_monitor.summary.stored import packed_tree
from offpolicy_monitor.summary.stored.named import Parts, check_histogram, summary_of
from offpolicy_monitor.summary.tables.worst import GAPS, Positions, Sequences, Worst
from offpolicy_monitor.vocabulary import LOGPROBS


def read(stored: bytes) -> StepSummary:
    """Read a summary; any error where the bytes are none."""
    return from_tree(*packed_tree.unpack(stored))


def from_tree(tree: Mapping[str, Any], texts: Mapping[str, Any]) -> StepSummary:
    """The summary of an unpacked tree and the texts beside it; any error where it is none."""
    gaps = tree["gaps"].items()
    return summary_of(
        Parts(
            tree["batch"],
            {name: gap["sums"] for name, gap in gaps},
            {name: histograms(name, gap["histograms"]) for name, gap in gaps},
            tree["methods"],
            {name: texts["specs"][name] for name in tree["methods"]},
            tree["cross"],
            tree["tables"],
            worst(tree.get("worst", {}), texts.get("worst", [])),
        )
    )


def histograms(gap: str, stored: Mapping[str, Sequence[int]]) -> dict[str, Counts]:
    """By name; each takes a thousand times what it is stored in, so RecordError before any where one is unknown."""
    for name in stored:
        check_histogram(gap, name)
    return {name: histogram(counts) for name, counts in stored.items()}


def histogram(stored: Sequence[int]) -> Counts:
    """[BINS] counts, of the first filled key, the number of keys up to the last, their counts as steps between them.

    Pairs follow for keys with values above a split: the key's index and its count there.
    """
    counts = np.zeros((BINS // 2, 2), np.int64)
    if stored:
        first, length = stored[:2]
        chosen = counts[first : first + length]
        chosen[:, 0] = np.cumsum(stored[2 : 2 + length])
        above = np.asarray(stored[2 + length :], np.int64).reshape(-1, 2)
        chosen[above[:, 0], 1] = above[:, 1]
        chosen[:, 0] -= chosen[:, 1]
    return counts.ravel()


def worst(tree: Mapping[str, Any], ids: Sequence[str | None]) -> Worst:
    """The worst sequences of a tree of columns, numbered by the index of what they tell of, and of their ids."""
    if not tree:
        return Worst()
    tokens, gaps = tree["tokens"], np.full((len(tree["tokens"]), len(GAPS), 3), np.nan)
    for number, found in enumerate(map(tree["gaps"].get, GAPS)):
        for index in (index for index in range(len(tokens)) if found and str(index) in found["k3_sum"]):
            key = str(index)
            own = found.get("tokens", {}).get(key, tokens[index])
            gaps[index, number] = own, found["log_geometric_ratio"][key], found["k3_sum"][key]
    kept = tree.get("columns", {"sequence": [], "places": [], "tokens": {"number": [], "position": []}})
    columns = (
        np.array([tree["shard"], tree["index"], tokens], np.int64).T,
        gaps,
        *_positions(tree["positions"]),
        np.array([kept["sequence"], kept["places"]], np.int64).T,
        *_positions(kept["tokens"]),
    )
    return Worst.of(Sequences.of_columns(columns, ids))


def _positions(tree: Mapping[str, Any]) -> Positions:
    logprobs = np.full((len(tree["position"]), len(LOGPROBS)), np.nan)
    for k, name in enumerate(LOGPROBS):
        for row in range(len(logprobs)):
            logprobs[row, k] = tree.get(name, {}).get(str(row), np.nan)
    return Positions(np.array(tree["number"], np.int64), np.array(tree["position"], np.int64), logprobs)
