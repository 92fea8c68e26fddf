"""Which worker gets a connection, and when one that died is replaced."""

from offpolicy_monitor.server.workers.roster import (
    GIVEN_UP,
    LONG_LIFE,
    LONGEST_WAIT,
    STANDS_STILL,
    Load,
    Waits,
    excess,
    in_order,
)


def test_connections_that_come_at_once_spread_evenly_whenever_workers_say_that_they_took_them() -> None:
    loads = [Load(), Load(open=5), Load()]
    for number in range(16):
        loads[in_order(loads, 0.0)[0]].hand(0.0)
        if number == 7:  # one has taken what it was handed, and says so
            loads[0].told(loads[0].handed, loads[0].handed, 0.0)
    assert [load.total for load in loads] == [7, 7, 7]


def test_a_worker_that_leaves_a_connection_waiting_comes_last_until_it_takes_it() -> None:
    loads = [Load(), Load(open=50)]
    loads[0].hand(1.0)
    assert in_order(loads, 1.0 + STANDS_STILL)[0] == 0
    assert in_order(loads, 1.1 + STANDS_STILL)[0] == 1
    loads[0].told(1, 1, 9.0)
    assert in_order(loads, 9.0)[0] == 0


def test_a_busy_worker_that_goes_on_taking_does_not_stand_still() -> None:
    load = Load()
    for second in range(9):
        load.hand(second)
        load.hand(second)
        load.told(second + 1, second + 1, second)
        assert not load.stands_still(second + STANDS_STILL)


def test_a_worker_that_stands_still_at_every_look_is_given_up_once_and_one_that_goes_on_is_not() -> None:
    still, goes_on = Load(), Load()
    for load in (still, goes_on):
        load.hand(0.0)
        load.hand(0.0)
    given_up = list[int]()
    for look in range(2, 2 * GIVEN_UP):
        if still.looked_at(float(look)):
            given_up.append(look)
        if look == GIVEN_UP:
            goes_on.told(1, 1, float(look))
        assert not goes_on.looked_at(float(look))
    assert given_up == [GIVEN_UP + 1]


def test_where_the_whole_service_was_stopped_for_an_hour_nobody_is_given_up() -> None:
    load = Load()
    load.hand(0.0)
    assert not load.looked_at(3600.0)


def test_what_is_beyond_an_even_share_is_let_go() -> None:
    assert excess([Load(open=16), Load(open=1), Load()]) == [10, 0, 0]
    assert excess([]) == []


def test_a_worker_is_replaced_at_once_and_ever_later_where_it_dies_again_and_again() -> None:
    waits = Waits()
    found = [waits.next(1.0) for _ in range(9)]
    assert found == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_WAIT, LONGEST_WAIT]
    assert waits.next(LONG_LIFE) == 0.0
    assert waits.next(1.0) == 0.5
