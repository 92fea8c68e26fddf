"""The service of several workers on one machine: what is looked at before, and what a worker does in its process.

Only workers have an application; the supervisor has the address, and the folder of counts.
"""

import gc
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from offpolicy_monitor import logs
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.server.http.connection import Shedding
from offpolicy_monitor.server.http.tls import certificate
from offpolicy_monitor.server.memory import set_up_malloc, uncollected
from offpolicy_monitor.server.process import (
    BACKLOG,
    END_WITHIN,
    SWITCH_SECONDS,
    Listening,
    base_url,
    bound,
    config_of,
    end,
    refuse_open,
)
from offpolicy_monitor.server.workers.board import Board
from offpolicy_monitor.server.workers.channel import Channel
from offpolicy_monitor.server.workers.membership import Membership, Place
from offpolicy_monitor.server.workers.shares import share_of
from offpolicy_monitor.server.workers.siblings import Workers
from offpolicy_monitor.server.workers.supervisor import Supervisor
from offpolicy_monitor.server.workers.worker import Worker
from offpolicy_monitor.settings import Settings

log = structlog.get_logger("offpolicy_monitor.server")
#: What every worker needs, and would load by itself: loaded before, it is in memory once.
LOADED_BEFORE: Final = ("offpolicy_monitor.measure.measurer",)
#: Seconds for which the supervisor waits longer than a worker may take to end.
GRACE: Final = 0.5


def serve(settings: Settings, insecure: bool, started: Callable[[Listening], None]) -> int | None:
    """As `process.serve`, with so many workers as the settings say.

    Raises ConfigurationError as well where several processes cannot share the database, or the system cannot have them.
    """
    refuse_alone(settings)
    if not insecure:
        refuse_open(settings)
    secure = certificate(settings) is not None
    with uncollected():
        for module in LOADED_BEFORE:
            importlib.import_module(module)
        gc.freeze()  # what is never looked through is never copied either
    board, folder = Board(settings.workers), tempfile.mkdtemp(prefix="offpolicy-monitor-")
    try:
        with bound(settings.host, settings.port) as listener:
            where = base_url(listener, secure)
            work = partial(_work, settings, board, Path(folder))
            supervisor = Supervisor(listener, settings.workers, work, board, END_WITHIN + GRACE)
            return supervisor.run(lambda device: started(Listening(where, device)), BACKLOG)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def refuse_alone(settings: Settings) -> None:
    """ConfigurationError where there can be one process only."""
    variable = settings.variable("workers")
    if settings.database_url.startswith("sqlite"):
        raise ConfigurationError(
            f"{variable}={settings.workers}, and a SQLite file takes one process that writes: use PostgreSQL "
            f"({settings.variable('database_url')}=postgresql://...), or one worker"
        )
    if sys.platform != "linux":
        raise ConfigurationError(f"{variable}={settings.workers} needs Linux: serve with one worker here")


def _work(settings: Settings, board: Board, folder: Path, number: int, channel: Channel) -> int:
    """Serve until the supervisor says to stop, or is no more."""
    supervisor = os.getppid()
    logs.configure(settings.log_level, settings.log_format, worker=number + 1)
    set_up_malloc()
    sys.setswitchinterval(SWITCH_SECONDS)
    own, shedding, siblings = share_of(settings), Shedding(), Workers(channel, board, number)
    with uncollected():
        membership = Membership(siblings, Place(number, settings.workers, board, folder))
        app = create_app(own, membership=membership)
        config = config_of(app, own, shedding)
        worker = Worker(config, app, certificate(own), channel, siblings, board, shedding.add)
        with worker.stopping_in_time():
            worker.run([])
    if os.getppid() != supervisor:
        shutil.rmtree(folder, ignore_errors=True)
    return end(0)
