"""docs/metrics.md, written from the families: `python -m offpolicy_monitor.exposition.document > docs/metrics.md`."""

import sys
from collections.abc import Iterator, Sequence

from offpolicy_monitor.families import PROCESS, RUN_COUNTERS, RUN_GAUGES, RUN_HISTOGRAMS, RUN_INFO, Family

HEAD = """\
# Metrics

What `GET /metrics` shows, as Prometheus text or as OpenMetrics by the `Accept` header. This page is written by
`python -m offpolicy_monitor.exposition.document` from the table in `families.py`.

A figure that a step does not have (a gap whose log-probs were not sent, a step without valid tokens) gives no sample.
"""

SECTIONS: tuple[tuple[str, str, Sequence[Family]], ...] = (
    (
        "Gauges of a run",
        "Of its last complete step, or of one that lacks shards once its timeout has passed; `offpolicy_step` says "
        "which. They are read from the database, so a restart shows the same. Quantiles are gauges too, but of type "
        "unknown: other types may not have both the label `quantile` and negative values.",
        (*RUN_GAUGES, RUN_INFO),
    ),
    (
        "Histograms of a run",
        "Of each stored shard since the process started. Bounds are exact and hold the default thresholds of the "
        "methods as logs. Signed values have no sum; a share beyond a bound is a ratio of two rates.",
        RUN_HISTOGRAMS,
    ),
    (
        "Counters of a run",
        "Each stored shard counts once; a duplicate raises `offpolicy_duplicate_batches_total` alone. They start at 0 "
        "with the process.",
        RUN_COUNTERS,
    ),
    ("The service itself", "Of this process.", PROCESS),
)


def render_markdown() -> str:
    """The page."""
    return "\n".join([HEAD, *(line for section in SECTIONS for line in _section(*section))])


def _section(title: str, text: str, families: Sequence[Family]) -> Iterator[str]:
    yield f"## {title}\n\n{text}\n"
    yield "| family | type | labels | meaning |\n|---|---|---|---|"
    for family in families:
        labels = ", ".join(family.labels) or "-"
        yield f"| `{family.full_name}` | {family.type} | {labels} | {family.help} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(render_markdown())
