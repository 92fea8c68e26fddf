"""Two services on one PostgreSQL: one of them leads, and another takes over when it dies or stands still."""

import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from offpolicy_monitor.alerts.episodes import CALM

from tests.e2e.drift import DRIFTED, HEALTHY, RUN, post
from tests.fixtures.prometheus import wait_for
from tests.fixtures.service import Served, service
from tests.notify.receiver import Receiver, receiving

#: A leader that dies is followed at once, one that is only silent when its lease is over; both with some grace.
AFTER_DEATH, AFTER_SILENCE = 8.0, 16.0
#: Longer than the leader takes to look for what others have stored.
QUIET = 7.0


class Follower(Served):
    """One of several services, any of which may lead."""

    def scrape(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def leads(self) -> bool:
        found = re.search(r"^offpolicy_leader ([01])\.0$", self.scrape(), re.MULTILINE)
        assert found is not None
        return found[1] == "1"

    def batches(self) -> int:
        found = re.search(rf'^offpolicy_batches_total{{run="{RUN}"}} (\d+)', self.scrape(), re.MULTILINE)
        return int(found[1]) if found else 0

    def shows_the_run(self) -> bool:
        return f'offpolicy_step{{run="{RUN}"}}' in self.scrape()


@contextmanager
def following(folder: Path, name: str, **variables: str) -> Iterator[Follower]:
    with service(folder, name=name, **variables) as running:
        yield Follower(running.port, running.process, running.log)


def told(receiver: Receiver) -> list[tuple[str, str]]:
    """Alert and state of each message, of the one alert that is followed here."""
    return [(body["alert"], body["state"]) for body in receiver.taken if body["alert"] == "MismatchKL"]


def test_one_tells_and_shows_runs_and_another_takes_over(tmp_path: Path, postgres_url: str) -> None:
    with ExitStack() as stack:
        receiver = stack.enter_context(receiving())
        setup = {"OFFPOLICY_DATABASE_URL": postgres_url, "OFFPOLICY_WEBHOOK_URL": receiver.url}
        both = [stack.enter_context(following(tmp_path, name, **setup)) for name in ("first", "second")]
        leader, follower = both
        assert [service.leads() for service in both] == [True, False]

        # What the follower stores is told by the leader, once, and shown by it alone.
        for step, service in enumerate((follower, leader, follower)):
            post(service.url, step, DRIFTED)
        wait_for(lambda: told(receiver))
        time.sleep(QUIET)
        assert told(receiver) == [("MismatchKL", "active")]
        assert [service.shows_the_run() for service in both] == [True, False]
        assert [service.batches() for service in both] == [1, 2]

        # A leader that stands still is followed; when it goes on, it follows.
        os.kill(leader.process.pid, signal.SIGSTOP)
        wait_for(follower.leads, AFTER_SILENCE)
        # Three steps end the breach of the warning too, which five of seven would make active.
        for step in range(3, 6):
            post(follower.url, step, HEALTHY)
        wait_for(lambda: len(told(receiver)) == 2)
        assert follower.shows_the_run()
        os.kill(leader.process.pid, signal.SIGCONT)
        time.sleep(QUIET)
        assert [service.leads() for service in both] == [False, True]
        assert not leader.shows_the_run()

        # A leader that dies is followed at once.
        os.kill(follower.process.pid, signal.SIGKILL)
        died = time.monotonic()
        wait_for(leader.leads, AFTER_DEATH)
        assert time.monotonic() - died < AFTER_DEATH
        # The breach comes back, of which people are told where that lasts.
        for step in range(6, 10 + CALM):
            post(leader.url, step, DRIFTED)
        wait_for(lambda: len(told(receiver)) == 3)
        time.sleep(QUIET)
        assert told(receiver) == [("MismatchKL", state) for state in ("active", "resolved", "active")]
        assert len({body["id"] for body in receiver.taken}) == len(receiver.taken)
