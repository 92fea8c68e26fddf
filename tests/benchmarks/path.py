"""The whole path of a shard, from outside: what a post costs over a trainer's own k3, and small shards per second.

Every shard is measured in full, stored, fsynced and judged before it is answered; every step is declared to have one
gradient step, so that each is judged at once. Bodies are laid out beforehand and not counted.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.batches import BYTES_PER_TOKEN, LOGPROBS, Synthetic
from tests.benchmarks.body import Body
from tests.benchmarks.ingest import STEPS, connected
from tests.benchmarks.load import Load
from tests.benchmarks.rows import Row, at_least, at_most
from tests.benchmarks.scale import MILLION, Scale
from tests.benchmarks.servers import AS_MONITOR, service
from tests.benchmarks.timing import Progress, all_by_turns, by_turns, timed

CLIENTS = 16
SMALL_TOKENS = 2_000
#: Tokens per shard -> the most that one post may take over numpy's three k3 of the same data.
MOST_OVER_NUMPY = {MILLION: 20, 131_072: 25, 16_384: 60, SMALL_TOKENS: 130}
#: Seconds in which posts, or runs of numpy, follow each other, of which the quickest counts: other work on the machine
#: moves small posts most, and numpy's hundredth of a post hardly.
TURNS = {MILLION: 0.1, 131_072: 0.1, 16_384: 0.2, SMALL_TOKENS: 0.4}
#: Shards per step -> shards of SMALL_TOKENS per second that CLIENTS connections are to get through.
LEAST_PER_SECOND = {16: 400, 1: 150}
#: A step of many ranks, all of which post at once.
BURST_SHARDS, BURST_BYTES, BURST_WITHIN = 512, 64 * 1024, 2.0


def path_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """One post over numpy at four sizes, and many connections at once; then a burst.

    All but the burst by turns over minutes, of which the quickest counts: other work on the machine only takes time.
    """
    sources = [Synthetic(tokens) for tokens in MOST_OVER_NUMPY]
    small = Synthetic(SMALL_TOKENS)
    with ExitStack() as stack:
        target = stack.enter_context(service(folder, scale.compiled))
        target.wait()
        one, many = (stack.enter_context(connected(target, AS_MONITOR, clients)) for clients in (1, CLIENTS))
        candidates: dict[str, Callable[[], float]] = {}
        for source in sources:
            candidates[f"numpy, {source.tokens:,}"] = partial(inline, source)
            candidates[f"post, {source.tokens:,}"] = partial(posting, source, one)
        for shards in LEAST_PER_SECOND:
            candidates[f"steps of {shards}"] = partial(per_second, small, shards, scale.path_posts, many)
        found = all_by_turns(candidates, scale.path_rounds, progress)
        rows = [
            over_numpy(source.tokens, found[f"numpy, {source.tokens:,}"], found[f"post, {source.tokens:,}"])
            for source in sources
        ]
        rows += [over_least(shards, found[f"steps of {shards}"], scale.path_posts) for shards in LEAST_PER_SECOND]
        return [*rows, burst(many, scale, progress)]


def over_numpy(tokens: int, inline: Sequence[float], posts: Sequence[float]) -> Row:
    """The quickest post of a one-shard step over one connection, over the quickest inline computation."""
    what = f"one post of {tokens:,} tokens, stored and judged, over numpy's three k3"
    times = (
        f"the quickest of {len(posts)} turns of {TURNS[tokens]:g} s; of the median turn "
        f"{statistics.median(posts) * 1e3:.3g} ms"
    )
    note = f"numpy takes {min(inline) * 1e3:.3g} ms; {times}"
    return Row(what, min(posts) * 1e3, "ms", min(posts) / min(inline), at_most(MOST_OVER_NUMPY[tokens]), note)


def posting(source: Synthetic, load: Load) -> float:
    """Seconds of one post of a step of its own, the quickest of those that follow each other in a turn."""
    return quickest(lambda: load.seconds([source.body(next(STEPS), minibatches=1)]), TURNS[source.tokens])


def inline(source: Synthetic) -> float:
    """Seconds that a trainer takes for k3 of the three gaps in its own process, the quickest of a turn."""
    sampling, old, current = (source.columns[name] for name in LOGPROBS)

    def work() -> None:
        for numerator, denominator in ((old, sampling), (current, old), (current, sampling)):
            k3(numerator - denominator)

    return quickest(timed(work), TURNS[source.tokens])


def quickest(seconds: Callable[[], float], turn: float) -> float:
    """The least of what is answered again and again in a turn of so many seconds."""
    ends, found = time.perf_counter() + turn, seconds()
    while time.perf_counter() < ends:
        found = min(found, seconds())
    return found


def k3(d: NDArray[np.float32]) -> float:
    """mean(exp(d) - 1 - d), in float32 with a float64 mean."""
    return float(np.mean(np.exp(d) - 1 - d, dtype=np.float64))


def per_second(source: Synthetic, shards: int, posts: int, load: Load) -> float:
    """Shards per second of many connections, steps of so many shards."""
    return posts / load.seconds(list(steps(source, shards, posts)))


def over_least(shards: int, rates: Sequence[float], posts: int) -> Row:
    """The quickest turn over what is wanted; it is long enough for the database's log to be brought home in it."""
    least, found = LEAST_PER_SECOND[shards], max(rates)
    what = f"shards of {SMALL_TOKENS:,} tokens, {CLIENTS} connections, steps of {shards}"
    note = (
        f"ratio over the {least} that are wanted; the quickest of {len(rates)} turns of {posts} posts, the client on "
        f"the same cores; of the median turn {statistics.median(rates):.0f}, of the slowest {min(rates):.0f}"
    )
    return Row(what, found, "shards/s", found / least, at_least(1), note)


def burst(load: Load, scale: Scale, progress: Progress) -> Row:
    """Seconds until every shard of one wide step is answered."""
    source = Synthetic(BURST_BYTES // BYTES_PER_TOKEN)
    size = f"{BURST_SHARDS} shards of {BURST_BYTES // 1024} KiB"
    what = f"{size} for one step, {CLIENTS} connections, over {BURST_WITHIN:g} s"
    if not scale.compiled:
        return Row(what, None, "s", note="not measured in a quick run")
    work = {what: lambda: load.seconds(list(steps(source, BURST_SHARDS, BURST_SHARDS)))}
    found = by_turns(work, min(scale.rounds, 3), progress)[what]
    return Row(what, found, "s", found / BURST_WITHIN, at_most(1))


def steps(source: Synthetic, shards: int, posts: int) -> Iterator[Body]:
    """So many bodies in order of their steps, each of which is whole."""
    for _ in range(posts // shards):
        step = next(STEPS)
        for shard in range(shards):
            yield source.body(step, shard=shard, shards=shards, minibatches=1)
