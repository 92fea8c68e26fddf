"""Siblings: the other workers of this service, as one of them reaches them: it tells all, and asks all.

What is told may be lost where somebody is far behind, who is then told that he missed something. Knows channels, and
nothing of what is said.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import orjson
import structlog

from offpolicy_monitor.server.workers import channel as said
from offpolicy_monitor.server.workers.board import Board
from offpolicy_monitor.server.workers.channel import Channel

log = structlog.get_logger("offpolicy_monitor.server")
Heard = Callable[[Any], None]
Answer = Callable[[Any], Awaitable[Any]]
#: What is heard where something was told and lost.
LOST: Final = "lost"


class Siblings(Protocol):
    """What a service needs of its siblings. `tell` may be called by any thread, all else on the event loop.

    `workers`: how many there are, this one among them.
    """

    @property
    def workers(self) -> int: ...
    def tell(self, kind: str, data: Any) -> None: ...
    def hear(self, kind: str, heard: Heard) -> None: ...
    def answer(self, kind: str, answer: Answer) -> None: ...
    async def ask(self, kind: str, within: float, data: Any = None) -> dict[int, Any]: ...
    def listens(self, listens: bool) -> None: ...
    def others_listen(self) -> bool: ...


class NoSiblings:
    """Those of a service of one process."""

    workers: Final = 1

    def tell(self, kind: str, data: Any) -> None:
        """Nobody is there."""

    def hear(self, kind: str, heard: Heard) -> None:
        """Nobody says anything."""

    def answer(self, kind: str, answer: Answer) -> None:
        """Nobody asks."""

    async def ask(self, kind: str, within: float, data: Any = None) -> dict[int, Any]:
        """Nobody answers."""
        return {}

    def listens(self, listens: bool) -> None:
        """Nobody wants to know."""

    def others_listen(self) -> bool:
        """Never."""
        return False


class Workers:
    """Those of one worker."""

    def __init__(self, channel: Channel, board: Board, number: int) -> None:
        self._channel, self._board, self._number = channel, board, number
        self.workers: Final = board.workers
        self._heard: dict[str, Heard] = {}
        self._answers: dict[str, Answer] = {}
        self._asked: dict[int, tuple[set[int], dict[int, Any], asyncio.Future[None]]] = {}
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost = False

    def tell(self, kind: str, data: Any) -> None:
        """Tell all of them, whoever is there."""
        self._send(said.ALL, {"told": kind, "data": data})

    def hear(self, kind: str, heard: Heard) -> None:
        """What is done when one of them tells this kind."""
        self._heard[kind] = heard

    def answer(self, kind: str, answer: Answer) -> None:
        """What one of them is answered that asks this."""
        self._answers[kind] = answer

    async def ask(self, kind: str, within: float, data: Any = None) -> dict[int, Any]:
        """What each of them answers within so many seconds, by its number; who does not is left out."""
        waited_for = set(self._board.others(self._number))
        if not waited_for:
            return {}
        number, found, all_there = next(self._numbers), dict[int, Any](), asyncio.get_running_loop().create_future()
        self._asked[number] = waited_for, found, all_there
        try:
            self._send(said.ALL, {"asked": kind, "number": number, "data": data})
            await asyncio.wait([all_there], timeout=within)
        finally:
            del self._asked[number]
        return found

    def listens(self, listens: bool) -> None:
        """Whether anybody listens here."""
        self._board.listens(self._number, listens)

    def others_listen(self) -> bool:
        """Whether anybody listens to one of them."""
        return self._board.others_listen(self._number)

    def received(self, source: int, content: bytes) -> None:
        """One of them has said this."""
        message = orjson.loads(content)
        if "told" in message:
            heard = self._heard.get(message["told"])
            if heard is not None:
                heard(message["data"])
        elif "asked" in message:
            task = asyncio.get_running_loop().create_task(self._answered(source, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif message["answered"] in self._asked:
            waited_for, found, all_there = self._asked[message["answered"]]
            found[source] = message["data"]
            if waited_for <= found.keys() and not all_there.done():
                all_there.set_result(None)

    def missed(self) -> None:
        """Something was told that did not arrive here."""
        if LOST in self._heard:
            self._heard[LOST](None)

    def tick(self) -> None:
        """Now and then: tell what could not be told, that it was lost."""
        if self._lost:
            self._lost = False
            self.tell(LOST, None)

    async def _answered(self, source: int, message: Any) -> None:
        answer = self._answers.get(message["asked"])
        if answer is None:
            return
        try:
            data = await answer(message["data"])
        except Exception as error:  # a boundary: who asks goes without this answer
            log.error("a sibling is not answered", asked=message["asked"], exc_info=error)
            return
        self._send(source, {"answered": message["number"], "data": data})

    def _send(self, to: int, message: Any) -> None:
        content = said.RELAY + bytes([to]) + orjson.dumps(message)
        if len(content) >= said.LONGEST or not self._channel.send(content):
            self._lost = True
