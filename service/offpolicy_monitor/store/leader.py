"""Leading: which of the processes on one database does what only one of them must do.

It tells alerts, closes steps whose time is up, watches the clock and exports the runs. On PostgreSQL the leader holds
an advisory lock on a connection of its own, and proves every second that it still does. One that cannot prove it stops
leading before the server ends its silent session and gives the lock to the next. A SQLite file has one process.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog
from sqlalchemy import URL

from offpolicy_monitor.store.patience import Patience
from offpolicy_monitor.store.session import parse_url

log = structlog.get_logger("offpolicy_monitor.store")

# Any constant will do, so long as every process of this package asks PostgreSQL for the same one.
LEADER_LOCK: Final = 0x6F66_6C64
#: Seconds between proofs, and the longest wait for one.
BEAT, PROOF_WITHIN = 1.0, 2.0
#: How long a proof lasts, seconds; then, later, the server ends a session that it has not heard of.
LEASE, SILENCE = 6.0, 8.0


class Leader(Protocol):
    """Whether this process leads; from `start` to `close`."""

    def leads(self) -> bool: ...
    def start(self, changed: Callable[[], None]) -> None: ...
    def close(self) -> None: ...


class Alone:
    """The only process there can be."""

    def leads(self) -> bool:
        """Always."""
        return True

    def start(self, changed: Callable[[], None]) -> None:
        """Nothing changes."""

    def close(self) -> None:
        """Nothing to give up."""


class Elected:
    """One of several processes. `changed` is called by a thread of its own when it begins or ceases to lead."""

    def __init__(self, url: URL, clock: Callable[[], float] = time.monotonic) -> None:
        self._url, self._clock = url, clock
        self._connection: Any = None
        self._proved_at: float | None = None
        self._led = False
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def leads(self) -> bool:
        """Whether the lock was proved to be held so lately that nobody else can have it."""
        proved = self._proved_at
        return proved is not None and self._clock() - proved < LEASE

    def start(self, changed: Callable[[], None]) -> None:
        """Stand for election, first here, then beside; answers when the first try is over."""
        self._beat()
        self._told(changed)
        self._thread = threading.Thread(target=self._run, args=(changed,), name="leader", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let another lead."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(BEAT + PROOF_WITHIN)
        self._step_down()

    def _run(self, changed: Callable[[], None]) -> None:
        while not self._closed.wait(BEAT):
            self._beat()
            self._told(changed)

    def _beat(self) -> None:
        """Prove the lock, or try to get it. A proof counts from before it was asked for."""
        asked_at = self._clock()
        try:
            with Patience(PROOF_WITHIN):
                held = self._holds()
        except Exception as error:
            log.debug("no leader can be proved", reason=str(error).partition("\n")[0])
            self._step_down()
        else:
            self._proved_at = asked_at if held else None

    def _holds(self) -> bool:
        if self._connection is None:
            self._connection = _connected(self._url)
        if self._proved_at is not None:
            self._connection.execute("SELECT 1")
            return True
        return bool(self._connection.execute("SELECT pg_try_advisory_lock(%s)", [LEADER_LOCK]).fetchone()[0])

    def _step_down(self) -> None:
        """Without a connection there is no lock."""
        connection, self._connection, self._proved_at = self._connection, None, None
        if connection is not None:
            connection.close()

    def _told(self, changed: Callable[[], None]) -> None:
        if self._led != self.leads():
            self._led = not self._led
            log.info("this process leads now" if self._led else "this process no longer leads")
            changed()


def leader_of(database_url: str) -> Leader:
    """Who leads on this database, not yet standing for election."""
    url = parse_url(database_url)
    return Alone() if url.get_backend_name() == "sqlite" else Elected(url)


def _connected(url: URL) -> Any:
    """A session that the server ends where it hears nothing of it; PostgreSQL 14 or newer can."""
    from offpolicy_monitor.store import postgres  # of an extra that SQLite does without

    arguments, keywords = url.get_dialect()().create_connect_args(url)
    connection = postgres.connect(*arguments, **keywords, autocommit=True)
    connection.execute(
        "SELECT set_config(name, %s, false) FROM pg_settings WHERE name = 'idle_session_timeout'",
        [f"{int(SILENCE * 1000)}ms"],
    )
    return connection
