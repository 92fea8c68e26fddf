"""The server process of one worker: as one that serves alone, but for where connections and signals come from."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from offpolicy_monitor.server.http.handshakes import Handshakes, Queued
from offpolicy_monitor.server.http.tls import Certificate
from offpolicy_monitor.server.process import Listening, Server
from offpolicy_monitor.server.readiness import WARMING
from offpolicy_monitor.server.workers import channel as said
from offpolicy_monitor.server.workers.board import Board
from offpolicy_monitor.server.workers.channel import Channel
from offpolicy_monitor.server.workers.handed import Handed, InTheClear
from offpolicy_monitor.server.workers.siblings import Workers

#: Tenths of a second between two looks at who leads.
LED_EVERY: Final = 10


def _nothing(listening: Listening) -> None:
    """The supervisor says where the service listens."""


class Worker(Server):
    """`shed` is given a number of connections that are to end with their next answer."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: FastAPI,
        shown: Certificate | None,
        channel: Channel,
        siblings: Workers,
        board: Board,
        shed: Callable[[int], None],
    ) -> None:
        super().__init__(config, app, _nothing, shown)
        self._channel, self._siblings, self._board, self._shed = channel, siblings, board, shed

    async def listen(self, sockets: object) -> None:
        """Take connections from the supervisor."""
        shown = self._certificate
        takes = InTheClear(self.protocol) if shown is None else Queued(Handshakes(shown.context, self.protocol))
        self._handed = Handed(
            self._channel,
            takes,
            self.server_state.connections,
            lambda number: self.handle_exit(number, None),
            self._shed,
            self._siblings.received,
            self._siblings.missed,
        )
        self.servers, self.started = [self._handed], True  # pyrefly: ignore[bad-assignment]

    def say_where(self, device: str) -> None:
        """The supervisor is told when the device is warm: what is loaded for that holds connections up."""
        self._device: str | None = device

    async def on_tick(self, counter: int) -> bool:
        """Ten times per second."""
        if self._device is not None and self._app.state.services.readiness.device != WARMING:
            self._channel.send(said.SERVES + self._device.encode())
            self._device = None
        self._handed.report()
        self._siblings.tick()
        if counter % LED_EVERY == 0 and self._app.state.services.leader.leads():
            self._board.leads()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal is told to the supervisor, which ends all workers or replaces this one."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        yield

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._channel.send(said.LEAVES)
