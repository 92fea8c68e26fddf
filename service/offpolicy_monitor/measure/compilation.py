"""Compilation: gets the fused pass, from disk where it is there, else from a process that compiles it.

Compiling takes a minute of a processor, so it never happens in the process that serves: another one does it at the
lowest priority, one at a time for a user and machine. Whatever goes wrong, torch serves.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

from offpolicy_monitor.measure import library
from offpolicy_monitor.measure.fused import Fused

COMPILER: Final = "offpolicy_monitor.measure.compiler"
#: Seconds after which a compiler has hung; it may have to wait long for an idle processor.
LONGEST: Final = 3600.0
#: Seconds between two looks at whether another process still compiles.
LOOK: Final = 0.5
#: Seconds after which it is told how far the compiler is.
TELL = 30.0
LOWEST_NICE: Final = 19
#: The largest value of Linux's oom_score_adj.
FIRST_TO_END: Final = 1000
#: Seconds that the end waits for the thread, which has nothing left to wait for itself.
LAST_SECONDS: Final = 5.0


class Stopped(Exception):
    """Nobody waits for the outcome any more."""


class Compilation:
    """A daemon thread that gets the compiled pass; it calls `ready` with it, or with the reason why there is none.

    `load` reads it from the folder, None if it is not there. `ready` is called once, or not at all after `stop`;
    `progress` with the number of functions that are compiled: 0 before a compiler is started, then every TELL seconds,
    by whichever process that is.
    """

    def __init__(
        self,
        load: Callable[[Path], Fused | None],
        ready: Callable[[Fused | Exception], None],
        progress: Callable[[int], None] = lambda functions: None,
    ) -> None:
        self._load, self._ready, self._progress = load, ready, progress
        self._stopped, self._lock = threading.Event(), threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work, name="compilation", daemon=True)
        self._thread.start()

    def join(self, deadline: float | None = None) -> None:
        """Wait until `ready` has returned."""
        self._thread.join(deadline)

    def stop(self) -> None:
        """End it, and the process that compiles with all of its own."""
        with self._lock:
            self._stopped.set()
            self._kill()
        self._thread.join(LAST_SECONDS)

    def _work(self) -> None:
        try:
            outcome: Fused | Exception = self._got()
        except Stopped:
            return
        except Exception as error:  # whatever it is, torch goes on
            outcome = error
        if not self._stopped.is_set():
            self._ready(outcome)

    def _got(self) -> Fused:
        cache = library.folder()
        found = self._loaded(cache)
        if found is None:
            with self._alone(cache) as lock:
                found = self._loaded(cache)  # another process may have compiled it meanwhile
                if found is None:
                    self._compile(cache, lock)
                    found = self._loaded(cache)
        if found is None:
            raise RuntimeError(f"what was compiled in {cache} cannot be loaded")
        return found

    def _loaded(self, cache: Path) -> Fused | None:
        """The compiled pass on disk; None where there is none, what is there is no such thing, or goes just now."""
        with suppress(RuntimeError, ValueError, FileNotFoundError):
            return self._load(cache)
        return None

    @contextmanager
    def _alone(self, cache: Path) -> Iterator[int]:
        """With the lock of the folder, a file descriptor."""
        lock = os.open(cache / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            for look in count():
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if look % max(1, round(TELL / LOOK)) == 0:
                    self._progress(_compiled(cache / "build"))
                if self._stopped.wait(LOOK):
                    raise Stopped
            yield lock
        finally:
            os.close(lock)

    def _compile(self, cache: Path, lock: int) -> None:
        """Have it compiled; RuntimeError with what the compiler says last where that fails."""
        build = cache / "build"
        shutil.rmtree(build, ignore_errors=True)  # of one that was killed
        build.mkdir(mode=0o700)
        self._progress(0)
        try:
            status = self._status(self._started(cache, build, lock), build)
            if self._stopped.is_set():
                raise Stopped
            if status:
                reason, log = ((build / name).read_text(errors="replace").strip() for name in ("reason", "log"))
                raise RuntimeError((reason or log or f"the compiler ended with status {status}").splitlines()[-1])
        finally:
            with self._lock:
                self._kill()
            shutil.rmtree(build, ignore_errors=True)

    def _status(self, child: "subprocess.Popen[bytes]", build: Path) -> int:
        """The exit status of the compiler; TimeoutExpired after LONGEST."""
        for _ in range(int(LONGEST / TELL)):
            with suppress(subprocess.TimeoutExpired):
                return child.wait(TELL)
            self._progress(_compiled(build))
        raise subprocess.TimeoutExpired(COMPILER, LONGEST)

    def _started(self, cache: Path, build: Path, lock: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-P", "-m", COMPILER, str(cache), str(build)]
        own = {"TMPDIR": str(build), "OMP_NUM_THREADS": "1"}
        with self._lock, (build / "reason").open("wb") as reason, (build / "log").open("wb") as log:
            if self._stopped.is_set():
                raise Stopped
            self._child = subprocess.Popen(
                command, env=os.environ | own, stdin=subprocess.PIPE, stdout=reason, stderr=log,
                process_group=0, pass_fds=[lock],
            )  # fmt: skip
            _to_lowest_priority(self._child.pid)
        return self._child

    def _kill(self) -> None:
        """End the child, where it runs, and what it has started, which is of its process group."""
        child, self._child = self._child, None
        if child is not None and child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if child is not None and child.stdin is not None:
            child.stdin.close()


def _compiled(build: Path) -> int:
    """How many functions have been compiled there."""
    return len([*build.rglob("*.nbi")])


def _to_lowest_priority(process: int) -> None:
    """Let it have what nobody else wants, where the system knows such a thing, else as little as it can.

    Where memory runs out it is to be ended, not the service, which is larger.
    """
    with suppress(OSError):
        Path(f"/proc/{process}/oom_score_adj").write_text(str(FIRST_TO_END))
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process, LOWEST_NICE)
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))
