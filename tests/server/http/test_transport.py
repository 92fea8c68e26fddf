"""What a connection is given to write leaves it in order, a head together with the answer behind it."""

import asyncio
from collections.abc import Callable

from offpolicy_monitor.server.http.deadlines import deadlines_of
from offpolicy_monitor.server.http.transport import SHORT, BoundedTransport


class Socket(asyncio.Transport):
    """Notes what leaves at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.packets: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.packets.append(bytes(data))

    def writelines(self, list_of_data: object) -> None:
        self.packets.append(b"".join(map(bytes, list_of_data)))  # pyrefly: ignore[bad-argument-type]

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def written(scenario: Callable[[BoundedTransport], None]) -> list[bytes]:
    """The packets that left in one turn of a loop and the next."""

    async def turns() -> list[bytes]:
        socket = Socket()
        transport = BoundedTransport(socket, deadlines_of(asyncio.get_running_loop()), 1.0, lambda: False)
        scenario(transport)
        await asyncio.sleep(0)
        transport.forget()
        return socket.packets

    return asyncio.run(turns())


def test_a_head_leaves_with_what_is_written_behind_it() -> None:
    def scenario(transport: BoundedTransport) -> None:
        transport.write(b"head")
        assert transport.get_write_buffer_size() == 4
        transport.write(b"body")

    assert written(scenario) == [b"headbody"]


def test_a_head_alone_leaves_in_the_next_turn_and_before_a_close() -> None:
    assert written(lambda transport: transport.write(b"head")) == [b"head"]

    def scenario(transport: BoundedTransport) -> None:
        transport.write(b"head")
        transport.close()

    assert written(scenario) == [b"head"]


def test_what_is_long_does_not_wait() -> None:
    long = b"x" * SHORT

    def scenario(transport: BoundedTransport) -> None:
        transport.write(long)
        transport.write(b"a")
        transport.write(b"b")
        transport.write(long)

    assert written(scenario) == [long, b"ab", long]
