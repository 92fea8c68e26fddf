"""Threads share the parts of a batch, and put together what these came to in order."""

import threading

import pytest
from offpolicy_monitor.fused.threads import ALONE, Threads
from offpolicy_monitor.slices import finished


@pytest.mark.parametrize("number", [1, 2, 5])
def test_every_part_is_done_once_and_given_in_order(number: int) -> None:
    threads, given = Threads(number), list[int]()
    for parts in (0, 1, 2, 40):
        given.clear()
        finished(threads.each(parts, lambda part: part, given.append))
        assert given == list(range(parts))


def test_the_calling_thread_works_where_the_others_do_not_come() -> None:
    threads, release, given = Threads(2), threading.Event(), list[int]()
    assert threads._others is not None
    busy = threads._others.submit(release.wait, 60)
    finished(threads.each(8, lambda part: part, given.append))
    assert given == list(range(8)) and not busy.done()
    release.set()
    assert busy.result()


def test_another_thread_takes_a_part_while_the_calling_one_is_at_work() -> None:
    both, by = threading.Barrier(2), set[int]()

    def work(part: int) -> int:
        both.wait(60)
        by.add(threading.get_ident())
        return part

    finished(Threads(2).each(2, work, lambda _: None))
    assert len(by) == 2 and threading.get_ident() in by


def test_a_part_is_handed_to_nobody_alone_and_takes_a_slice_each() -> None:
    by = set[int]()
    assert len(list(ALONE.each(3, lambda _: by.add(threading.get_ident()), lambda _: None))) == 3
    list(Threads(4).each(1, lambda _: by.add(threading.get_ident()), lambda _: None))
    assert by == {threading.get_ident()}


@pytest.mark.parametrize("number", [1, 3])
def test_what_a_part_raises_is_raised_once_no_thread_is_at_work(number: int) -> None:
    at_work = list[int]()

    def work(part: int) -> None:
        at_work.append(part)
        try:
            if part == 3:
                raise MemoryError("of part 3")
        finally:
            at_work.pop()

    threads = Threads(number)
    with pytest.raises(MemoryError, match="of part 3"):
        finished(threads.each(9, work, lambda _: None))
    assert not at_work
    given = list[int]()
    finished(threads.each(9, lambda part: part, given.append))
    assert given == list(range(9))
