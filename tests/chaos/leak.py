"""A service that leaks, to prove that it is found: `python -m tests.chaos.leak serve --port PORT`.

Each shard that it measures leaves memory behind, every fifth a descriptor and a thread.
"""

import os
import sys
import threading
from typing import Any

import uvicorn
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import migrate
from offpolicy_monitor.summary.step import StepSummary


class Leaking(Measurer):
    """The measurer, which forgets nothing."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.device, settings.torch_threads, settings.keep_worst, settings.measure_threads)
        self._kept: list[bytearray] = []

    def measure(self, *args: Any, **options: Any) -> StepSummary:
        """Measure, and keep something."""
        self._kept.append(bytearray(b"x" * 262_144))
        if len(self._kept) % 5 == 0:
            os.dup(0)
        if len(self._kept) % 5 == 0:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        return super().measure(*args, **options)


if __name__ == "__main__":
    migrate.upgrade(Settings().database_url)
    uvicorn.run(create_app(Settings(), Leaking), port=int(sys.argv[-1]), log_config=None, access_log=False)
