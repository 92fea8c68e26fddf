from collections.abc import Iterator

import pytest
import torch

from tests.client.fakes import Fake, serving
from tests.demo.small import ANSWER


@pytest.fixture
def service() -> Iterator[Fake]:
    """A service that answers every post with the same figures."""
    with serving(Fake(rest=ANSWER)) as fake:
        yield fake


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the demo runs: threads that wait for one another take many times as long on a machine with other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
