"""How long an answer is waited for: longer after each that did not come, and no longer than a shard takes."""

from offpolicy_monitor.client.patience import Patience


def test_each_wait_in_vain_doubles_the_next_one_up_to_two_minutes() -> None:
    patience, waits = Patience(10.0), []
    for _ in range(6):
        waits.append(patience.seconds)
        patience.in_vain()
    assert waits == [10.0, 20.0, 40.0, 80.0, 120.0, 120.0]


def test_a_timeout_beyond_the_bound_is_kept() -> None:
    patience = Patience(600.0)
    patience.in_vain()
    assert patience.seconds == 600.0


def test_a_stored_shard_brings_it_back_to_twice_the_time_it_took() -> None:
    patience = Patience(10.0)
    for _ in range(3):
        patience.in_vain()
    patience.stored_after(60.0)
    assert patience.seconds == 80.0
    patience.stored_after(15.0)
    assert patience.seconds == 30.0
    patience.stored_after(0.1)
    assert patience.seconds == 10.0
