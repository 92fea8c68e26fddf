"""Gathered: the rows of one gradient step, posted as one shard when the framework says that the step is over.

For hooks that see one micro-batch after the other and are told the step, which the `collector` has to count. Rows are
kept as views of the framework's tensors; nothing is copied before the monitor does it. Knows no framework.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from offpolicy_monitor.client.adapters import Logs
from offpolicy_monitor.vocabulary import LOGPROBS


class Gathered:
    """Sequences of one gradient step on one rank: by array name, one row [n] each."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {}

    def add(self, rows: Mapping[str, Sequence[Any]]) -> None:
        """Add the sequences of one micro-batch."""
        for name, values in rows.items():
            self.rows.setdefault(name, []).extend(values)

    def post(self, monitor: Logs, place: tuple[int, int] | None, *, step: int, **numbers: int) -> None:
        """Post what was added as one shard at `place` (shard, shards), and forget it.

        Nothing is posted without a place, without rows (a stage of a pipeline that computes no loss), or where fewer
        than two of the three log-probs are there: one alone has no gap.
        """
        rows, self.rows = self.rows, {}
        if place is not None and sum(name in rows for name in LOGPROBS) >= 2:
            monitor.log(step=step, shard=place[0], shards=place[1], **numbers, **rows)
