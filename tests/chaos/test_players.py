"""Players: what becomes of a scenario whose player ends, and of all that runs where the runner is killed."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos.play import workplace
from tests.chaos.players import Player
from tests.chaos.scenarios import scenarios

WITHIN = 60.0


@pytest.fixture
def runner() -> Iterator["subprocess.Popen[bytes]"]:
    """A scenario whose service is a program of its own, no fork."""
    command = [sys.executable, "-m", "tests.chaos", "--quick", "-k", "service that leaks", "--database", "sqlite"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        with workplace():
            pass  # whoever comes next removes what it has left in memory


def descendants(pid: int) -> dict[int, str]:
    """The processes below one, with their commands."""
    found = dict[int, str]()
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            for child in map(int, (thread / "children").read_text().split()):
                command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                found |= {child: command} | descendants(child)
    return found


def test_a_runner_that_is_killed_leaves_no_service_behind(runner: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + WITHIN
    below = dict[int, str]()
    while not any("chaos.leak serve" in command for command in below.values()):
        below = descendants(runner.pid)
        assert runner.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    runner.send_signal(signal.SIGKILL)
    while any(Path(f"/proc/{pid}").exists() for pid in below):
        assert time.monotonic() < deadline, {pid: below[pid] for pid in below if Path(f"/proc/{pid}").exists()}
        time.sleep(0.05)


def test_a_scenario_whose_player_has_ended_has_failed() -> None:
    row = scenarios()[0], "sqlite"
    player = Player([row], quick=True)
    player.close()
    outcome = player.play(row)
    assert outcome.failed
    assert outcome.broken
