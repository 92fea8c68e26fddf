"""Programs that use the store, each run in a fork of a process that has imported it, for which it takes a second.

That process is started when the first program is, has no store of its own and knows nothing of those of the tests: its
forks are to these what any other process is. It runs one program after the other.
"""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Final, NoReturn

ROOT: Final = Path(__file__).resolve().parents[2]
#: Bytes of the longest program, and file descriptors that come with it: both of its streams.
LONGEST, FILES = 1 << 16, 2


@dataclass
class Program:
    """One that runs."""

    stdout: IO[str]
    stderr: IO[str]
    _requests: socket.socket
    _process: int
    returncode: int | None = None

    def kill(self) -> None:
        """End it by SIGKILL."""
        os.kill(self._process, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit status once it ends, -N where signal N has ended it."""
        if self.returncode is None:
            self.returncode = int(self._requests.recv(16))
        return self.returncode


@contextmanager
def running(program: str | Path, *arguments: str) -> Iterator[Program]:
    """Run Python's source text, or a file of it, with these arguments; it is killed where it has not ended."""
    source = program if isinstance(program, str) else program.read_text()
    request, requests = json.dumps([source, str(program), arguments]).encode(), _process()
    assert len(request) < LONGEST
    (stdout, out), (stderr, error) = os.pipe(), os.pipe()
    socket.send_fds(requests, [request], [out, error])
    os.close(out)
    os.close(error)
    with open(stdout) as out_, open(stderr) as error_:
        found = Program(out_, error_, requests, int(requests.recv(16)))
        try:
            yield found
        finally:
            if found.returncode is None:
                found.kill()
                found.wait()


def run(program: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one to its end."""
    with running(program, *arguments) as found:
        # Neither writes more than a pipe holds before it ends.
        said, reason = found.stdout.read(), found.stderr.read()
        return subprocess.CompletedProcess([str(program), *arguments], found.wait(), said, reason)


@cache
def _process() -> socket.socket:
    """The process that is forked, by what it is asked through; it ends with this one."""
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = os.pathsep.join([str(ROOT / "service"), str(ROOT)])
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": path},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )

    def end() -> None:
        requests.close()
        process.wait(20)

    atexit.register(end)
    return requests


def _import_all() -> None:
    """What programs import, the driver of either kind of database included."""
    from offpolicy_monitor.store import migrate
    from offpolicy_monitor.store.session import Database, parse_url

    migrate.head()
    with closing(Database(parse_url("postgresql:///none"))):
        gc.collect()
    gc.freeze()


def _serve(requests: socket.socket) -> None:
    """Fork for one request after the other until there are none to come."""
    while True:
        request, files, _, _ = socket.recv_fds(requests, LONGEST, FILES)
        if not request:
            return
        if (pid := os.fork()) == 0:
            requests.close()
            for stream, file in zip((sys.stdout, sys.stderr), files, strict=True):
                os.dup2(file, stream.fileno())
                os.close(file)
            _run(*json.loads(request))
        for file in files:
            os.close(file)
        requests.send(str(pid).encode())
        requests.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _run(source: str, name: str, arguments: list[str]) -> NoReturn:
    sys.argv, status = [name, *arguments], 0
    try:
        exec(compile(source, name, "exec"), {"__name__": "__main__", "__file__": name})
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _import_all()
    with socket.socket(fileno=int(sys.argv[1])) as requests_:
        _serve(requests_)
