"""The system's clock jumps, forward and back, under load: nothing is lost, and nothing waits for the clock."""

import time
from pathlib import Path

from tests.chaos.scenario import SQLITE, Scenario
from tests.chaos.stage import Stage
from tests.fixtures.faults import SHIFTED_CLOCK

#: Seconds by which it is ahead, one after the other.
JUMPS = (3600, -3600, 2 * 86_400, 0)


def jumps(stage: Stage) -> None:
    """The clock is set an hour ahead, an hour back, two days ahead and right again."""
    setting = stage.folder / "clock"
    set_to(setting, 0)
    environment = {"LD_PRELOAD": str(stage.preloaded(SHIFTED_CLOCK)), "CLOCK_AHEAD": str(setting)}
    stage.start(environment=environment)
    with stage.load():
        for _ in stage.trials():
            for jump in JUMPS:
                time.sleep(1.0)
                with stage.recovering():
                    set_to(setting, jump)
                status, ready = stage.got("/readyz")
                stage.promise(status == 200, f"with the clock {jump:+d} s ahead /readyz said {ready}")
    stage.answered({200})


def set_to(setting: Path, seconds: int) -> None:
    """The clock is this far ahead from now on."""
    other = setting.with_suffix(".new")
    other.write_text(f"{seconds}\n")
    other.rename(setting)


SCENARIOS = (Scenario("clock jumps", jumps, full=3, quick_databases=(SQLITE,)),)
