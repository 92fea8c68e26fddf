"""Compilation: gets a compiled pass over the tokens, from disk where it is there, else from a process that compiles it.

Compiling takes a minute of a processor, and torch's kernels a C++ compiler, so it never happens in the process that
serves: another one does it at the lowest priority, one at a time for a user and machine. Whatever goes wrong, the eager
form serves.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

import torch

from offpolicy_monitor.core.gap import Derive
from offpolicy_monitor.measure import kernels, library

Form = TypeVar("Form")

COMPILER: Final = "offpolicy_monitor.measure.compiler"
#: Seconds after which a compiler has hung; it may have to wait long for an idle processor.
LONGEST: Final = 3600.0
#: Seconds between two looks at whether another process still compiles.
LOOK: Final = 0.5
LOWEST_NICE: Final = 19
#: The largest value of Linux's oom_score_adj.
FIRST_TO_END: Final = 1000
#: Seconds that the end waits for the thread, which has nothing left to wait for itself.
LAST_SECONDS: Final = 5.0


class Stopped(Exception):
    """Nobody waits for the outcome any more."""


@dataclass(frozen=True)
class Product(Generic[Form]):
    """What can be compiled: its name for the compiler; `load` reads it from the folder, None if it is not there."""

    name: str
    load: Callable[[Path], Form | None]


def kernels_for(device: torch.device) -> Product[Derive]:
    """core's pass over the columns of a device, by torch's compiler."""

    def load(cache: Path) -> Derive | None:
        path = library.find(cache, device)
        return None if path is None else kernels.load(path, device)

    return Product(str(device), load)


class Compilation(Generic[Form]):
    """A daemon thread that gets the compiled form; it calls `ready` with it, or with the reason why there is none.

    `ready` is called once, or not at all after `stop`; `begun` before a compiler is started.
    """

    def __init__(
        self,
        product: Product[Form],
        ready: Callable[[Form | Exception], None],
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        self._product, self._ready, self._begun = product, ready, begun
        self._stopped, self._lock = threading.Event(), threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._work, name="kernels", daemon=True)
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
            outcome: Form | Exception = self._got()
        except Stopped:
            return
        except Exception as error:  # whatever it is, the eager form goes on
            outcome = error
        if not self._stopped.is_set():
            self._ready(outcome)

    def _got(self) -> Form:
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

    def _loaded(self, cache: Path) -> Form | None:
        """The compiled form on disk; None where there is none, or what is there is no such thing."""
        with suppress(RuntimeError, ValueError):
            return self._product.load(cache)
        return None

    @contextmanager
    def _alone(self, cache: Path) -> Iterator[int]:
        """With the lock of the folder, a file descriptor."""
        lock = os.open(cache / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if self._stopped.wait(LOOK):
                    raise Stopped
            yield lock
        finally:
            os.close(lock)

    def _compile(self, cache: Path, lock: int) -> None:
        """Have it compiled; RuntimeError with the compiler's last line where that fails."""
        build = cache / "build"
        shutil.rmtree(build, ignore_errors=True)  # of one that was killed
        build.mkdir(mode=0o700)
        self._begun()
        try:
            child = self._started(cache, build, lock)
            status = child.wait(LONGEST)
            if self._stopped.is_set():
                raise Stopped
            if status:
                said = (build / "log").read_text(errors="replace").strip().splitlines()
                raise RuntimeError(said[-1] if said else f"the compiler ended with status {status}")
        finally:
            with self._lock:
                self._kill()
            shutil.rmtree(build, ignore_errors=True)

    def _started(self, cache: Path, build: Path, lock: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-P", "-m", COMPILER, self._product.name, str(cache), str(build)]
        folders = {name: str(build) for name in ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR")}
        threads = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        with self._lock, (build / "log").open("wb") as log:
            if self._stopped.is_set():
                raise Stopped
            self._child = subprocess.Popen(
                command, env=os.environ | folders | threads, stdin=subprocess.PIPE, stdout=log, stderr=log,
                process_group=0, pass_fds=[lock],
            )  # fmt: skip
            _to_lowest_priority(self._child.pid)
        return self._child

    def _kill(self) -> None:
        """End the child, where it runs, with its compilers, which are of its process group."""
        child, self._child = self._child, None
        if child is not None and child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if child is not None and child.stdin is not None:
            child.stdin.close()


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
