"""Measuring over the torch form of f832f41 on the same data: how many times faster, at three sizes.

The older form is the client that is kept for the tests, in a process of its own with one thread: this module run with
that client on the path answers each size it reads, a line, by the seconds that a measurement takes. The quickest turn
counts, of both.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.compute import measurer_of
from tests.benchmarks.rows import Row, at_least
from tests.benchmarks.scale import MILLION, Scale
from tests.benchmarks.timing import NANOSECONDS, Progress, by_turns, repeated
from tests.fixtures.service import clean_environment
from tests.older.kept import F832F41, unpack_client

ROOT = Path(__file__).resolve().parents[2]
#: Tokens -> how many times faster the full set is to be.
LEAST = {MILLION: 8, 16_384: 25, 2_000: 50}
#: Seconds a turn: what takes a hundredth of that would else be told by its first run after the other's turn.
TURN = 0.1


def older_rows(scale: Scale, progress: Progress) -> list[Row]:
    """The full set at each size, and the ratio of the older form's time over today's."""
    rows = []
    with older_form() as older:
        for tokens, least in LEAST.items():
            measure = partial(measurer_of(scale.compiled).measure, Synthetic(tokens).batch(), PRESETS)
            now = repeated(measure, TURN)
            found = by_turns({"now": now, "older": partial(older, tokens)}, scale.repeats, progress, min)
            what = f"measuring {tokens:,} tokens: times faster than the torch form of f832f41"
            note = f"that one takes {found['older'] * 1e3:.3g} ms"
            ns = found["now"] / tokens * NANOSECONDS
            rows.append(Row(what, ns, "ns per token", found["older"] / found["now"], at_least(least), note))
    return rows


@contextmanager
def older_form() -> Iterator[Callable[[int], float]]:
    """Seconds that the older form takes for so many tokens, each time it is called."""
    with tempfile.TemporaryDirectory() as folder:
        unpack_client(F832F41, Path(folder))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.older"],
            cwd=ROOT, env=clean_environment() | {"PYTHONPATH": folder}, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def seconds(tokens: int) -> float:
            asked.write(f"{tokens}\n")
            asked.flush()
            return float(answers.readline())

        try:
            yield seconds
        finally:
            process.kill()
            process.communicate()


def answer() -> None:
    """What the process does; warm before it is asked."""
    measurer, batches = Measurer("cpu", threads=1), {tokens: Synthetic(tokens).batch() for tokens in LEAST}
    for line in sys.stdin:
        sys.stdout.write(f"{repeated(partial(measurer.measure, batches[int(line)], PRESETS), TURN)()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    answer()
