"""A service whose device takes a known time for each shard: `python -c PROGRAM SECONDS FILE PORT`.

FILE gets one line for each shard that is measured: the value of its label `monitor`.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import uvicorn
from offpolicy_monitor.batch import UNKNOWN_ORIGIN, Origin, RaggedBatch
from offpolicy_monitor.methods import MethodRow
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.summary.step import StepSummary

from tests.fixtures.shards import make_summary

PROGRAM: Final = "from tests.e2e.slow_service import main; main()"


class Slow:
    """A device that sleeps, and answers the same figures for everything."""

    fallbacks = 0
    compilation_failed = False
    device_name = "slow"
    form = "slow"

    def __init__(self, seconds: float, file: Path, summary: StepSummary) -> None:
        self._seconds, self._file, self._summary = seconds, file, summary

    def warm_up(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to end."""

    def measure(self, batch: RaggedBatch, rows: Sequence[MethodRow], origin: Origin = UNKNOWN_ORIGIN) -> StepSummary:
        time.sleep(self._seconds)
        with self._file.open("a") as lines:
            lines.write(f"{origin.labels['monitor']}\n")
        return self._summary

    def evaluation(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def main() -> None:
    """Serve until it is told to end."""
    seconds, file, port = sys.argv[1:]
    app = create_app(Settings(), lambda _: Slow(float(seconds), Path(file), make_summary(1)))
    uvicorn.run(app, port=int(port), log_config=None, access_log=False)
