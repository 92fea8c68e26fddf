"""Seat: one place among the workers, and the process in it: how it begins, and how it has ended.

A process is a fork of the one that listens, which has imported what it needs. Knows no connections, and not when one is
to be started.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NoReturn

from offpolicy_monitor.commandline import SETUP_WRONG
from offpolicy_monitor.errors import ConfigurationError, OffpolicyMonitorError, Unavailable
from offpolicy_monitor.server.workers import channel as said
from offpolicy_monitor.server.workers.channel import Channel, pair
from offpolicy_monitor.server.workers.roster import Load, Waits

#: What tells a service to end.
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

#: What a worker does in its own process, by its number and its channel; answers the exit status.
Work = Callable[[int, Channel], int]


@dataclass(eq=False)
class Seat:
    """`due`: when the next process is to be started here, None while there is one."""

    number: int
    due: float | None = 0.0
    pid: int = 0
    channel: Channel | None = None
    born: float = 0.0
    device: str = ""
    serves: bool = False
    leaves: bool = False
    missed: bool = False
    stood_still: bool = False
    load: Load = field(default_factory=Load)
    waits: Waits = field(default_factory=Waits)

    def begin(self, work: Work, leave: Callable[[], None]) -> Channel:
        """Start a process; its channel. In the process `leave` closes what is of the one that listens."""
        ours, theirs = pair()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pid = os.fork()
        if pid == 0:
            ours.close()
            _become(work, self.number, theirs, leave)
        theirs.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self.pid, self.channel, self.born, self.due = pid, ours, time.monotonic(), None
        self.load, self.missed, self.stood_still = Load(), False, False
        return ours

    def ended(self) -> int:
        """Its process is no more; with what status it ended, below 0 by which signal."""
        assert self.channel is not None
        self.channel.close()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.channel, self.serves, self.leaves = None, False, False
        return status

    def signal(self, number: int) -> None:
        """Send its process a signal."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _become(work: Work, number: int, channel: Channel, leave: Callable[[], None]) -> NoReturn:
    """The new process: nothing of the one that listens is left open in it, and it never comes back."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        # Until it serves it ends by SIGTERM at once; a Ctrl-C is of the supervisor, which says what follows.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        leave()
        status = work(number, channel)
    except OffpolicyMonitorError as error:
        status = SETUP_WRONG if isinstance(error, ConfigurationError | Unavailable) else 1
        channel.send(said.FAILED + json.dumps([status, str(error)]).encode()[: said.LONGEST - 1])
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(status)


def alone() -> None:
    """Return when no other thread runs: a fork has only the one that forked, and what others held would stay held."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(5.0)


def how(status: int) -> str:
    """How a process ended."""
    return f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


def _flush() -> None:
    """What was said is written."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
