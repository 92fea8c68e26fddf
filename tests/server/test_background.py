"""What runs beside the requests goes on whatever happens to it."""

import asyncio

import pytest
from offpolicy_monitor.errors import Unavailable
from offpolicy_monitor.server.background import SWEEP, keep, warm_up
from structlog.testing import capture_logs

FAILURES = [Unavailable(503, "store-unavailable", "away"), ZeroDivisionError("a defect"), OSError("broken")]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_sweeping_goes_on_after_any_failure_and_says_what_it_was(failure: Exception) -> None:
    async def scenario() -> None:
        sweeps: list[int] = []
        third = asyncio.Event()

        async def sweep() -> int:
            sweeps.append(len(sweeps))
            if len(sweeps) == 3:
                third.set()
            if len(sweeps) < 3:
                raise failure
            return 4

        task = asyncio.create_task(keep(SWEEP, sweep, 0.001))
        await asyncio.wait_for(third.wait(), 10)
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with capture_logs() as logged:
        asyncio.run(scenario())
    away = {"event": "sweep put off", "reason": "away", "log_level": "warning"}
    defect = {"event": "sweep failed", "exc_info": failure, "log_level": "error"}
    assert logged[:2] == [away if isinstance(failure, Unavailable) else defect] * 2
    assert (logged[2]["log_level"], logged[2]["steps"]) == ("info", 4)


@pytest.mark.parametrize("failure", [None, ZeroDivisionError("no device")])
def test_a_device_is_warm_once_it_has_measured(failure: Exception | None) -> None:
    told: list[Exception | None] = []

    async def measure() -> None:
        if failure:
            raise failure

    asyncio.run(warm_up(measure, told.append))
    assert told == [failure]
