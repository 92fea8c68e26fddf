"""Players: processes that play scenarios side by side, since most of a scenario is waiting.

Each has a folder and a PostgreSQL server of its own. A scenario that measures how quickly the service answers is played
alone, when all others are done.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from queue import Empty, SimpleQueue
from typing import Final

from tests.chaos.play import Clusters, play, workplace
from tests.chaos.scenario import Outcome, Scenario
from tests.fixtures.service import killed_with_parent

Row = tuple[Scenario, str]
#: How a player is asked to be one: the first argument of `python -m tests.chaos`.
PLAYER: Final = "player"
#: Seconds that a player has to end what it has started.
END_WITHIN: Final = 60.0


class Player:
    """A process that plays one row after the other."""

    def __init__(self, quick: bool) -> None:
        command = [sys.executable, "-m", "tests.chaos", PLAYER, *(["--quick"] if quick else [])]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=killed_with_parent
        )

    def play(self, row: Row) -> Outcome:
        """What became of it."""
        scenario, database = row
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(f"{json.dumps([scenario.control, scenario.name, database])}\n")
            self._process.stdin.flush()
            return Outcome(**json.loads(self._process.stdout.readline()))
        except (OSError, ValueError) as error:
            broken = [f"its player has ended: {error}"]
            return Outcome(scenario.name, database, scenario.control, broken=broken)

    def close(self) -> None:
        """End it, and what it has started."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=END_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def be_player(rows: Sequence[Row], quick: bool) -> None:
    """Play what is asked for, until nothing is any more."""
    known = {(scenario.control, scenario.name, database): scenario for scenario, database in rows}
    # Nothing but outcomes may come where they are read.
    with os.fdopen(os.dup(1), "w") as outcomes, workplace() as root:
        os.dup2(2, 1)
        clusters = Clusters(root / "postgres")
        try:
            for line in sys.stdin:
                control, name, database = json.loads(line)
                outcome = play(known[control, name, database], database, quick, root, clusters)
                print(json.dumps(asdict(outcome)), file=outcomes, flush=True)
        finally:
            clusters.close()


def played(rows: Sequence[Row], quick: bool, beside: int, told: Callable[[Outcome], None]) -> list[Outcome]:
    """The outcomes of rows in their order: so many are played beside each other, then one after the other the rest.

    `told` is given each when it is there.
    """
    outcomes = dict[Row, Outcome]()

    def take_from(waiting: "SimpleQueue[Row]", player: Player) -> None:
        try:
            while True:
                row = waiting.get_nowait()
                outcomes[row] = player.play(row)
                told(outcomes[row])
        except Empty:
            return

    # What may take longest goes first, so that nobody waits for it at the end.
    together = sorted((row for row in rows if not row[0].alone), key=lambda row: -row[0].limit)
    with ExitStack() as stack:
        players = [Player(quick) for _ in range(max(1, min(beside, len(together))))]
        for player in players:
            stack.callback(player.close)
        for part, by in ((together, players), ([row for row in rows if row[0].alone], players[:1])):
            waiting = SimpleQueue[Row]()
            for row in part:
                waiting.put(row)
            threads = [threading.Thread(target=take_from, args=(waiting, player), daemon=True) for player in by]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    return [outcomes[row] for row in rows]
