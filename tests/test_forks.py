"""A fork of the tests' own is the program: it says the same, and ends with the same status."""

import os
import signal
import subprocess
import warnings
from pathlib import Path

import pytest

from tests.fixtures.forks import ended, forks
from tests.fixtures.service import COMMAND, clean_environment, served, service


@pytest.mark.parametrize("arguments", [["settings"], ["serve", "--port", "no number"], ["serve"]])
def test_a_fork_says_what_the_program_says_and_ends_as_it_does(arguments: list[str], tmp_path: Path) -> None:
    environment = clean_environment() | {"OFFPOLICY_STEP_TIMEOUT": "7", "OFFPOLICY_HOST": "0.0.0.0"}
    ran = subprocess.run(
        [*COMMAND, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    with (tmp_path / "log").open("wb") as log:
        fork = forks().start(arguments, environment, log)
    assert (fork.wait(60), (tmp_path / "log").read_bytes()) == (ran.returncode, ran.stdout)


def test_a_fork_runs_a_program_as_python_does() -> None:
    program = "import sys; print(__name__, sys.argv); sys.exit(7)"
    assert ended(["-c", program, "a"], clean_environment()) == (7, "__main__ ['-c', 'a']\n")


def test_a_fork_runs_until_it_is_told_to_end(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        assert running.process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(0.01)
        running.process.terminate()
        assert running.process.wait(60) == running.process.poll() == 0
        running.process.kill()


def test_a_fork_that_is_killed_says_by_what(tmp_path: Path) -> None:
    settings = {"OFFPOLICY_DATABASE_URL": f"sqlite:///{tmp_path / 'service.db'}"}
    with served([*COMMAND, "serve", "--port"], tmp_path / "log", settings) as running:
        running.process.kill()
        assert running.process.wait(60) == -signal.SIGKILL


def test_a_process_of_tests_that_ends_leaves_the_forks_of_the_others_alone(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the fork does not need
            pid = os.fork()
        if pid == 0:
            forks().close()
            os._exit(0)
        os.waitpid(pid, 0)
        with pytest.raises(subprocess.TimeoutExpired):
            running.process.wait(0.5)
        assert ended(["-c", "print(1)"], clean_environment()) == (0, "1\n")
