"""Conditions a service may be in, as addresses to post to, and a training loop that is timed under them.

The loop waits for a while, then logs, as a trainer on an accelerator does. What a copy of the same arrays costs is
measured in the same loop, into memory that stays taken for as long, since memory just freed is faster to write to.
"""

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from offpolicy_monitor import Monitor

from tests.client.batches import nbytes
from tests.client.fakes import Fake, serving
from tests.fixtures.forks import Fork, started
from tests.fixtures.http_stub import Said, unused_url

PROGRAM: Final = "from tests.client.conditions import serve; serve()"


@contextmanager
def process(mode: str, stopped: bool = False) -> Iterator[str]:
    """A fake service in a process of its own, so that it shares no lock with the loop; `stopped`: by SIGSTOP."""
    with _served(mode) as (child, url):
        if stopped:
            child.send_signal(signal.SIGSTOP)
        yield url


@contextmanager
def _served(mode: str) -> Iterator[tuple[Fork, str]]:
    with started(["-c", PROGRAM, mode], os.environ) as (child, lines):
        yield child, lines.readline().strip()


@contextmanager
def standing_still() -> Iterator[tuple[str, Callable[[], None]]]:
    """A healthy fake service in a process that is stopped, and what lets it go on."""
    with _served("healthy") as (child, url):
        child.send_signal(signal.SIGSTOP)
        yield url, lambda: child.send_signal(signal.SIGCONT)


@contextmanager
def absent() -> Iterator[str]:
    yield unused_url()


ANSWERS = {
    "healthy": Said(),
    "slow": Said(delay=2.0),
    "refusing": Said(422, {"detail": "no"}),
    "defective": Said(500),
    "breaking": Said(cut=True),
}
CONDITIONS: Mapping[str, Callable[[], AbstractContextManager[str]]] = {
    **{mode: partial(process, mode) for mode in ANSWERS},
    "stopped": partial(process, "healthy", stopped=True),
    "absent": absent,
}


@dataclass
class Times:
    """Seconds of each step of a loop: all of it, its wait, and its logging, or the plain copy in place of it."""

    step: list[float] = field(default_factory=list)
    log: list[float] = field(default_factory=list)
    copy: list[float] = field(default_factory=list)
    wait: list[float] = field(default_factory=list)


def train(monitor: Monitor | None, arrays: Mapping[str, Any], steps: int, compute: float, kept_bytes: int) -> Times:
    """A loop of `steps` that waits `compute` seconds per step, as for its device; with no monitor it copies."""
    times, kept = Times(), deque[list[Any]](maxlen=max(kept_bytes // nbytes(dict(arrays)), 1))
    for step in range(steps):
        began = time.perf_counter()
        time.sleep(compute)
        computed = time.perf_counter()
        if monitor is None:
            kept.append([np.array(array) for array in arrays.values()])
        else:
            monitor.log(step=step, **arrays)
        ended = time.perf_counter()
        times.step.append(ended - began)
        times.wait.append(computed - began)
        (times.copy if monitor is None else times.log).append(ended - computed)
    return times


def serve() -> None:
    """A fake service of the mode that this process is asked for; it says where it is."""
    with serving(Fake(rest=ANSWERS[sys.argv[1]], keep=False)) as served:
        print(served.url, flush=True)
        signal.pause()
