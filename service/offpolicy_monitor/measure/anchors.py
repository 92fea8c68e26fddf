"""Maker of anchor disagreement: on how many tokens a rule decides otherwise when mu is its anchor instead of pi_old.

A rule on staleness is anchored on pi_old, on total on mu; each runs on the other gap too, over the tokens that are
valid for all three log-probs. Rules on mismatch compare no current policy and have no other anchor. Tables:
`anchor/<row>`.
"""

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from offpolicy_monitor.core.corrections import decide
from offpolicy_monitor.core.decision import differing_tokens
from offpolicy_monitor.methods.rule import Cut
from offpolicy_monitor.summary.named import Tables

if TYPE_CHECKING:
    from offpolicy_monitor.measure.tables import BlockView

OTHER_ANCHOR: Final = {"staleness": "total", "total": "staleness"}


def anchors(view: "BlockView") -> Tables:
    """The anchor tables of a block; none unless all three log-probs were sent."""
    joint = {gap: view.block.jointly_valid(gap) for gap in OTHER_ANCHOR} if len(view.valid) == 3 else {}
    tables: dict[str, dict[str, float]] = {}
    for row, decision in view.decisions:
        own, other = joint.get(row.gap), joint.get(OTHER_ANCHOR.get(row.gap, ""))
        if own is None or other is None or isinstance(row.rule, Cut):
            continue
        here = decision if own is view.valid[row.gap] else decide(own.gap, row.rule)
        there = decide(other.gap, row.rule)
        differing = int(differing_tokens(own.gap, here, there))
        tables[f"anchor/{quote(row.name, safe='')}"] = {"tokens": own.gap.segments.tokens, "differing": differing}
    return tables
