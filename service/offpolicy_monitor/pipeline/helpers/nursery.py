"""The process that helpers are forks of: `python -m offpolicy_monitor.pipeline.helpers.nursery HANDLE`.

It loads the pass, once for all of them, and then has no thread and nothing to do but to fork: what it holds is in
memory once. HANDLE is a line to the service, which sends the limits of a body, then for each helper the end of a line.
It ends when the service has closed its end, or has ended, and its helpers with it, also while they stand still.
"""

import ctypes
import gc
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from offpolicy_monitor.measure import library
from offpolicy_monitor.measure.compilation import FIRST_TO_END
from offpolicy_monitor.measure.fused import Fused, fused_pass
from offpolicy_monitor.pipeline.helpers.helper import Helper
from offpolicy_monitor.pipeline.helpers.line import Line

#: Of Linux's prctl.h.
PR_SET_PDEATHSIG: Final = 1


def main(handle: str) -> int:
    """The exit status."""
    service = Line.inherited(int(handle))
    end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # sent to all processes of a service, which ends in its own time
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a helper
    _let_it_end_first()
    try:
        fused = _loaded()
    except Exception as error:  # whatever it is, the service measures by itself
        service.send(f"{type(error).__name__}: {error}")
        return 1
    service.send(None)
    gc.freeze()  # what is never looked through is never copied either
    with suppress(EOFError, OSError):
        fork_for(service, Helper(fused, service.receive()))
    return 0


def fork_for(service: Line, helper: Helper) -> None:
    """A process for each line that the service sends the end of, until it is gone."""
    while True:
        own = service.receive_line()
        if os.fork() == 0:
            end_with_parent()
            service.close()
            own.send(os.getpid())
            helper.serve(own)
            os._exit(0)
        own.close()


def end_with_parent() -> None:
    """Have the system end this process when the one that started it has ended, or the thread of it that did."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _loaded() -> Fused:
    found = fused_pass(1)(library.folder())
    if found is None:
        raise FileNotFoundError("the compiled pass is no longer there")
    return found


def _let_it_end_first() -> None:
    """Where memory runs out it is to be ended, and not the service, which goes on without it."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(FIRST_TO_END))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
