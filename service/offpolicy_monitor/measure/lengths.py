"""Length tables: how many sequences and tokens there are by length, and how many of them each rule drops.

Lengths are binned in quarters of a power of two. Rules on whole sequences count sequences, others tokens. Tables:
`length/<gap>/sequences`, `length/<gap>/tokens`, `masked/<row>/<gap>/sequences` or `.../tokens`.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import torch
from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.core.cells import tally
from offpolicy_monitor.core.gap import chosen
from offpolicy_monitor.measure.view import BlockView
from offpolicy_monitor.summary.tables.lengths import BINS, BINS_A_POWER


def length_sums(view: BlockView) -> dict[str, Tensor]:
    """[G, bins] of sequences and tokens by length, [rows, bins] of what rows drop, by what they decide about."""
    counts = view.own(view.gaps.counts)
    bins = torch.floor(torch.log2(counts.clamp(min=1.0)) * BINS_A_POWER).long()
    found = {
        "length/sequences": tally(bins, BINS, view.filled),
        "length/tokens": tally(bins, BINS, counts),
    }
    for name, group in view.decided.groups:
        if group.drops:
            of_rows = chosen(bins, group.gaps[: group.drops])
            found[f"masked/{name}"] = tally(of_rows, BINS, view.masked[name])
    return found


def length_tables(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The length tables of gaps with a token."""
    gaps, tokens, rows = view.block.batch.gaps, arrays["gaps/tokens"], view.decider.rows
    for place, gap in enumerate(gaps):
        if tokens[place]:
            for unit in ("sequences", "tokens"):
                yield f"length/{gap}/{unit}", {"": arrays[f"length/{unit}"][place]}
    for name, group in view.decided.groups:
        for place, number in enumerate(group.rows[: group.drops]):
            if tokens[gaps.index(rows[number].gap)]:
                path = f"masked/{quote(rows[number].name, safe='')}/{rows[number].gap}/{name}"
                yield path, {"": arrays[f"masked/{name}"][place]}
