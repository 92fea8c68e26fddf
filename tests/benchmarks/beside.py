"""What helpers gain: small shards per second with processes beside the service over those without, by turns."""

import statistics
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Literal

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.ingest import connected
from tests.benchmarks.load import Load
from tests.benchmarks.path import CLIENTS, LEAST_PER_SECOND, SMALL_TOKENS, per_second, posting
from tests.benchmarks.rows import Row
from tests.benchmarks.scale import Scale
from tests.benchmarks.servers import AS_MONITOR, Served, service
from tests.benchmarks.timing import Progress, all_by_turns
from tests.fixtures.workers import processes

#: Helpers of each service.
WITHOUT, WITH = 0, 2
START_SECONDS = 60.0
SIZES = (SMALL_TOKENS, 16_384)


def beside_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """Medians of turns: many connections, steps of 16 and of one; and a post of one connection, which has no helper."""
    if not scale.compiled:
        return [Row("shards per second with helpers over those without", None, "", note="not measured in a quick run")]
    with ExitStack() as stack:
        candidates, tokens_of = {}, {tokens: Synthetic(tokens) for tokens in SIZES}
        for helpers in (WITHOUT, WITH):
            own = folder / str(helpers)
            own.mkdir()
            target = stack.enter_context(service(own, True, OFFPOLICY_MEASURE_PROCESSES=str(helpers)))
            target.wait()
            one, many = (stack.enter_context(connected(target, AS_MONITOR, clients)) for clients in (1, CLIENTS))
            bring_about(target, helpers, tokens_of[SMALL_TOKENS], many)
            for tokens, source in tokens_of.items():
                for shards in LEAST_PER_SECOND:
                    work = partial(per_second, source, shards, scale.path_posts, many)
                    candidates[f"{tokens:,} tokens, steps of {shards}, {helpers}"] = work
                candidates[f"{tokens:,} tokens, one post, {helpers}"] = partial(posting, source, one)
        found = all_by_turns(candidates, max(scale.path_rounds // 3, 3), progress)
    medians = {name: statistics.median(values) for name, values in found.items()}
    return [_row(name.removesuffix(f", {WITH}"), medians) for name in medians if name.endswith(f", {WITH}")]


def bring_about(target: Served, helpers: int, source: Synthetic, many: Load) -> None:
    """Post until a service has all of its helpers: forks of the process that it has started."""
    deadline = time.monotonic() + START_SECONDS
    while sum(len(processes(own)) for own in processes(target.pid)) < helpers:
        assert time.monotonic() < deadline, "no helpers"
        per_second(source, 16, 160, many)


def _row(what: str, medians: dict[str, float]) -> Row:
    value, before = medians[f"{what}, {WITH}"], medians[f"{what}, {WITHOUT}"]
    is_post = what.endswith("post")
    scale, unit = (1e3, "ms") if is_post else (1.0, "shards/s")
    note = f"median of the turns; without helpers {before * scale:.3g} {unit}"
    better: Literal["more", "less"] = "less" if is_post else "more"
    return Row(f"{what}, with helpers over without", value * scale, unit, value / before, note=note, better=better)
