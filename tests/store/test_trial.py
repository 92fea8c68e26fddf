"""How the real writes went speaks for readiness, for as long as it means anything."""

from contextlib import closing

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.store import Store, trial
from offpolicy_monitor.store.session import Database, parse_url
from sqlalchemy import text

from tests.fixtures.shards import make_record
from tests.fixtures.stores import Clock

FAILURE = Unavailable(503, "store-unavailable", "away")


def test_a_write_that_went_well_proves_the_store_for_a_second(clock: Clock) -> None:
    outcomes = trial.Outcomes(clock)
    assert outcomes.prove() is False
    outcomes.succeeded()
    assert outcomes.prove() is True
    clock.now += trial.PROVEN
    assert outcomes.prove() is False


def test_a_write_that_failed_counts_for_ten_seconds_or_until_one_goes_well(clock: Clock) -> None:
    outcomes = trial.Outcomes(clock)
    outcomes.check()
    outcomes.succeeded()
    outcomes.failed(FAILURE)
    assert outcomes.prove() is False
    clock.now += trial.DOUBTED - 0.1
    with pytest.raises(Unavailable, match="away"):
        outcomes.check()
    clock.now += 0.2
    outcomes.check()
    outcomes.failed(FAILURE)
    outcomes.succeeded()
    outcomes.check()


def test_a_trial_is_made_unless_a_write_has_just_gone_well(store: Store, database_url: str) -> None:
    store.try_writing()
    store.ingest([make_record()])
    with closing(Database(parse_url(database_url))) as database, database.writing() as connection:
        connection.execute(text("ALTER TABLE alerts RENAME TO elsewhere"))
    store._outcomes.succeeded()
    store.try_writing()
    store._outcomes._succeeded = None
    with pytest.raises(Exception, match="alerts"):
        store.try_writing()
