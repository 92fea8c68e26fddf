"""The process that helpers are forks of: `python -m offpolicy_monitor.pipeline.helpers.nursery HANDLE`.

It loads the pass, once for all of them, and then has no thread and nothing to do but to fork: what it holds is in
memory once. HANDLE is a line to the service, which sends the limits of a body, then for each helper the end of a line.
It ends, and its helpers do, when the service has closed its ends, however that comes about.
"""

import gc
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from offpolicy_monitor.measure import library
from offpolicy_monitor.measure.compilation import FIRST_TO_END
from offpolicy_monitor.measure.fused import Fused, fused_pass
from offpolicy_monitor.pipeline.helpers.helper import Helper
from offpolicy_monitor.pipeline.helpers.line import Line


def main(handle: str) -> int:
    """The exit status."""
    service = Line.inherited(int(handle))
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
            service.close()
            own.send(os.getpid())
            helper.serve(own)
            os._exit(0)
        own.close()


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
