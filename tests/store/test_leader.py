"""One process leads, can prove it, and is followed within seconds of its end."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
from offpolicy_monitor.store.leader import BEAT, LEASE, SILENCE, Alone, Elected, Leader, leader_of
from offpolicy_monitor.store.session import parse_url
from sqlalchemy import URL, NullPool, create_engine, text

from tests.fixtures.database_proxy import Proxy
from tests.fixtures.postgres import Cluster
from tests.fixtures.prometheus import wait_for

#: Seconds that a busy machine may add to what is promised.
BUSY = 10.0


@contextmanager
def standing(url: str, changes: list[bool] | None = None) -> Iterator[Leader]:
    leader = leader_of(url)
    leader.start(lambda: changes.append(leader.leads()) if changes is not None else None)
    with closing(leader):
        yield leader


def seconds_until(leader: Leader, leads: bool, within: float) -> float:
    began = time.monotonic()
    while leader.leads() is not leads:
        assert time.monotonic() - began < within, f"leads() is not {leads}"
        time.sleep(0.02)
    return time.monotonic() - began


def test_of_a_sqlite_file_the_one_process_leads(sqlite_url: str) -> None:
    with standing(sqlite_url) as leader:
        assert isinstance(leader, Alone)
        assert leader.leads() is True


def test_the_first_leads_until_it_ends_and_then_the_second_does(postgres_url: str) -> None:
    changes: list[bool] = []
    with ExitStack() as stack:
        first = stack.enter_context(standing(postgres_url))
        second = stack.enter_context(standing(postgres_url, changes))
        assert (first.leads(), second.leads()) == (True, False)
        time.sleep(2.5)
        assert (first.leads(), second.leads(), changes) == (True, False, [])
        first.close()
        assert first.leads() is False
        seconds_until(second, True, BEAT + BUSY)
        wait_for(lambda: changes == [True])


def test_leaders_of_two_databases_are_two(postgres_database) -> None:  # pyrefly: ignore[implicit-any-parameter]
    with standing(postgres_database()) as one, standing(postgres_database()) as other:
        assert one.leads() and other.leads()


def test_a_leader_whose_session_was_ended_stands_again(postgres_url: str) -> None:
    changes: list[bool] = []
    with standing(postgres_url, changes) as leader:
        assert leader.leads()
        holder = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        with create_engine(postgres_url, poolclass=NullPool).connect() as connection:
            connection.execute(
                text(f"{holder} AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
            )
        seconds_until(leader, False, BEAT + BUSY)
        seconds_until(leader, True, BEAT + BUSY)
        wait_for(lambda: changes == [True, False, True])


def test_a_leader_whose_network_swallows_everything_stops_before_the_next_one_begins(
    postgres_url: str, postgres_cluster: Cluster
) -> None:
    proxy = Proxy(postgres_cluster.socket)
    name = postgres_url.rpartition("/")[2].partition("?")[0]
    through = URL.create("postgresql+psycopg", "postgres", host="127.0.0.1", port=proxy.port, database=name)
    with ExitStack() as stack:
        first = stack.enter_context(standing(through.render_as_string(hide_password=False)))
        second = stack.enter_context(standing(postgres_url))
        assert (first.leads(), second.leads()) == (True, False)
        with proxy.swallowing():
            began = time.monotonic()
            seconds_until(first, False, LEASE + BUSY)
            assert second.leads() is False
            seconds_until(second, True, SILENCE + BUSY)
            assert time.monotonic() - began < SILENCE + BUSY
            assert first.leads() is False
        time.sleep(3.0)
        assert (first.leads(), second.leads()) == (False, True)
    proxy.close()


def test_a_process_that_stood_still_does_not_take_itself_for_the_leader(postgres_url: str) -> None:
    """Its clock has gone on; nothing was proved meanwhile."""

    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    clock = Clock()
    leader = Elected(parse_url(postgres_url), clock)
    leader._beat()
    assert leader.leads()
    clock.now += LEASE - 0.1
    assert leader.leads()
    clock.now += 0.2
    assert leader.leads() is False
    leader.close()


@pytest.mark.parametrize("url", ["postgresql://nobody@127.0.0.1:1/none"])
def test_nobody_leads_a_database_that_is_away(url: str) -> None:
    with standing(url) as leader:
        assert leader.leads() is False
