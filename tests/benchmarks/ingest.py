"""The service over HTTP: its speed over a sink that only reads, over a naive service, and many clients over one.

As in `path`, every step is declared to have one gradient step and is judged at once, and nobody looks at the figures.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import orjson
from offpolicy_monitor.client.reduce import reduced
from offpolicy_monitor.wire.frame import MEDIA_TYPE, encode

from tests.benchmarks.batches import LOGPROBS, Synthetic
from tests.benchmarks.body import Body
from tests.benchmarks.load import Load
from tests.benchmarks.rows import Row, at_least
from tests.benchmarks.scale import MILLION, Scale
from tests.benchmarks.servers import AS_MONITOR, NAIVE, SINK, Served, served, service
from tests.benchmarks.timing import Progress, by_turns

IN_FLIGHT = 2
CLIENTS = 16
TURNS = 3  # times as many as elsewhere where the quickest counts, of both
SINK_POSTS = 8  # posts to the sink for each to the service: it is so much faster that a round would be too short
SUMMARIES = 16  # posts of a summary for each of its tokens
SMALL_TOKENS = 256
#: Tokens per batch -> the least part of the sink's speed.
GOALS = {MILLION: at_least(0.22), 131_072: at_least(0.2), 16_384: at_least(0.12)}
STEPS = itertools.count()  # a step of its own for each body: the same shard again would only be a duplicate


def ingest_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """Everything that is asked of one running service."""
    with ExitStack() as stack:
        target = stack.enter_context(service(folder, scale.compiled))
        sink = stack.enter_context(served(SINK, folder / "sink.log"))
        naive = stack.enter_context(served(NAIVE, folder / "naive.log"))
        for server in (target, sink, naive):
            server.wait()
        rows = []
        for tokens, posts in scale.posts.items():
            rows += [over_sink(Synthetic(tokens), posts, target, sink, scale, progress)]
        holed = Synthetic(MILLION, holes=True)
        rows += [over_sink(holed, scale.posts[MILLION], target, sink, scale, progress)]
        rows += [reduced_over_sink(scale, target, sink, progress)]
        return [*rows, *over_naive(target, naive, scale, progress), over_one_client(target, scale, progress)]


def over_sink(source: Synthetic, posts: int, target: Served, sink: Served, scale: Scale, progress: Progress) -> Row:
    """Tokens per second of the service, and what part of the sink's that is."""
    with connected(target) as to_service, connected(sink) as to_sink:
        candidates = {
            "sink": rate(source, SINK_POSTS * posts, to_sink),
            "service": rate(source, posts, to_service),
        }
        rates = by_turns(candidates, TURNS * scale.rounds, progress, max)
    what = f"service, {source.tokens:,}-token batches, over the sink"
    note = f"the sink takes {rates['sink'] / 1e6:,.0f} million tokens per second; {IN_FLIGHT} requests in flight"
    goal = None if source.holes else GOALS[source.tokens]
    what += " (one in 20 masked)" if source.holes else ""
    return Row(
        what, rates["service"] / 1e6, "million tokens/s", rates["service"] / rates["sink"], goal, note, better="more"
    )


def reduced_over_sink(scale: Scale, target: Served, sink: Served, progress: Progress) -> Row:
    """Tokens per second of shards that were reduced where they came from, over those that the sink reads raw."""
    source, posts = Synthetic(MILLION), scale.posts[MILLION]
    arrays = {**source.columns, "lengths": source.lengths, "advantages": source.advantages}
    envelope = {"shard": 0, "shards": 1, "minibatches": 1}
    summary = reduced({**envelope, "step": 0}, arrays)

    def tokens_per_second() -> float:
        steps = (next(STEPS) for _ in range(SUMMARIES * posts))
        bodies = [Body(encode({**envelope, "step": step}, summary), MEDIA_TYPE) for step in steps]
        return len(bodies) * MILLION / to_service.seconds(bodies)

    with connected(target, connections=CLIENTS) as to_service, connected(sink) as to_sink:
        candidates = {"sink": rate(source, SINK_POSTS * posts, to_sink), "service": tokens_per_second}
        rates = by_turns(candidates, TURNS * scale.rounds, progress, max)
    what = f"service, summaries of {MILLION:,} tokens, over the sink with the tokens"
    note = f"{len(summary['summary']):,} bytes each, {CLIENTS} connections"
    return Row(what, rates["service"] / 1e6, "million tokens/s", rates["service"] / rates["sink"], at_least(10), note)


def over_naive(target: Served, naive: Served, scale: Scale, progress: Progress) -> list[Row]:
    """The service over the naive one, which gets its lists with the padding, as tensors have it, and without."""
    source = Synthetic(scale.naive_tokens)
    bodies = {"padded": [json_body(source, True)] * IN_FLIGHT, "ragged": [json_body(source, False)] * IN_FLIGHT}
    with connected(target) as to_service, connected(naive, "/batches") as to_naive:
        candidates = {name: again(source, same, to_naive) for name, same in bodies.items()}
        candidates["service"] = rate(source, scale.posts[131_072], to_service)
        rates = by_turns(candidates, scale.naive_rounds, progress)
    return [
        Row(
            f"binary service over JSON + pydantic + padded, {name} lists",
            rates[name] / 1e6,
            "million tokens/s",
            rates["service"] / rates[name],
            at_least(100) if name == "padded" else None,
            f"{source.tokens:,} tokens, {same[0].nbytes / 1e6:,.0f} MB of JSON",
            better="more",
        )
        for name, same in bodies.items()
    ]


def over_one_client(target: Served, scale: Scale, progress: Progress) -> Row:
    """Small batches per second of many clients over one, whose every batch is a transaction of its own."""
    source = Synthetic(SMALL_TOKENS)
    with connected(target, connections=1) as one, connected(target, connections=CLIENTS) as many:
        posts = scale.small_posts
        candidates = {"one": rate(source, posts, one), "many": rate(source, posts, many)}
        rates = by_turns(candidates, TURNS * scale.rounds, progress, max)
    per_batch = {name: figure / SMALL_TOKENS for name, figure in rates.items()}
    what = f"{SMALL_TOKENS}-token batches, {CLIENTS} clients over one"
    return Row(what, per_batch["many"], "batches/s", per_batch["many"] / per_batch["one"], better="more")


def rate(source: Synthetic, posts: int, load: Load) -> Callable[[], float]:
    """Tokens per second of so many posts; laying the bodies out is not counted."""

    def tokens_per_second() -> float:
        bodies = [source.body(next(STEPS), minibatches=1) for _ in range(posts)]
        return posts * source.tokens / load.seconds(bodies)

    return tokens_per_second


def again(source: Synthetic, bodies: Sequence[Body], load: Load) -> Callable[[], float]:
    """Tokens per second of the same posts in every round."""
    return lambda: len(bodies) * source.tokens / load.seconds(bodies)


@contextmanager
def connected(to: Served, path: str = AS_MONITOR, connections: int = IN_FLIGHT) -> Iterator[Load]:
    load = Load(to.url, path, connections)
    try:
        yield load
    finally:
        load.close()


def json_body(source: Synthetic, padded: bool) -> Body:
    """Lists of a sequence each, with or without the padding."""
    arrays = {**source.columns, "mask": source.mask.astype(np.float32)}

    def rows(name: str) -> Sequence[list[float]]:
        if padded:
            return [row.tolist() for row in source.padded(arrays[name])]
        return [row.tolist() for row in np.split(arrays[name], np.cumsum(source.lengths)[:-1])]

    lists = {name: rows(name) for name in (*LOGPROBS, "mask")}
    text = orjson.dumps({"step": 0, "advantages": source.advantages.tolist(), **lists})
    return Body([text], "application/json")
