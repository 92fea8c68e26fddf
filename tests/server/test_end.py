"""The end comes within its promise, whatever still waits."""

import time

from tests.fixtures.forks import ended
from tests.fixtures.service import clean_environment

HANGS_AT_ITS_END = """
import os, signal, time
from contextlib import asynccontextmanager
from types import SimpleNamespace
from fastapi import FastAPI
from offpolicy_monitor.server import process
from offpolicy_monitor.settings import Settings

process.END_WITHIN = 1.0

@asynccontextmanager
async def lifespan(app):
    pipeline = SimpleNamespace(measurer=SimpleNamespace(device_name="cpu"), stop=lambda: None)
    app.state.services = SimpleNamespace(pipeline=pipeline, events=SimpleNamespace(close=lambda: None))
    yield
    time.sleep(60)

app = FastAPI(lifespan=lifespan)
with process.bound("127.0.0.1", 0) as listener:
    server = process.Server(process.config_of(app, Settings()), app, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with server.stopping_in_time():
        server.run([listener])
print("ended in order")
"""

A_THREAD_HANGS = """
import sys, threading, time
from offpolicy_monitor.server.process import end
threading.Thread(target=time.sleep, args=(60,)).start()
print("closed")
sys.exit(end(0))
"""


def said_at_its_end(program: str) -> tuple[str, float]:
    """What a program that ends well says, and how many seconds it takes."""
    began = time.monotonic()
    status, said = ended(["-c", program], clean_environment(), timeout=55)
    assert status == 0, said
    return said, time.monotonic() - began


def test_parts_that_hang_at_the_end_are_left_behind_and_named() -> None:
    said, seconds = said_at_its_end(HANGS_AT_ITS_END)
    assert "ended without waiting any longer" in said
    assert "ended in order" not in said
    assert seconds < 50


def test_a_thread_that_hangs_is_not_waited_for() -> None:
    said, seconds = said_at_its_end(A_THREAD_HANGS)
    assert said == "closed\n"
    assert seconds < 50
