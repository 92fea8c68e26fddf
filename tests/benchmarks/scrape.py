"""A scrape of two hundred runs: where all have moved, and where none has, over reading their figures from the store."""

import time
from pathlib import Path

from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.exposition.formats import TEXT
from offpolicy_monitor.exposition.runs import RunExposition
from offpolicy_monitor.measure import Measurer
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.server.judge import RulesJudge
from offpolicy_monitor.store import ShardKey, ShardRecord, Store
from offpolicy_monitor.store.migrate import upgrade
from offpolicy_monitor.summary import StepSummary

from tests.benchmarks.batches import Synthetic
from tests.benchmarks.rows import Row, at_most
from tests.benchmarks.scale import Scale
from tests.benchmarks.timing import Progress, Work, seconds_by_turns

RUNS = 200
NAMES = [f"run-{number:03}" for number in range(RUNS)]
TOKENS = 2048


def scrape_rows(scale: Scale, progress: Progress, folder: Path) -> list[Row]:
    """Milliseconds of one scrape in text, and its ratio over reading and unpacking the figures alone."""
    url = f"sqlite:///{folder / 'scrape.db'}"
    upgrade(url)
    summary = Measurer("cpu", threads=1).measure(Synthetic(TOKENS).batch(), PRESETS)
    store, counters = Store.open(url, judge=RulesJudge()), RunCounters(RUNS)
    store.ingest([record(name, summary) for name in NAMES])
    for name in NAMES:
        counters.stored(name, summary)
    runs = RunExposition(lambda: store.exported(RUNS, 0.0), counters)
    size = sum(map(len, runs.render(TEXT)))
    works: dict[str, Work] = {
        "moved": lambda: RunExposition(lambda: store.exported(RUNS, 0.0), counters).render(TEXT),
        "unchanged": lambda: runs.render(TEXT),
        "figures": lambda: [(row.figures, row.states) for row in store.exported(RUNS, 0.0)],
    }
    seconds = seconds_by_turns(works, scale.commit_rounds, progress)
    store.close()
    note = f"{size / 1e6:.1f} MB in text"
    moved, unchanged = seconds["moved"] / seconds["figures"], seconds["unchanged"] / seconds["figures"]
    return [
        Row(f"a scrape of {RUNS} runs that all moved", seconds["moved"] * 1e3, "ms", moved, at_most(6), note),
        Row(f"a scrape of {RUNS} runs, none of which moved", seconds["unchanged"] * 1e3, "ms", unchanged, at_most(1)),
    ]


def record(run: str, summary: StepSummary) -> ShardRecord:
    digest = run.encode().ljust(16, b"-")
    return ShardRecord(ShardKey(run, 0, 1, 0, 0), 1, digest, summary, time.time(), policy_version=1)
