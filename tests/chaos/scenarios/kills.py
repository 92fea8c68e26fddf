"""SIGKILL at any moment under load, and services that acknowledge too early."""

import time
from random import Random

from tests.chaos.scenario import Scenario
from tests.chaos.stage import PROGRAM, Stage

#: Seconds from a start to acknowledgements.
RESTART_WITHIN = 5.0


def kills(stage: Stage) -> None:
    """Kill the service between 0.2 and 1.5 s after it was ready, and start it again."""
    random = Random(15)
    stage.start()
    with stage.load():
        for _ in stage.trials():
            time.sleep(random.uniform(0.2, 1.5))
            stage.kill()
            with stage.recovering(RESTART_WITHIN):
                stage.start(PROGRAM)


SCENARIOS = (Scenario("SIGKILL under load", kills, full=25, quick=3, limit=600),)
