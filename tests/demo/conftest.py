from collections.abc import Iterator

import pytest

from tests.client.fakes import Fake, serving
from tests.demo.small import ANSWER
from tests.fixtures.threads import one_thread

__all__ = ["one_thread", "service"]


@pytest.fixture
def service() -> Iterator[Fake]:
    """A service that answers every post with the same figures."""
    with serving(Fake(rest=ANSWER)) as fake:
        yield fake
