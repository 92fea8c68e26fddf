"""A PostgreSQL that answers nothing: every request is answered in time, the end comes, and then all is as before."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import URL, NullPool, create_engine, text

from tests.fixtures.database_proxy import Proxy
from tests.fixtures.posters import Posters
from tests.fixtures.postgres import Cluster
from tests.fixtures.service import Served, service, wait_until_ready

POST_WITHIN, READY_WITHIN, SCRAPE_WITHIN, END_WITHIN = 15.0, 2.0, 5.0, 20.0
#: What a busy machine may add to a promise: seconds, and so many times what it takes for an answer while all is well.
GRACE, TIMES_SLOWER = 4.0, 10
HANGS_FOR = 12.0
PATIENCE = 60.0  # seconds
READERS = 40


@dataclass(frozen=True)
class Distant(Served):
    """A service over the proxy over the cluster."""

    proxy: Proxy
    cluster: Cluster
    database: str

    def grace(self) -> float:
        """Seconds that the machine may add to a promise, as busy as it is now."""
        began = time.monotonic()
        for _ in range(5):
            get(f"{self.url}/healthz", PATIENCE)
        return GRACE + TIMES_SLOWER * (time.monotonic() - began) / 5


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, postgres_cluster: Cluster) -> Iterator[Distant]:
    """One for all tests, each of which finds it well again; the last one ends it."""
    proxy, name = Proxy(postgres_cluster.socket), postgres_cluster.database()
    url = URL.create("postgresql+psycopg", "postgres", host="127.0.0.1", port=proxy.port, database=name)
    database = {"OFFPOLICY_DATABASE_URL": url.render_as_string(hide_password=False)}
    try:
        with service(tmp_path_factory.mktemp("distant"), **database) as running:
            own = postgres_cluster.url(name)
            yield Distant(running.port, running.process, running.log, proxy, postgres_cluster, own)
    finally:
        proxy.close()
        postgres_cluster.take_back(name)


def get(url: str, within: float) -> tuple[int, str]:
    """Status and body; an answer that takes longer fails."""
    began = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=within) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    finally:
        assert time.monotonic() - began < within, url


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def locked(served: Distant) -> Iterator[None]:
    """Another session holds the table of runs."""
    with create_engine(served.database, poolclass=NullPool).connect() as connection:
        connection.execute(text("LOCK TABLE runs"))
        yield


HANGS: dict[str, Callable[[Distant], AbstractContextManager[None]]] = {
    "all of the server stands still": lambda served: served.cluster.frozen(),
    "the network swallows everything": lambda served: served.proxy.swallowing(),
    "a table is locked": locked,
}


@pytest.mark.parametrize("hang", HANGS)
def test_everything_is_answered_in_time_while(hang: str, served: Distant) -> None:
    posters, runs, grace = Posters(served.url), hang.replace(" ", "-"), served.grace()
    with posters.posting(runs), ThreadPoolExecutor(READERS) as readers:
        wait_for(lambda: posters.acknowledged)
        with HANGS[hang](served):
            until = time.monotonic() + HANGS_FOR
            # Requests that ask the database: each ends well if it is answered at all.
            asked = [readers.submit(get, f"{served.url}/v1/runs", PATIENCE) for _ in range(READERS)]
            # A write that went well speaks for the next one for a second.
            time.sleep(1.0)
            wait_for(lambda: get(f"{served.url}/readyz", READY_WITHIN + grace)[0] == 503)
            before = len(posters.acknowledged)
            while time.monotonic() < until:
                assert get(f"{served.url}/healthz", 1.0 + grace)[0] == 200
                status, ready = get(f"{served.url}/readyz", READY_WITHIN + grace)
                assert status == 503 and json.loads(ready)["checks"]["store"] is False and json.loads(ready)["reason"]
                status, metrics = get(f"{served.url}/metrics", SCRAPE_WITHIN + grace)
                assert status == 200 and "offpolicy_build_info" in metrics
                assert get(f"{served.url}/docs", SCRAPE_WITHIN + grace)[0] == 200
                time.sleep(0.3)
        assert all(reading.result() for reading in asked)
        wait_until_ready(served.url, served.process)
        wait_for(lambda: len(posters.acknowledged) > before)
    assert set(posters.answers) == {200, 503}, posters.problems
    assert not posters.unanswered
    assert posters.without_retry_after == 0
    assert posters.slowest < POST_WITHIN + grace
    assert_stored_once(served, posters, runs)


def assert_stored_once(served: Distant, posters: Posters, runs: str) -> None:
    """What was acknowledged is there, once, and nothing else is, of runs whose names begin so."""
    with create_engine(served.database, poolclass=NullPool).connect() as connection:
        query = "SELECT runs.name, shards.step FROM shards JOIN runs ON runs.id = shards.run_id"
        stored = [(name, step) for name, step in connection.execute(text(query))]
        complete = connection.execute(text("SELECT count(*) FROM steps WHERE state = 'complete' AND received = 1"))
        assert complete.scalar_one() == len(stored)
    assert len(stored) == len(set(stored))
    assert {pair for pair in stored if pair[0].startswith(runs)} == posters.acknowledged


def test_the_service_ends_when_told_though_its_database_stands_still(served: Distant) -> None:
    posters, grace = Posters(served.url), served.grace()
    with served.cluster.frozen(), posters.posting("p"):
        time.sleep(3.0)
        began = time.monotonic()
        os.kill(served.process.pid, signal.SIGTERM)
        assert served.process.wait(END_WITHIN + grace) == 0
        assert time.monotonic() - began < END_WITHIN + grace
    assert posters.acknowledged == set()
    assert set(posters.answers) <= {503}
