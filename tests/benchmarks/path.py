"""The whole path of a shard, from outside: what a post costs over a trainer's own k3, and small shards per second.

Every shard is measured in full, stored, fsynced and judged before it is answered; every step is declared to have one
gradient step, so that each is judged at once. Bodies are laid out beforehand and not counted.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.batches import BYTES_PER_TOKEN, LOGPROBS, Synthetic
from tests.benchmarks.body import Body
from tests.benchmarks.ingest import STEPS, connected
from tests.benchmarks.load import Load
from tests.benchmarks.rows import Row, at_least, at_most
from tests.benchmarks.scale import MILLION, Scale
from tests.benchmarks.servers import BATCHES, Served, service
from tests.benchmarks.timing import Progress, by_turns

CLIENTS = 16
IN_A_ROW = 5  # posts, and runs of numpy, a turn, of which the quickest counts
SMALL_TOKENS = 2_000
AS_MONITOR = f"{BATCHES}?detail=none"  # it looks at no figures either
#: Tokens a shard -> the most that one post may take over numpy's three k3 of the same data.
MOST_OVER_NUMPY = {MILLION: 20, 131_072: 25, 16_384: 60, SMALL_TOKENS: 130}
#: Shards a step -> shards of SMALL_TOKENS a second that CLIENTS connections are to get through.
LEAST_PER_SECOND = {16: 400, 1: 150}
#: A step of many ranks, all of which post at once.
BURST_SHARDS, BURST_BYTES, BURST_WITHIN = 512, 64 * 1024, 2.0


def path_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """One post over numpy at four sizes, then many connections at once."""
    with service(folder, scale.compiled) as target:
        target.wait()
        rows = [over_numpy(Synthetic(tokens), target, scale, progress) for tokens in MOST_OVER_NUMPY]
        rows += [a_second(shards, target, scale, progress) for shards in LEAST_PER_SECOND]
        return [*rows, burst(target, scale, progress)]


def over_numpy(source: Synthetic, target: Served, scale: Scale, progress: Progress) -> Row:
    """The quickest post of a one-shard step over one connection, over the quickest inline computation."""
    with connected(target, AS_MONITOR, 1) as load:
        candidates = {"numpy": lambda: inline(source), "post": posting(source, load)}
        seconds = by_turns(candidates, scale.path_rounds, progress, min)
    what = f"one post of {source.tokens:,} tokens, stored and judged, over numpy's three k3"
    times = f"quickest of {scale.path_rounds * IN_A_ROW}, {IN_A_ROW} in a row by turns"
    note = f"numpy takes {seconds['numpy'] * 1e3:.3g} ms; {times}"
    goal = at_most(MOST_OVER_NUMPY[source.tokens])
    return Row(what, seconds["post"] * 1e3, "ms", seconds["post"] / seconds["numpy"], goal, note)


def posting(source: Synthetic, load: Load) -> Callable[[], float]:
    """Seconds of one post of a step of its own, the quickest of some that follow each other."""
    return lambda: min(load.seconds([source.body(next(STEPS), minibatches=1)]) for _ in range(IN_A_ROW))


def inline(source: Synthetic) -> float:
    """Seconds that a trainer takes for k3 of the three gaps in its own process, the quickest of some runs."""
    sampling, old, current = (source.columns[name] for name in LOGPROBS)

    def seconds() -> float:
        began = time.perf_counter()
        for numerator, denominator in ((old, sampling), (current, old), (current, sampling)):
            k3(numerator - denominator)
        return time.perf_counter() - began

    return min(seconds() for _ in range(IN_A_ROW))


def k3(d: NDArray[np.float32]) -> float:
    """mean(exp(d) - 1 - d), in float32 with a float64 mean."""
    return float(np.mean(np.exp(d) - 1 - d, dtype=np.float64))


def a_second(shards: int, target: Served, scale: Scale, progress: Progress) -> Row:
    """Small shards per second of many connections, steps of so many shards; the median of the rounds."""
    source, posts = Synthetic(SMALL_TOKENS), scale.path_posts
    what = f"shards of {SMALL_TOKENS:,} tokens, {CLIENTS} connections, steps of {shards}"
    with connected(target, AS_MONITOR, CLIENTS) as load:

        def rate() -> float:
            return posts / load.seconds(list(steps(source, shards, posts)))

        found = by_turns({what: rate}, scale.rounds, progress)[what]
    least = LEAST_PER_SECOND[shards]
    note = f"ratio over the {least} that are wanted; {posts} posts a round, the client on the same cores"
    return Row(what, found, "shards/s", found / least, at_least(1), note)


def burst(target: Served, scale: Scale, progress: Progress) -> Row:
    """Seconds until every shard of one wide step is answered."""
    source = Synthetic(BURST_BYTES // BYTES_PER_TOKEN)
    size = f"{BURST_SHARDS} shards of {BURST_BYTES // 1024} KiB"
    what = f"{size} for one step, {CLIENTS} connections, over {BURST_WITHIN:g} s"
    if not scale.compiled:
        return Row(what, None, "s", note="not measured in a quick run")
    with connected(target, AS_MONITOR, CLIENTS) as load:
        work = {what: lambda: load.seconds(list(steps(source, BURST_SHARDS, BURST_SHARDS)))}
        found = by_turns(work, min(scale.rounds, 3), progress)[what]
    return Row(what, found, "s", found / BURST_WITHIN, at_most(1))


def steps(source: Synthetic, shards: int, posts: int) -> Iterator[Body]:
    """So many bodies in order of their steps, each of which is whole."""
    for _ in range(posts // shards):
        step = next(STEPS)
        for shard in range(shards):
            yield source.body(step, shard=shard, shards=shards, minibatches=1)
