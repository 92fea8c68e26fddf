"""A transaction waits for its server as long as it may, and what it computes meanwhile is not waiting."""

import time
from contextlib import closing

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.store.session import Database, parse_url
from sqlalchemy import text

SLEEP = text("SELECT pg_sleep(:seconds)")


@pytest.mark.parametrize("kind", ["reading", "writing"])
def test_a_statement_that_takes_too_long_is_503_in_time_and_the_next_one_is_served(
    kind: str, postgres_url: str
) -> None:
    with closing(Database(parse_url(postgres_url))) as database:
        began = time.monotonic()
        transaction = getattr(database, kind)(0.5)
        with pytest.raises(Unavailable, match=r"no answer within 0\.5 s") as caught, transaction as connection:
            connection.execute(SLEEP, {"seconds": 30})
        assert 0.5 <= time.monotonic() - began < 15
        assert (caught.value.status, caught.value.kind) == (503, "store-unavailable")
        with getattr(database, kind)() as connection:
            assert connection.execute(text("SELECT 1")).scalar_one() == 1


def test_patience_is_that_of_the_whole_transaction(postgres_url: str) -> None:
    with closing(Database(parse_url(postgres_url))) as database:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="no answer"), database.writing(1.0) as connection:
            for _ in range(100):
                connection.execute(SLEEP, {"seconds": 0.3})
        assert time.monotonic() - began < 15


def test_computing_in_a_transaction_costs_no_patience(postgres_url: str) -> None:
    with closing(Database(parse_url(postgres_url))) as database, database.writing(2.0) as connection:
        connection.execute(text("SELECT 1"))
        time.sleep(2.5)
        connection.execute(SLEEP, {"seconds": 0.3})


def test_a_migration_waits_for_as_long_as_it_takes(postgres_url: str) -> None:
    with closing(Database(parse_url(postgres_url), bounded=False)) as database, database.writing(0.2) as connection:
        connection.execute(SLEEP, {"seconds": 1.0})
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "0"


def test_the_url_says_how_connections_are_made_before_the_program_does(postgres_url: str) -> None:
    url = parse_url(postgres_url)
    changed = url.update_query_dict({"application_name": "mine"})
    for given, name in ((url, "offpolicy-monitor"), (changed, "mine")):
        with closing(Database(given)) as database, database.reading() as connection:
            assert connection.execute(text("SHOW application_name")).scalar_one() == name
