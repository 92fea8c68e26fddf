"""Players: processes that play scenarios side by side, since most of a scenario is waiting.

Each is a fork of this process, which has imported everything, with a folder and a PostgreSQL server of its own. A
scenario that measures how quickly the service answers is played alone, when all others are done.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from queue import Empty, SimpleQueue
from typing import Final

from tests.chaos.play import Clusters, play, workplace
from tests.chaos.scenario import Outcome, Scenario
from tests.fixtures.forks import forks
from tests.fixtures.service import killed_with_parent

Row = tuple[Scenario, str]
#: Seconds that a player has to end what it has started.
END_WITHIN: Final = 60.0


class Player:
    """A process that plays one of these rows after the other; made before this one has threads."""

    def __init__(self, rows: Sequence[Row], quick: bool) -> None:
        forks()  # before the players are there, so that they have it together
        self._rows, (ours, theirs) = rows, socket.socketpair()
        self._process = os.fork()
        if self._process == 0:
            ours.close()
            _be_player(rows, quick, theirs)
        theirs.close()
        self._asked, self._ended = ours.makefile("rw"), False
        ours.close()  # until that file is

    def play(self, row: Row) -> Outcome:
        """What became of it."""
        scenario, database = row
        try:
            self._asked.write(f"{self._rows.index(row)}\n")
            self._asked.flush()
            return Outcome(**json.loads(self._asked.readline()))
        except (OSError, ValueError) as error:
            broken = [f"its player has ended: {error}"]
            return Outcome(scenario.name, database, scenario.control, broken=broken)

    def close(self) -> None:
        """End it, and what it has started."""
        if self._ended:
            return
        os.kill(self._process, signal.SIGTERM)
        deadline = time.monotonic() + END_WITHIN
        while os.waitpid(self._process, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(self._process, signal.SIGKILL)
            time.sleep(0.02)
        self._ended = True


def _be_player(rows: Sequence[Row], quick: bool, asked: socket.socket) -> None:
    """Play what is asked for until told to end; does not return."""
    status = 1
    try:
        killed_with_parent()
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # and end what was started
        with asked.makefile("rw") as lines, workplace() as root:
            clusters = Clusters(root / "postgres")
            try:
                for line in lines:
                    outcome = play(*rows[int(line)], quick, root, clusters)
                    lines.write(f"{json.dumps(asdict(outcome))}\n")
                    lines.flush()
            finally:
                clusters.close()
        status = 0
    finally:
        os._exit(status)  # what the process that was forked does at its end is its own


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
        players = [Player(rows, quick) for _ in range(max(1, min(beside, len(together))))]
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
