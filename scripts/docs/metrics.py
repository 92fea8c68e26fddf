"""docs/metrics.md, written from the rows of families.py. Knows what a section says, and no figures."""

from collections.abc import Iterator, Sequence

from offpolicy_monitor.families import PROCESS, RUN_COUNTERS, RUN_GAUGES, RUN_HISTOGRAMS, RUN_INFO, Family

HEAD = """\
# Metrics

What `GET /metrics` shows, as Prometheus text, OpenMetrics or protobuf by the `Accept` header. This page is generated
from `service/offpolicy_monitor/families.py` by `make docs`.

A figure that a step does not have (a gap whose log-probs were not sent, a step without valid tokens) gives no sample.
A run that sends everything has some 320 series, more while rules are breached, and with the presets 400 at most.

A scrape is made once for all scrapers that wait for it, and never begins before a scraper asked.
"""


def _bounds(families: Sequence[Family]) -> str:
    """A list: family, bounds."""
    shown = {family.full_name: ", ".join(f"{bound:.4g}" for bound in family.bounds) for family in families}
    return "".join(f"* `{name}`: {bounds}\n" for name, bounds in shown.items())


SECTIONS: tuple[tuple[str, str, Sequence[Family]], ...] = (
    (
        "Gauges of a run",
        "Of its last complete step, or of one that lacks shards once its timeout has passed; `offpolicy_step` says "
        "which. They are read from the database, so a restart shows the same; of several services on one database the "
        "leader alone shows them (`offpolicy_leader`). Quantiles are gauges too, but of type "
        "unknown: other types may not have both the label `quantile` and negative values.\n\n"
        "Of a rule that is quiet there is `offpolicy_alert_breach_steps` alone, which is 0; `active` is there while it "
        "is pending or active, `value` and `threshold` also where the run has its own terms for it. Where more than "
        "some 24 severities are breached at once, value and threshold are shown of the worst: a run has at most 124 "
        "series of alerts, and its page shows all. "
        "`offpolicy_alert_active or 0 * offpolicy_alert_breach_steps` is 0 or 1 for every rule. "
        "`OFFPOLICY_ALERT_GAUGES=all` shows all of them always.",
        (*RUN_GAUGES, RUN_INFO),
    ),
    (
        "Histograms of a run",
        "Of each stored shard since the process started. Counts at the bounds are exact; a share beyond a bound is a "
        "ratio of two rates. Signed values have no sum. Buckets of the three families are at\n\n"
        + _bounds(RUN_HISTOGRAMS)
        + "\nthat is at default thresholds of methods (as logs) and at what the rules and dashboards ask for. "
        "`OFFPOLICY_HISTOGRAM_BUCKETS=full` adds 1, 2 and 5 of every decade, from 1e-4 to 5 on both sides for the "
        "first two and from 1e-6 to 10 for the third. Quantiles read off so few buckets would be wrong: the gauges "
        "above are exact.\n\n"
        "A scraper that asks for protobuf is sent native histograms too (Prometheus with "
        "`--enable-feature=native-histograms`, from 2.42 on): schema 3, buckets 9 % wide from 2**-24 to 2**8 on both "
        "sides, and the sum. `histogram_fraction(-0.1, 0.1, rate(offpolicy_token_log_ratio_nats[30m]))` is then the "
        "share that a mask at any threshold keeps, and `histogram_quantile` any quantile. A bucket's bound stands for "
        "the nearest edge of the service's own bins, at most 1/64 of it away; whole powers of two are exact. Such a "
        "Prometheus has no `_bucket` series unless it is told to keep classic histograms; rules and dashboards read "
        "either.",
        RUN_HISTOGRAMS,
    ),
    (
        "Counters of a run",
        "Each stored shard counts once; a duplicate raises `offpolicy_duplicate_batches_total` alone. They start at 0 "
        "with the process.",
        RUN_COUNTERS,
    ),
    (
        "The service itself",
        "Of this process; of several workers the sum, and of gauges what [workers.md](workers.md) says.",
        PROCESS,
    ),
)


def metrics_page() -> str:
    """The page."""
    return "\n".join([HEAD, *(line for section in SECTIONS for line in _section(*section))])


def _section(title: str, text: str, families: Sequence[Family]) -> Iterator[str]:
    yield f"## {title}\n\n{text}\n"
    yield "| family | type | labels | meaning |\n|---|---|---|---|"
    for family in families:
        labels = ", ".join(family.labels) or "-"
        yield f"| `{family.full_name}` | {family.type} | {labels} | {family.help} |"
    yield ""
