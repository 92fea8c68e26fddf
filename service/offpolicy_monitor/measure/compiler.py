"""The process that compiles the fused pass: `python -m offpolicy_monitor.measure.compiler`.

It is started by measure.compilation, at the lowest priority, with the folder of what is compiled and a folder to build
in; it tries what it built before it publishes it. It ends with whoever started it.
"""

import gc
import os
import signal
import sys
import threading
from pathlib import Path

from offpolicy_monitor.measure import library


def main(cache: str, build: str) -> int:
    """The exit status; where it is not 0, what was printed says why."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        make(Path(cache), Path(build))
    except Exception as error:  # a compiler that is missing or fails shows as any of a dozen types
        print(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}", flush=True)
        return 1
    return 0


def make(cache: Path, build: Path) -> None:
    """The fused pass, as numba keeps it."""
    from offpolicy_monitor.fused import compiled

    made = build / "pass"
    made.mkdir(mode=0o700)
    compiled.allow_many_columns()
    compiled.keep_in(made)
    _collect_seldom()
    compiled.try_all()
    library.publish_pass(made, cache)


def _collect_seldom() -> None:
    """What is made of a function lives as long as that is compiled: to look for garbage took an eighth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _end_with_parent() -> None:
    """Standard input ends when the process that started this one does, however it does."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
