"""What is known of a shard before it is measured, from one read: its run's method rows, and whether it can be stored.

The Ledger decides here too, on what one snapshot shows, so that nothing is measured for a shard that is stored already
or would be refused. That spares work and promises nothing: the transaction that stores decides anew.
"""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select

from offpolicy_monitor.errors import Refusal, Unavailable
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


#: The hour in which runs are counted that begin.
HOUR: Final = 3600.0


@dataclass(frozen=True)
class NewRuns:
    """How many runs may begin within an hour, and the setting that says so."""

    most: int
    setting: str

    def check(self, connection: Connection, run: str, now: float) -> None:
        """Unavailable (429) where as many have begun.

        Many that ask at the same time are all let in: that is as many more as there are connections.
        """
        query = select(runs.c.created_at).order_by(runs.c.id.desc()).offset(self.most - 1).limit(1)
        began = connection.execute(query).scalar()
        left = 0.0 if began is None else began + HOUR - now
        if left > 0:
            detail = (
                f"run {run} would be a new one, and {self.most} have begun within an hour; send it again when fewer "
                f"have, or raise {self.setting}"
            )
            raise Unavailable(429, "too-many-new-runs", detail, retry_after=int(min(left, HOUR)) + 1)


_RUN: Final = select(runs.c.id, runs.c.methods).where(runs.c.name == bindparam("run"))


def known(connection: Connection, run: str, claim: ShardRecord | None, new: NewRuns | None, now: float) -> Known:
    """What is known of a run, and of a shard of it if one is given; the claim's summary is not looked at.

    Unavailable for a run that is not there and may not begin now.
    """
    row = connection.execute(_RUN, {"run": run}).one_or_none()
    if row is None:
        if new is not None:
            new.check(connection, run, now)
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
