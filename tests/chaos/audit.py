"""The audit: what a database holds, against what was acknowledged.

Opens the database by itself, after the service. Every acknowledged key is there once, with its digest; nothing is there
that nobody sent; each step counts the shards that are stored; complete steps are the merge of their stored shards in
shard order, bit for bit, and agree with the float64 oracle of the contents.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from offpolicy_monitor.store.rows.tables import COMPLETE, runs, shards, steps
from offpolicy_monitor.summary.step import StepSummary, merge_all
from offpolicy_monitor.summary.stored import from_bytes, to_bytes
from sqlalchemy import NullPool, Row, create_engine, select

from tests.agreement import assert_gap_agrees
from tests.chaos.contents import Key, digest, sequences
from tests.chaos.ledger import Ledger
from tests.reference import GAPS

StepKey = tuple[str, int]


@dataclass
class Findings:
    """What was found, a sentence each."""

    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.lost) + len(self.doubled) + len(self.wrong)


@dataclass(frozen=True)
class Stored:
    """The rows of a database that are audited."""

    shards: Sequence[Row[Any]]
    steps: Sequence[Row[Any]]

    @classmethod
    def read(cls, url: str) -> "Stored":
        """Everything, in the order of keys."""
        engine = create_engine(url, poolclass=NullPool)
        with engine.connect() as connection:
            order = (runs.c.name, shards.c.step, shards.c.shard)
            query = select(runs.c.name, shards).join(runs, runs.c.id == shards.c.run_id).order_by(*order)
            found = connection.execute(query).all()
            query = select(runs.c.name, steps).join(runs, runs.c.id == steps.c.run_id)
            return cls(found, connection.execute(query).all())


def audit(url: str, ledger: Ledger) -> Findings:
    """What of the ledger the database at a URL does not hold, or holds otherwise."""
    stored = Stored.read(url)
    findings = Findings(acknowledged=len(ledger.acknowledged))
    _audit_shards(stored, ledger, findings)
    findings.wrong += _steps_at_fault(stored)
    return findings


def _audit_shards(stored: Stored, ledger: Ledger, findings: Findings) -> None:
    rows = {Key(row.name, row.step, row.shard): row for row in stored.shards}
    times = Counter(Key(row.name, row.step, row.shard) for row in stored.shards)
    findings.lost += [f"{key} was acknowledged" for key in ledger.acknowledged if key not in rows]
    findings.doubled += [f"{key} is stored {n} times" for key, n in times.items() if n > 1]
    findings.doubled += [f"{key} was new {n} times" for key, n in ledger.firsts.items() if n > 1]
    findings.wrong += [f"{key} was never sent" for key in rows if key not in ledger.sent]
    for key in rows.keys() & ledger.sent:
        if bytes(rows[key].digest) != (ledger.acknowledged.get(key) or digest(key)):
            findings.wrong.append(f"{key} has another digest")
        if rows[key].tokens != sum(len(sequence.mask) for sequence in sequences(key)):
            findings.wrong.append(f"{key} has {rows[key].tokens} tokens")


def _steps_at_fault(stored: Stored) -> Iterator[str]:
    of_step = defaultdict[StepKey, list[Row[Any]]](list)
    for row in stored.shards:
        of_step[row.name, row.step].append(row)
    known = Counter((row.name, row.step) for row in stored.steps)
    yield from (f"{key} has {known[key]} rows of steps" for key in of_step if known[key] != 1)
    for row in stored.steps:
        parts = of_step[row.name, row.step]
        if row.received != len(parts):
            yield f"{(row.name, row.step)} counts {row.received} shards of {len(parts)} stored"
        elif (row.state == COMPLETE) != (row.received == row.shards):
            yield f"{(row.name, row.step)} is {row.state} with {row.received} of {row.shards} shards"
        elif row.state == COMPLETE:
            yield from _totals_at_fault(row, parts)


def _totals_at_fault(step: Row[Any], parts: Sequence[Row[Any]]) -> Iterator[str]:
    if len(parts) == 1:
        merged = from_bytes(step.summary)  # a shard that is its whole step has no summary of its own
    else:
        merged = merge_all(from_bytes(part.summary) for part in parts)
        if to_bytes(from_bytes(step.summary)) != to_bytes(merged):
            yield f"{(step.name, step.step)} is not the merge of its shards"
    try:
        _agree(merged, [Key(part.name, part.step, part.shard) for part in parts])
    except AssertionError as error:
        yield f"{(step.name, step.step)} is not what the oracle says: {error}"


def _agree(merged: StepSummary, keys: Sequence[Key]) -> None:
    sent = [sequence for key in keys for sequence in sequences(key)]
    figures = merged.figures()
    for gap in GAPS:
        assert_gap_agrees(figures["gaps"][gap], sent, gap)
