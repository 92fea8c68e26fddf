"""What a step costs beside its measuring: its rules, the decimal places of its log-probs, the worst of its shards,
counting them for /metrics and compressing them.

Seconds of the thread's processor time, the least of many by turns.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
from offpolicy_monitor.alerts import RULES, History, Rule, Terms, evaluate, paths_of
from offpolicy_monitor.batch import Origin
from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.figures import at
from offpolicy_monitor.fused.inspection import inspect
from offpolicy_monitor.summary.step import StepSummary, merge_all
from offpolicy_monitor.summary.stored import to_bytes, version_3
from offpolicy_monitor.summary.tables import decimals
from offpolicy_monitor.summary.tables.worst import Worst, together
from zstandard import ZstdCompressor

from tests.benchmarks.batches import LOGPROBS, Synthetic
from tests.benchmarks.compute import measurer_of
from tests.benchmarks.rows import Row, at_least, at_most
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import Progress, Work, by_turns

STEPS: Final = 326
SHARDS: Final = 16
SHARD_TOKENS: Final = 2_000
TIMES: Final = 60
MICROSECONDS, MILLISECONDS = 1e6, 1e3
#: What three rules find in each step, and what the others of these find in none.
BREACHING: Final = {
    "gaps.mismatch.tail_fraction": 0.05,
    "gaps.mismatch.chi2": 0.3,
    "gaps.mismatch.probability_diff_mean": 0.03,
}
#: Rules of which each is told apart: one that breaches, and two that look far back.
ALONE: Final = ("RatioTail", "MismatchDrift", "CollapseRisk")


def judging_rows(scale: Scale, progress: Progress) -> list[Row]:
    """Rules, then decimal places, then shards: their worst sequences, and what is done when they are stored."""
    shards = shards_of(SHARDS)
    return [
        *rule_rows(progress), *decimal_rows(scale, progress), *worst_rows(shards, progress),
        *stored_rows(shards, progress),
    ]  # fmt: skip


def shards_of(number: int) -> list[StepSummary]:
    """Small shards of one step."""
    measurer = measurer_of(False)
    return [
        measurer.measure(Synthetic(SHARD_TOKENS, seed=shard).batch(), (), Origin(0, shard, {}))
        for shard in range(number)
    ]


def rule_rows(progress: Progress) -> list[Row]:
    """Judging the newest of some steps that have been judged before it, healthy or not."""
    healthy, breaching = history({}), history(BREACHING)
    candidates = {
        "healthy": judging(RULES, healthy),
        "breaching": judging(RULES, breaching),
        **{rule.name: judging([rule], breaching) for rule in RULES if rule.name in ALONE},
    }
    taken = {name: seconds * MICROSECONDS for name, seconds in by_turns(candidates, TIMES, progress, min).items()}
    before, unit = f"the {STEPS} steps before it", "us"
    return [
        Row(f"judging a step by {len(RULES)} rules and {before}", taken["healthy"], unit),
        Row(
            f"the same where {len(BREACHING)} rules have breached from the first step on, over healthy steps",
            taken["breaching"], unit, taken["breaching"] / taken["healthy"], at_most(5),
        ),
        *(Row(f"... of it {name}", taken[name], unit) for name in ALONE),
    ]  # fmt: skip


def history(breaching: Mapping[str, float]) -> History:
    """Steps of the figures of one batch, give or take a thousandth; of `breaching` the values that are given."""
    paths, noise = paths_of(RULES), np.random.default_rng(0)
    summary = measurer_of(False).measure(Synthetic(SHARD_TOKENS).batch(), (), Origin(0, 0, {}))
    figures = {**summary.step_figures(), "entropy_mean": 0.8, "reward_mean": 0.5}
    first = {path: value for path in paths if (value := at(figures, path)) is not None} | dict(breaching)
    rows = [
        {path: value * (1 + 1e-3 * noise.standard_normal()) for path, value in first.items()} | {"policy_version": step}
        for step in range(STEPS)
    ]
    found = History.of(list(enumerate(rows)), paths)
    states = evaluate(RULES, found, Terms())
    assert len({state.rule.name for state in states if state.state == "active"}) == len(breaching)
    return found


def judging(rules: Sequence[Rule], of: History) -> Callable[[], float]:
    """Seconds to evaluate rules at the newest step, of which nothing is noted yet."""
    terms = Terms()

    def seconds() -> float:
        for notes in of.noted.values():
            del notes[STEPS - 1 :]
        return on_the_thread(lambda: evaluate(rules, of, terms))()

    return seconds


def decimal_rows(scale: Scale, progress: Progress) -> list[Row]:
    """The compiled look at a column, decimal places included, over numpy's count of these alone."""
    rows = []
    for tokens in (scale.core_tokens, SHARD_TOKENS):
        values, nothing = Synthetic(tokens).columns[LOGPROBS[0]], np.zeros(0, np.float32)
        works: Mapping[str, Work] = {
            "compiled": partial(inspect, values, nothing, nothing, np.array([0, tokens]), True),
            "numpy": partial(decimals.multiples, values),
        }
        taken = least(works, progress)
        what = f"looking at {tokens:,} log-probs: times faster than numpy counts their decimal places alone"
        ratio = taken["numpy"] / taken["compiled"]
        rows.append(Row(what, taken["compiled"] * MILLISECONDS, "ms", ratio, at_least(1.2)))
    return rows


def stored_rows(shards: Sequence[StepSummary], progress: Progress) -> list[Row]:
    """Counting shards for /metrics together over one by one, and compressing one at the level in use over level 1."""
    for shard in shards:
        assert shard.batch  # read for the store before they are counted

    def counted(one_by_one: bool) -> None:
        counters = RunCounters(1)
        for shard in shards:
            counters.stored("r", shard)
            if one_by_one:
                counters.runs()
        counters.runs()

    content = version_3.content(to_bytes(shards[0])[1:])
    levels = {level: ZstdCompressor(level=level) for level in (version_3.LEVEL, 1)}
    works: Mapping[str, Work] = {
        "together": partial(counted, False),
        "one by one": partial(counted, True),
        "in use": lambda: levels[version_3.LEVEL].compress(content),
        "level 1": lambda: levels[1].compress(content),
    }
    taken = least(works, progress)
    each = taken["together"] / len(shards) * MICROSECONDS
    sizes = [len(levels[level].compress(content)) for level in (version_3.LEVEL, 1)]
    return [
        Row(
            f"counting one of {len(shards)} stored shards for /metrics: times faster than one by one", each, "us",
            taken["one by one"] / taken["together"], at_least(1.1),
        ),
        Row(
            "compressing a stored shard: times faster than at zstd's level 1", taken["in use"] * MICROSECONDS, "us",
            taken["level 1"] / taken["in use"], at_least(1.1), f"{sizes[0]:,} bytes for {sizes[1]:,}",
        ),
    ]  # fmt: skip


def worst_rows(shards: Sequence[StepSummary], progress: Progress) -> list[Row]:
    """The worst sequences of a step's shards found among all of them, over putting all of them into one."""
    sources = merge_all(shards).worst.sources
    parts = [read() for read in sources]
    works: Mapping[str, Work] = {"merged": lambda: Worst(sources).sequences, "together": lambda: together(parts)}
    taken = least(works, progress)
    what = f"the worst sequences of {SHARDS} shards merged: times what putting their columns together takes"
    return [Row(what, taken["merged"] * MILLISECONDS, "ms", taken["merged"] / taken["together"], at_most(8))]


def least(works: Mapping[str, Work], progress: Progress) -> dict[str, float]:
    """The least seconds of each work."""
    return by_turns({name: on_the_thread(work) for name, work in works.items()}, TIMES, progress, min)


def on_the_thread(work: Work) -> Callable[[], float]:
    """What does the work and answers the seconds of a processor that it took."""

    def seconds() -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    return seconds
