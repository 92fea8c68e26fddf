"""The server process: how connections are taken, and what its collector of garbage looks through."""

import asyncio
import socket
from contextlib import ExitStack
from pathlib import Path

import uvloop
from offpolicy_monitor.server.process import TAKEN_AT_ONCE, bound, taking_many

from tests.fixtures.forks import ended
from tests.fixtures.service import clean_environment

#: Serves until it listens, and tells what is collected, what is set apart and what is looked through. Nothing is set
#: apart when it begins: as where it has just imported all of it.
SERVED = """
import gc, os, signal
gc.unfreeze()
from offpolicy_monitor.server import process
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import migrate

def started(listening):
    print("collected", gc.isenabled(), gc.get_freeze_count(), len(gc.get_objects()), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

migrate.upgrade(Settings().database_url)
process.serve(Settings(), False, started)
"""
CLIENTS = 200


def test_of_clients_that_come_at_once_many_are_taken_in_a_turn_of_the_loop() -> None:
    async def turns() -> int:
        loop, taken = asyncio.get_running_loop(), list[asyncio.Protocol]()

        def made() -> asyncio.Protocol:
            taken.append(asyncio.Protocol())
            return taken[-1]

        with bound("127.0.0.1", 0) as listener, ExitStack() as stack:
            for one in taking_many(listener):
                stack.callback((await loop.create_server(made, sock=one, backlog=CLIENTS)).close)
            for _ in range(CLIENTS):
                stack.enter_context(socket.create_connection(listener.getsockname()))
            taken.clear()
            count = 0
            while len(taken) < CLIENTS:
                await asyncio.sleep(0)
                count += 1
            return count

    assert uvloop.run(turns()) <= 2 * CLIENTS / TAKEN_AT_ONCE


def test_what_a_start_has_loaded_is_never_looked_through_for_garbage(tmp_path: Path) -> None:
    settings = {
        "DATABASE_URL": f"sqlite:///{tmp_path / 'a.db'}",
        "PORT": "0",
        "DEVICE": "cpu",
        "TORCH_COMPILE": "false",
    }
    environment = clean_environment() | {f"OFFPOLICY_{name}": value for name, value in settings.items()}
    status, said = ended(["-c", SERVED], environment)
    assert status == 0, said
    [line] = [line for line in said.splitlines() if line.startswith("collected ")]
    _, enabled, apart, looked_through = line.split()
    assert enabled == "True"
    assert int(apart) > 200_000 > 20_000 > int(looked_through)
