"""A process that stores shards until it is killed: prints the number of each acknowledged shard.

Run as `python writer_process.py URL SEED`; shard number n is `numbered(n)`, so that the test can make the same one.
"""

import random
import sys
from pathlib import Path

SHARDS = 4


def main(url: str, seed: int) -> None:
    from offpolicy_monitor.store import Receipt, Store

    numbers = list(range(400))
    random.Random(seed).shuffle(numbers)
    store = Store.open(url)
    for start in range(0, len(numbers), 5):
        group = numbers[start : start + 5] + random.Random(start).sample(numbers[: start + 5], 1)
        answers = store.ingest([numbered(n) for n in group])
        assert all(isinstance(answer, Receipt) for answer in answers)
        print(*group, flush=True)


def numbered(n: int):  # type: ignore[no-untyped-def]
    from tests.fixtures.shards import make_record

    return make_record(n // SHARDS, n % SHARDS, SHARDS)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(sys.argv[1], int(sys.argv[2]))
