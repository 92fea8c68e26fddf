"""A program that stores shards until it is killed: prints the numbers of the shards that were acknowledged."""

import random

from offpolicy_monitor.store import Receipt, Store

from tests.fixtures.shards import make_record

SHARDS = 4


def main(url: str, seed: int) -> None:
    """Store them in an order of this seed, some of each group again; shard number n is of step n // SHARDS."""
    numbers = list(range(400))
    random.Random(seed).shuffle(numbers)
    store = Store.open(url)
    for start in range(0, len(numbers), 5):
        group = numbers[start : start + 5] + random.Random(start).sample(numbers[: start + 5], 1)
        answers = store.ingest([make_record(n // SHARDS, n % SHARDS, SHARDS) for n in group])
        assert all(isinstance(answer, Receipt) for answer in answers)
        print(*group, flush=True)
