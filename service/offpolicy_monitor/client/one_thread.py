"""One thread of torch for a while: more would take cores that the trainer or the service needs, and wait for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def one_thread(torch: Any) -> Iterator[None]:
    """One intra-op thread of `torch`, which whoever calls has imported; afterwards as many as before.

    torch counts them per calling thread, so that work in other threads keeps its own. Sums are then always run in one
    order.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
