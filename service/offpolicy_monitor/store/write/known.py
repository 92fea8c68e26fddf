"""What is known of a shard before it is measured, from one read: its run's method rows, and whether it can be stored.

The Ledger decides here too, on what one snapshot shows, so that nothing is measured for a shard that is stored already
or would be refused. That spares work and promises nothing: the transaction that stores decides anew.
"""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select

from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.store.rows.alerts import open_alerts
from offpolicy_monitor.store.rows.records import ShardRecord
from offpolicy_monitor.store.rows.tables import runs
from offpolicy_monitor.store.rows.verdicts import verdict, worst_of_each_rule
from offpolicy_monitor.store.write.ingest import load_ledger
from offpolicy_monitor.summary.step import StepSummary


@dataclass(frozen=True)
class Known:
    """`methods`: the rows chosen for the run, None where the default ones run, as on a run that is not there yet.

    `answer`: the stored summary where this very shard is stored with the same content, the Refusal where it would be
    refused, None where it is new.

    `verdict` and `alerts` are of the run as it stands, as in a Receipt; read where no shard is asked about.
    """

    methods: list[dict[str, Any]] | None
    answer: StepSummary | Refusal | None = None
    verdict: str = "accept"
    alerts: tuple[dict[str, Any], ...] = ()


_RUN: Final = select(runs.c.id, runs.c.methods).where(runs.c.name == bindparam("run"))


def known(connection: Connection, run: str, claim: ShardRecord | None) -> Known:
    """What is known of a run, and of a shard of it if one is given; the claim's summary is not looked at."""
    row = connection.execute(_RUN, {"run": run}).one_or_none()
    if row is None:
        return Known(None)
    if claim is None:
        found = open_alerts(connection, [row.id])[row.id]
        return Known(row.methods, None, verdict(found), tuple(worst_of_each_rule(found)))
    answer = load_ledger(connection, {run: row.id}, [claim]).enter(claim)
    if isinstance(answer, Refusal):
        return Known(row.methods, answer)
    # A duplicate whose summary is not kept any more is measured again to be answered.
    is_kept = answer.duplicate and answer.summary is not claim.summary
    return Known(row.methods, answer.summary if is_kept else None)
