"""Replicas tell each other what they have stored: whoever listens at one of them hears of all."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from threading import Thread
from typing import Any

import pytest
from offpolicy_monitor.rayserve import siblings as module
from offpolicy_monitor.rayserve.siblings import HOLDS_FOR, MOST_WAITING, Message, Replicas
from offpolicy_monitor.server.workers.siblings import LOST


class Deployment:
    """Replicas that reach each other, unless they are cut off. `sent` are the messages that were."""

    def __init__(self, *names: str) -> None:
        self.now, self.cut_off, self.sent = 0.0, False, list[Sequence[Message]]()
        self.replicas = {name: Replicas(name, self.send, lambda: self.now) for name in names}
        self.heard: dict[str, list[Any]] = {name: [] for name in names}
        for name, replica in self.replicas.items():
            for kind in ("told", LOST):
                replica.hear(kind, self.hears(name, kind))

    def hears(self, name: str, kind: str) -> Callable[[Any], None]:
        return lambda data: self.heard[name].append((kind, data))

    async def send(self, source: str, messages: Sequence[Message]) -> None:
        if self.cut_off:
            raise RuntimeError("no replicas are there\nat all")
        self.sent.append(messages)
        for replica in self.replicas.values():
            replica.received(source, messages)

    async def settled(self) -> None:
        while any(replica._waiting or replica._sending for replica in self.replicas.values()):
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_AFTER", 0.02)


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


async def soon(deployment: Deployment) -> None:
    """What was told by `call_soon_threadsafe` is on its way, then there."""
    await asyncio.sleep(0)
    await deployment.settled()


def test_all_others_hear_in_order_and_in_one_message() -> None:
    async def test() -> None:
        deployment = Deployment("a", "b", "c")
        told = [("told", step) for step in range(3)]

        def tell() -> None:
            for kind, step in told:
                deployment.replicas["a"].tell(kind, step)

        # By another thread, while the loop stands still: however slow the machine, they come together.
        thread = Thread(target=tell)
        thread.start()
        thread.join()
        await soon(deployment)
        assert deployment.heard == {"a": [], "b": told, "c": told}
        assert deployment.sent == [told]

    on_a_loop(test)


def test_it_is_known_whether_others_listen_and_who_has_just_begun_takes_it_that_they_do() -> None:
    async def test() -> None:
        deployment = Deployment("a", "b")
        a, b = deployment.replicas.values()
        assert a.others_listen() and b.others_listen()
        deployment.now = HOLDS_FOR
        assert not a.others_listen() and not b.others_listen()
        a.listens(True)
        await asyncio.sleep(0)
        await soon(deployment)
        assert b.others_listen() and not a.others_listen()
        a.listens(False)
        await soon(deployment)
        assert not b.others_listen()

    on_a_loop(test)


def test_who_listened_and_is_no_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAID_EVERY", 0.01)

    async def test() -> None:
        deployment = Deployment("a", "b")
        a, b = deployment.replicas.values()
        deployment.now = HOLDS_FOR
        a.listens(True)
        for _ in range(3):
            deployment.now += HOLDS_FOR - 1.0  # said again and again
            await asyncio.sleep(0.1)
            assert b.others_listen()
        del deployment.replicas["b"]  # whom nothing reaches any more
        deployment.now += HOLDS_FOR
        assert not b.others_listen()
        a.listens(False)
        await soon(deployment)

    on_a_loop(test)


def test_what_could_not_be_told_is_told_to_be_lost() -> None:
    async def test() -> None:
        deployment = Deployment("a", "b")
        deployment.cut_off = True
        a = deployment.replicas["a"]
        a.tell("told", 1)
        await asyncio.sleep(0.1)
        assert deployment.heard["b"] == []
        deployment.cut_off = False
        await soon(deployment)
        assert deployment.heard["b"] == [(LOST, None)]
        a.tell("told", 2)
        await soon(deployment)
        assert deployment.heard["b"] == [(LOST, None), ("told", 2)]

    on_a_loop(test)


def test_what_is_too_much_is_lost_and_told_so_first() -> None:
    async def test() -> None:
        deployment = Deployment("a", "b")
        for step in range(MOST_WAITING + 2):
            deployment.replicas["a"].tell("told", step)
        await soon(deployment)
        assert deployment.heard["b"] == [(LOST, None), *(("told", step) for step in range(MOST_WAITING))]

    on_a_loop(test)
