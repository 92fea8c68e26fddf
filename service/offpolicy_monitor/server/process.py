"""The server process: uvicorn with bounded connections around the application, until it is told to stop.

On SIGTERM or SIGINT it stops accepting, answers what is in flight, closes the parts and returns which it was. What
keeps it from that for longer than promised (a database or a disk that hangs) is not waited for: nothing acknowledged
depends on it.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI

from offpolicy_monitor.addresses import is_loopback
from offpolicy_monitor.errors import ConfigurationError
from offpolicy_monitor.server.app import create_app
from offpolicy_monitor.server.http.connection import SHEDS_NONE, BoundedProtocol, Shedding
from offpolicy_monitor.server.http.handshakes import Accepting, Handshakes
from offpolicy_monitor.server.http.tls import LOOK_SECONDS, Certificate, certificate
from offpolicy_monitor.server.memory import set_apart, set_up_malloc, uncollected
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import access

log = structlog.get_logger("offpolicy_monitor.server")
DRAIN = 15
#: Seconds after which the process ends whatever it still waits for, counted from the signal.
END_WITHIN = DRAIN + 4
#: How long the end waits for threads that have been told to end.
LAST_THREADS_SECONDS = 0.5
BACKLOG = 2048
#: Connections taken in a turn of the event loop.
TAKEN_AT_ONCE = 16
#: How long a thread keeps the interpreter's lock while another wants it: the event loop and the writer want it often
#: and for little, and would wait for up to 5 ms each time.
SWITCH_SECONDS = 0.001


@dataclass(frozen=True)
class Listening:
    """Where the service listens, and what computes in it."""

    base_url: str
    device: str


class Server(uvicorn.Server):
    """Uvicorn that returns after a drain instead of killing itself with the signal that asked for it.

    It opens and closes the application's parts itself, so that what keeps them from opening is raised and not logged.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: FastAPI,
        started: Callable[[Listening], None],
        shown: Certificate | None = None,
    ) -> None:
        super().__init__(config)
        self._app, self._on_started, self._certificate = app, started, shown
        self._last_resort = threading.Timer(END_WITHIN, _end_at_once)
        self._last_resort.daemon = True
        self._loaded: object = None
        self.told: int | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve with the application's parts open."""
        async with self._app.router.lifespan_context(self._app):
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say where."""
        await self.listen(sockets or [])
        services, shown = self._app.state.services, self._certificate
        if shown is not None:
            services.metrics.watch_certificate(shown.name, lambda: shown.ends_at)
        device = services.pipeline.measurer.device_name
        set_apart()
        self.say_where(device)

    async def listen(self, sockets: list[socket.socket]) -> None:
        """Serve whoever connects from now on."""
        if self._certificate is None:
            await super().startup([same for one in sockets for same in taking_many(one)])
        else:
            handshakes = Handshakes(self._certificate.context, self.protocol)
            self.servers = [Accepting(sockets[0], self.config.backlog, handshakes)]  # pyrefly: ignore[bad-assignment]
            self.started = True

    def say_where(self, device: str) -> None:
        """Tell that it listens."""
        self._on_started(Listening(base_url(self.servers[0].sockets[0], self._certificate is not None), device))

    def protocol(self) -> asyncio.Protocol:
        """What uvicorn makes for a connection."""
        return self.config.http_protocol_class(config=self.config, server_state=self.server_state, app_state={})  # pyrefly: ignore[unexpected-keyword]

    async def on_tick(self, counter: int) -> bool:
        """Ten times per second."""
        if self._certificate is not None and counter % (10 * LOOK_SECONDS) == 0:
            self._certificate.renew()
        parts = self._app.state.services
        loaded = parts.readiness.device, parts.pipeline.measurer.form
        if loaded != self._loaded:  # the first measurement loads much, and so does what is compiled
            self._loaded = loaded
            set_apart()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Told to stop: from now on the end has a deadline."""
        if not self.should_exit:
            self.told = sig
            self._last_resort.start()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def stopping_in_time(self) -> Iterator[None]:
        """Whatever is inside ends within END_WITHIN seconds of the signal to stop, or the process does."""
        try:
            yield
        finally:
            self._last_resort.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop what nobody would wait for, then answer what is in flight."""
        self._app.state.services.events.close()
        self._app.state.services.pipeline.stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT, and restore what handled them before."""
        former = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)


def base_url(listener: Any, secure: bool) -> str:
    """The URL of a listening socket; with port 0, of the port that was free."""
    host, port = listener.getsockname()[:2]
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def serve(settings: Settings, insecure: bool, started: Callable[[Listening], None]) -> int | None:
    """Serve until told to stop, and answer the signal that told it. `started` is called once the service listens.

    Raises ConfigurationError for an address that others can reach where no token is asked for, unless `insecure`, for
    one that cannot be bound, and for a certificate, a database or a device that cannot be used.
    """
    if not insecure:
        refuse_open(settings)
    set_up_malloc()
    sys.setswitchinterval(SWITCH_SECONDS)
    with uncollected(), bound(settings.host, settings.port) as listener, contextlib.suppress(KeyboardInterrupt):
        shown, app = certificate(settings), create_app(settings)
        server = Server(config_of(app, settings), app, started, shown)
        with server.stopping_in_time():
            server.run([listener])
        return server.told
    return signal.SIGINT


def refuse_open(settings: Settings) -> None:
    """ConfigurationError where others can reach the service and no access token would be asked for."""
    if is_loopback(settings.host) or settings.auth == "required":
        return
    reached, auth = f"{settings.host} can be reached from other machines", settings.variable("auth")
    if settings.auth == "off":
        raise ConfigurationError(
            f"{reached}, and {auth}=off asks nobody for a token: set it to required, or pass --insecure"
        )
    if not access.read_all(settings.database_url):
        raise ConfigurationError(
            f"{reached}, and there is no access token yet: make one with 'offpolicy-monitor token create', set "
            f"{auth}=required, bind 127.0.0.1, or pass --insecure"
        )


def end(status: int) -> int:
    """The exit status, to return; where threads still work, the process ends here with it.

    A thread that waits for a database that hangs would be waited for. Everything is closed by now.
    """
    deadline = time.monotonic() + LAST_THREADS_SECONDS
    others = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    for thread in others:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in others):
        _flush()
        os._exit(status)
    return status


def _end_at_once() -> None:
    """The last resort: what still runs is named and left behind."""
    working = sorted({thread.name for thread in threading.enumerate() if thread is not threading.main_thread()})
    log.warning("ended without waiting any longer", seconds=END_WITHIN, threads=working)
    _flush()
    os._exit(0)


def _flush() -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()


def bound(host: str, port: int) -> socket.socket:
    """A socket that holds the address but does not listen yet; ConfigurationError says why it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"{host} is no address to bind: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        message = f"cannot bind {host} port {port}: {error.strerror}; --port 0 takes a free one"
        raise ConfigurationError(message) from error
    return listener


def taking_many(listener: socket.socket) -> list[socket.socket]:
    """A socket to listen on, as often as connections are to be taken of it in a turn of the event loop.

    libuv takes one of each socket per turn, and beside requests a turn takes some milliseconds: of five hundred clients
    that come at once the last would wait for seconds, and so would whoever comes after them.
    """
    return [listener, *(listener.dup() for _ in range(TAKEN_AT_ONCE - 1))]


def config_of(app: FastAPI, settings: Settings, shedding: Shedding = SHEDS_NONE) -> uvicorn.Config:
    """How uvicorn serves the application."""

    def refused(kind: str) -> None:
        app.state.services.metrics.rejected(kind)

    return uvicorn.Config(
        app,
        loop="uvloop",
        http=partial(BoundedProtocol, settings=settings, refused=refused, shedding=shedding),  # pyrefly: ignore[bad-argument-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.keep_alive,
        timeout_graceful_shutdown=DRAIN,
        backlog=BACKLOG,
    )
