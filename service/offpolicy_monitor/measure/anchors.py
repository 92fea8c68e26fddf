"""Anchor disagreement: on how many tokens a rule decides otherwise when mu is its anchor instead of pi_old.

A rule on staleness is anchored on pi_old, on total on mu; each runs on the other gap too, over the tokens that are
valid for all three log-probs. Rules on mismatch compare no current policy and have no other anchor. Tables:
`anchor/<row>`.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from torch import Tensor

from offpolicy_monitor.batch import Array
from offpolicy_monitor.measure.view import BlockView


def anchor_sums(view: BlockView) -> dict[str, Tensor]:
    """[rows that have another anchor]: tokens that they decide otherwise by it."""
    found = view.anchored
    return {} if found is None else {"anchors": found[1]}


def anchor_tables(arrays: Mapping[str, Array], view: BlockView) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The anchor tables; none unless all three log-probs were sent, and some token is valid for all."""
    if view.anchored is not None and arrays["cross/tokens"]:
        for number, differing in zip(view.anchored[0], arrays["anchors"], strict=True):
            name = quote(view.decider.rows[number].name, safe="")
            yield f"anchor/{name}", {"tokens": arrays["cross/tokens"], "differing": differing}
