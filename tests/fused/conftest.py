"""The pass as the service runs it."""

import pytest
from offpolicy_monitor.measure.fused import Fused

from tests.fixtures.fused import loaded_pass


@pytest.fixture(scope="session")
def fused() -> Fused:
    return loaded_pass()
