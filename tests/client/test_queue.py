"""The queue holds no more bytes than it may, and gives up the oldest first."""

import threading
import time

from offpolicy_monitor.client.queue import ByteQueue


def queue(capacity: int) -> tuple[ByteQueue[str], list[int]]:
    dropped: list[int] = []
    return ByteQueue(capacity, dropped.append), dropped


def put(queue: ByteQueue[str], item: str, size: int) -> bool:
    fits = queue.reserve(size)
    if fits:
        queue.put(item, size)
    return fits


def taken(queue: ByteQueue[str]) -> str:
    found = queue.take()
    assert found is not None
    assert queue.done(found[0])
    return found[1]


def test_items_come_out_in_the_order_they_went_in() -> None:
    waiting, dropped = queue(10)
    assert [put(waiting, item, 2) for item in "abc"] == [True] * 3
    assert (waiting.used, len(waiting)) == (6, 3)
    assert [taken(waiting) for _ in range(3)] == ["a", "b", "c"]
    assert (waiting.used, len(waiting), dropped) == (0, 0, [])


def test_the_oldest_make_room_for_the_newest() -> None:
    waiting, dropped = queue(10)
    for item in "abcde":
        put(waiting, item, 2)
    assert put(waiting, "f", 5)
    assert (waiting.used, dropped) == (9, [3])
    assert [taken(waiting) for _ in range(3)] == ["d", "e", "f"]


def test_what_is_larger_than_the_queue_drops_nothing_else() -> None:
    waiting, dropped = queue(10)
    put(waiting, "a", 2)
    assert not put(waiting, "b", 11)
    assert (len(waiting), dropped) == (1, [])


def test_what_is_being_sent_counts_and_is_not_dropped() -> None:
    waiting, dropped = queue(10)
    put(waiting, "a", 6)
    put(waiting, "b", 4)
    found = waiting.take()
    assert not put(waiting, "c", 5) and dropped == [1] and waiting.used == 6
    assert found is not None and waiting.done(found[0]) and waiting.used == 0


def test_what_rests_between_two_tries_may_be_dropped() -> None:
    waiting, dropped = queue(10)
    put(waiting, "a", 6)
    found = waiting.take()
    assert found is not None
    threading.Timer(0.05, lambda: put(waiting, "b", 5)).start()
    began = time.monotonic()
    assert waiting.rest(found[0], 5.0) is False
    assert time.monotonic() - began < 4.0
    assert dropped == [1] and not waiting.done(found[0]) and taken(waiting) == "b"


def test_what_rests_goes_overboard_after_all_others_and_once() -> None:
    waiting, dropped = queue(10)
    for item in "abc":
        put(waiting, item, 3)
    ticket, _ = waiting.take() or (-1, "")
    sleeper = threading.Thread(target=waiting.rest, args=(ticket, 30.0))
    sleeper.start()
    while waiting._resting is None:
        time.sleep(0.001)
    assert put(waiting, "d", 4) and dropped == [1]
    assert waiting.holds(ticket)
    assert put(waiting, "e", 10) and dropped == [1, 3]
    assert not waiting.holds(ticket)
    sleeper.join(10)
    assert not sleeper.is_alive()
    assert taken(waiting) == "e"


def test_room_that_is_given_back_is_free_again() -> None:
    waiting, _ = queue(10)
    assert waiting.reserve(10) and not waiting.reserve(1)
    waiting.release(10)
    assert (waiting.used, len(waiting)) == (0, 0) and put(waiting, "a", 10)


def test_a_closed_queue_is_emptied_and_then_ends() -> None:
    waiting, _ = queue(10)
    put(waiting, "a", 1)
    waiting.close()
    assert taken(waiting) == "a" and waiting.take() is None


def test_clearing_gives_up_what_is_being_sent_too() -> None:
    waiting, _ = queue(10)
    put(waiting, "a", 1)
    put(waiting, "b", 1)
    found = waiting.take()
    assert waiting.clear() == 2 and waiting.used == 0
    assert found is not None and not waiting.done(found[0])
