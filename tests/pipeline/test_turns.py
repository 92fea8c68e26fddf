"""The device's time is shared fairly, and nobody waits for long without being told."""

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.pipeline.turns import FIXED_BYTES, LONGEST_AWAY, Turn, Turns

LANES = ("small", "large")
SETTING = "OFFPOLICY_MAX_QUEUE_WAIT"


class Device:
    """Does jobs one after the other when it is told, each in the seconds that it is given; notes their names."""

    def __init__(self, longest: float = 1e9, at_once: int = 1) -> None:
        self.turns: Turns[tuple[str, float]] = Turns(LANES, longest, SETTING, lambda: self.now, at_once)
        self.done: list[str] = []
        self.now = 0.0

    def enter(self, name: str, lane: str = "small", seconds: float = 1.0, begun: bool = False) -> Turn:
        return self.turns.enter(lane, round(seconds * FIXED_BYTES) - FIXED_BYTES, (name, seconds), begun)

    def do(self, most: int = 1000) -> None:
        """Jobs in turn, so many at most."""
        while most and (turn := self.turns.next()) is not None:
            name, seconds = turn.job
            self.done.append(name)
            self.turns.took(turn, seconds)
            most -= 1

    def learn(self) -> None:
        """Measure often enough that a second's work is known to be one in both lanes."""
        for lane in LANES:
            for _ in range(200):
                self.enter("", lane)
                self.do()
        self.done.clear()


def test_jobs_of_one_lane_are_served_in_order_of_arrival() -> None:
    device = Device()
    for number in range(6):
        device.enter(str(number))
    device.do()
    assert device.done == list("012345")


def test_small_jobs_share_the_device_with_a_storm_of_large_ones() -> None:
    device = Device()
    device.learn()
    for _ in range(8):
        device.enter("L", "large", 4.0)
    device.do(1)
    for _ in range(8):
        device.enter("s", "small", 1.0)
    device.do()
    # One large one had begun before any small one came; then four seconds of the one for four of the other.
    assert device.done[0] == "L"
    assert device.done[:12].count("s") == 8
    assert device.done[:6].count("L") <= 3


def test_a_job_that_would_wait_too_long_is_told_when_to_come_back_and_no_two_alike() -> None:
    device = Device(longest=10.0)
    device.learn()
    for _ in range(11):
        device.enter("", "large")
    told = []
    for _ in range(5):
        with pytest.raises(Unavailable) as busy:
            device.enter("", "large", 3.0)
        told.append(busy.value.retry_after)
    assert (busy.value.status, busy.value.kind, SETTING in busy.value.detail) == (503, "busy", True)
    # Eleven seconds wait: half of them, and then each after the three seconds of another.
    assert told == [6, 9, 12, 15, 18]
    device.do()
    device.now = 1000.0
    device.enter("", "large")


def test_nobody_is_told_to_stay_away_for_longer_than_the_longest_time() -> None:
    device = Device(longest=10.0)
    device.learn()
    for _ in range(2):
        device.enter("", "large", 10.0)
    told = []
    for _ in range(50):
        with pytest.raises(Unavailable) as busy:
            device.enter("", "large", 10.0)
        told.append(busy.value.retry_after)
    assert max(told) <= LONGEST_AWAY
    assert min(told[10:]) >= LONGEST_AWAY / 2
    assert len(set(told[10:])) > 10


def test_what_has_begun_is_not_refused_half_way() -> None:
    device = Device(longest=10.0)
    device.learn()
    for _ in range(11):
        device.enter("", "large")
    with pytest.raises(Unavailable):
        device.enter("", "large")
    device.enter("more", "large", begun=True)
    device.do()
    assert device.done[-1] == "more"


def test_small_jobs_are_taken_while_large_ones_are_refused() -> None:
    device = Device(longest=10.0)
    device.learn()
    for _ in range(11):
        device.enter("", "large")
    with pytest.raises(Unavailable):
        device.enter("", "large")
    device.enter("s", "small")


def test_one_that_leaves_gives_its_turn_to_the_next() -> None:
    device = Device()
    first, _, third, _ = (device.enter(str(number)) for number in range(4))
    assert [device.turns.leave(turn) for turn in (first, third)] == [True, True]
    device.do()
    assert device.done == ["1", "3"]
    assert not device.turns.leave(first)


def test_where_two_jobs_are_done_at_a_time_the_wait_is_half_as_long() -> None:
    alone, two = Device(longest=3.5), Device(longest=3.5, at_once=2)
    taken = []
    for device in (alone, two):
        device.learn()
        taken.append(0)
        with pytest.raises(Unavailable):
            while True:
                device.enter("s")
                taken[-1] += 1
    assert taken == [4, 8]
