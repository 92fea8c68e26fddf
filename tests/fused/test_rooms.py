"""Memory that is used again is bounded by its bytes, whoever has used it."""

from offpolicy_monitor.fused.parts import MOST_SPARE, SPARE
from offpolicy_monitor.fused.rooms import Rooms
from offpolicy_monitor.methods import PRESETS

from tests.fixtures.fused import fused_measurer
from tests.strategies import packed, random_sequences


def test_a_room_is_had_once_and_by_its_owner_alone() -> None:
    rooms: Rooms[str, str] = Rooms(100)
    rooms.give("a", "first", 10)
    rooms.give("a", "second", 10)
    assert rooms.taken("b") is None
    assert {rooms.taken("a"), rooms.taken("a")} == {"first", "second"}
    assert rooms.taken("a") is None and rooms.used == 0


def test_what_was_used_longest_ago_goes_where_there_is_too_much() -> None:
    rooms: Rooms[str, int] = Rooms(100)
    for number, owner in enumerate("abcabd"):
        rooms.give(owner, number, 20)
    assert rooms.used == 100
    assert rooms.taken("c") is None
    rooms.give("e", 6, 200)
    assert rooms.used == 0 and rooms.taken("e") is None and rooms.taken("a") is None


def test_batches_of_ever_other_rows_leave_no_more_room_than_may_be() -> None:
    measurer, batch = fused_measurer(), packed(random_sequences(1, [30, 5], 0.1))
    for number in range(40):
        measurer.measure(batch, PRESETS[: number % len(PRESETS) + 1])
    assert 0 < SPARE.used <= MOST_SPARE
