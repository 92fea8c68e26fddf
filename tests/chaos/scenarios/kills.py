"""SIGKILL at any moment under load; and, as a control, a service that acknowledges before it has stored."""

import http.client
import json
import threading
import time
from contextlib import suppress
from random import Random

from tests.chaos.scenario import Scenario
from tests.chaos.stage import PROGRAM, Stage
from tests.fixtures.http_stub import Asked, Said, answering
from tests.fixtures.service import free_port

#: Seconds from a start to acknowledgements.
RESTART_WITHIN = 5.0
#: Seconds after which it is killed anyway.
UP = 8.0
#: One start in so many is timed.
TIMED = 5
#: Seconds by which the hasty one stores later than it acknowledges.
HASTE = 0.3


def kills(stage: Stage) -> None:
    """Kill the service after 1 to 25 acknowledgements, and start it again.

    One start in five is of the installed program, and is timed; the others are forks of one that has imported all.
    """
    random = Random(15)
    stage.start()
    with stage.load():
        for number in stage.trials():
            stage.acknowledged_meanwhile(random.randint(1, 25), UP)
            stage.kill()
            if number % TIMED:
                stage.start()
                continue
            with stage.recovering(RESTART_WITHIN):
                stage.start(PROGRAM)


def hasty(stage: Stage) -> None:
    """Clients talk to a front that answers 200 at once and hands on what it got a little later."""
    port = free_port()
    stage.start(port=port)

    def hand_on(asked: Asked) -> None:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("POST", asked.path, asked.body, {"Content-Type": asked.headers["Content-Type"]})
            connection.getresponse().read()
            connection.close()

    seen = set[bytes]()

    def answer(asked: Asked) -> Said:
        known = asked.body in seen
        seen.add(asked.body)
        threading.Timer(HASTE, hand_on, [asked]).start()
        return Said(200, text=json.dumps({"duplicate": known}))

    with answering(answer, stage.port), stage.load(finish=False):
        for _ in stage.trials():
            time.sleep(2.0)
        stage.kill()
    time.sleep(2 * HASTE)


SCENARIOS = (
    Scenario("SIGKILL under load", kills, full=25, quick=3, limit=1200, alone=True),
    Scenario("acknowledged before the commit", hasty, control=True),
)
