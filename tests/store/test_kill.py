"""A writer killed at any moment has stored all that it acknowledged, once, and nothing by halves."""

import os
import time
from collections import Counter
from contextlib import closing

from offpolicy_monitor.store import Receipt, Store
from offpolicy_monitor.store.rows.tables import shards, steps
from offpolicy_monitor.store.session import Database, parse_url
from offpolicy_monitor.summary.step import merge_all
from sqlalchemy import select

from tests.fixtures.forks import started
from tests.fixtures.shards import make_record
from tests.store.writer import SHARDS

WRITER = "import sys; from tests.store.writer import main; main(sys.argv[1], int(sys.argv[2]))"
#: Of every shard, unix seconds.
RECEIVED_AT = 1000.0


def run_and_kill(url: str, seed: int, seconds: float) -> set[int]:
    """The numbers of the shards that the writer acknowledged before its SIGKILL."""
    with started(["-c", WRITER, url, str(seed)], os.environ) as (writer, said):
        first = said.readline()
        time.sleep(seconds)
        writer.kill()
        rest = said.read()
        assert writer.wait() == -9
    whole_lines = (first + rest).rpartition("\n")[0]
    return set(map(int, whole_lines.split()))


def test_a_killed_writer_has_stored_what_it_acknowledged(database_url: str) -> None:
    acknowledged: set[int] = set()
    for seed, seconds in enumerate((0.05, 0.15, 0.3)):
        acknowledged |= run_and_kill(database_url, seed, seconds)
    assert len(acknowledged) > 10
    records = [make_record(n // SHARDS, n % SHARDS, SHARDS, received_at=RECEIVED_AT) for n in sorted(acknowledged)]
    with closing(Store.open(database_url)) as store:
        answers = store.ingest(records)
        # What a service does once it is started again: a transaction merges only so many steps of which it remembers
        # nothing, so that some may have all their shards and lack their merge.
        store.upkeep.sweep(RECEIVED_AT, timeout=60.0)
        assert all(isinstance(answer, Receipt) and answer.duplicate for answer in answers)
        assert [answer.summary for answer in answers if isinstance(answer, Receipt)] == [r.summary for r in records]
        figures = {row["step"]: row["gaps"] for row in store.steps("r1", limit=1000).rows if row["complete"]}
    for step, gaps in figures.items():
        of_step = [make_record(step, shard, SHARDS).summary for shard in range(SHARDS)]
        assert gaps == merge_all(of_step).figures()["gaps"]
    with closing(Database(parse_url(database_url))) as database, database.reading() as connection:
        stored = Counter(connection.execute(select(shards.c.step)).scalars())
        rows = connection.execute(select(steps.c.step, steps.c.received, steps.c.state)).all()
    assert {row.step: row.received for row in rows} == stored
    assert all((row.state == "complete") == (row.received == SHARDS) for row in rows)
