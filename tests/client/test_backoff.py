"""How long the client waits."""

import pytest
from offpolicy_monitor.client.backoff import delay

NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(("failures", "least", "most"), [(1, 0.125, 0.25), (2, 0.25, 0.5), (4, 1.0, 2.0), (99, 5, 10)])
def test_the_wait_doubles_up_to_ten_seconds_and_is_drawn_from_its_upper_half(
    failures: int, least: float, most: float
) -> None:
    drawn = [delay(failures, None, NOW) for _ in range(200)]
    assert least <= min(drawn) < max(drawn) <= most
    assert max(drawn) - min(drawn) > 0.8 * (most - least)


def test_a_service_that_names_a_time_is_believed_within_bounds() -> None:
    assert 2.0 <= delay(1, "2", NOW) <= 3.0
    assert 20.0 <= delay(1, "Sun, 06 Nov 1994 08:49:57 GMT", NOW) <= 25.0
    assert 300.0 <= delay(1, "999999999999", NOW) <= 375.0
    assert delay(1, "0", NOW) <= 0.25


def test_those_that_were_told_the_same_time_come_back_over_a_quarter_of_it() -> None:
    drawn = [delay(1, "40", NOW) for _ in range(200)]
    assert 40.0 <= min(drawn) < max(drawn) <= 50.0
    assert max(drawn) - min(drawn) > 0.8 * 10.0
