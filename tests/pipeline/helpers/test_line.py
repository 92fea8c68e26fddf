"""Values get from one process to another whole, however large; an end that is gone or stands still is told."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from offpolicy_monitor.pipeline.helpers.line import Line


@pytest.fixture
def ends() -> Iterator[tuple[Line, Line]]:
    own, its = Line.pair()
    other = Line(its)
    with closing(own), closing(other):
        yield own, other


@pytest.mark.parametrize("size", [0, 1, 1 << 12, 1 << 22])
def test_a_value_comes_as_it_was_sent(ends: tuple[Line, Line], size: int) -> None:
    own, other = ends
    value = {"bytes": os.urandom(size), "none": None}
    sender = threading.Thread(target=own.send, args=(value,))  # a large one waits for the one who receives
    sender.start()
    assert other.receive() == value
    sender.join()
    own.send("next")
    assert other.receive() == "next"


def test_an_end_that_is_closed_is_told_to_who_receives_and_to_who_sends(ends: tuple[Line, Line]) -> None:
    own, other = ends
    other.close()
    with pytest.raises(EOFError):
        own.receive()
    with pytest.raises(EOFError):
        own.send("value")


def test_a_value_that_is_cut_off_is_no_value() -> None:
    own, its = Line.pair()
    its.send((100).to_bytes(8, "little") + b"half")
    its.close()
    with closing(own), pytest.raises(EOFError, match="cut off"):
        own.receive()


def test_who_waits_for_longer_than_its_patience_is_told(ends: tuple[Line, Line]) -> None:
    own, _other = ends
    own.wait_at_most(0.05)
    with pytest.raises(TimeoutError):
        own.receive()
    with pytest.raises(TimeoutError):  # a part of it was taken
        own.send(os.urandom(1 << 24))
    with pytest.raises(TimeoutError):  # nothing
        own.send("more")


def test_patience_ends_where_it_is_taken_back(ends: tuple[Line, Line]) -> None:
    own, other = ends
    own.wait_at_most(0.05)
    own.wait_at_most(None)
    late = threading.Timer(0.2, other.send, args=("late",))
    late.start()
    assert own.receive() == "late"
    late.join()


def test_an_end_of_another_line_is_sent_and_is_no_longer_here(ends: tuple[Line, Line]) -> None:
    own, other = ends
    first, its = Line.pair()
    own.send_line(its)
    assert its.fileno() == -1
    with closing(first), closing(other.receive_line()) as received:
        received.send("by the new line")
        assert first.receive() == "by the new line"


def test_without_another_end_there_is_no_line(ends: tuple[Line, Line]) -> None:
    own, other = ends
    own.close()
    with pytest.raises(EOFError):
        other.receive_line()


def test_a_line_is_inherited_by_its_handle() -> None:
    own, its = Line.pair()
    with closing(own), closing(Line.inherited(its.detach())) as inherited:
        inherited.send(1)
        assert own.receive() == 1
