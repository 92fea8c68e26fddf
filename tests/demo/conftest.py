from collections.abc import Iterator

import pytest
import torch

from tests.demo.stub import StubService, serve


@pytest.fixture
def service() -> Iterator[StubService]:
    with serve(StubService()) as stub:
        yield stub


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the demo runs: threads that wait for one another take many times as long on a machine with other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
