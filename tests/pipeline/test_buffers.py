"""Bodies are written once into memory that is used again."""

from offpolicy_monitor.pipeline.buffers import SMALLEST, BodyBuffer, BufferPool


def test_a_body_is_what_was_written_in_order() -> None:
    buffer = BodyBuffer(BufferPool(0), 6)
    buffer.write(b"abc")
    buffer.write(b"def")
    assert bytes(buffer.view()) == b"abcdef"
    assert len(buffer) == 6


def test_a_body_of_unknown_size_grows() -> None:
    buffer = BodyBuffer(BufferPool(1 << 30), 1)
    chunk = bytes(range(256)) * 300
    for _ in range(4):
        buffer.write(chunk)
    assert bytes(buffer.view()) == chunk * 4


def test_released_memory_serves_the_next_body_of_its_size() -> None:
    pool = BufferPool(1 << 20)
    first = BodyBuffer(pool, 100_000)
    first.write(b"x" * 100_000)
    address = id(first.view().obj)
    first.release()
    assert pool.idle == 131_072

    second = BodyBuffer(pool, 131_072)
    assert id(second.view().obj) == address
    assert (pool.idle, len(second)) == (0, 0)


def test_no_more_lies_idle_than_allowed() -> None:
    pool = BufferPool(SMALLEST)
    first, second = BodyBuffer(pool, 1), BodyBuffer(pool, 1)
    first.release()
    second.release()
    assert pool.idle == SMALLEST


def test_releasing_twice_does_no_harm() -> None:
    pool = BufferPool(1 << 20)
    buffer = BodyBuffer(pool, 1)
    buffer.release()
    buffer.release()
    assert pool.idle == SMALLEST
