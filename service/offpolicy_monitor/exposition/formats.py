"""The formats of a scrape: Prometheus text, OpenMetrics, protobuf; which one is asked for, and how each is written.

A format turns the samples that one run has of a family into a block, and the blocks of all runs into the family. Blocks
are kept by who asks, so a run that did not change costs nothing. Native histograms exist in protobuf alone.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from offpolicy_monitor.exposition import lines, native, protobuf
from offpolicy_monitor.exposition.histograms import Counted
from offpolicy_monitor.exposition.rows import Labels
from offpolicy_monitor.families import Family

PROTOBUF: Final = "application/vnd.google.protobuf"
MESSAGE: Final = {"proto": "io.prometheus.client.metricfamily", "encoding": "delimited"}


class Collects(Protocol):
    """A registry of prometheus_client, or what stands for one."""

    def collect(self) -> Iterable[Metric]: ...


class Format(Hashable, Protocol):
    """One way to write a scrape. `end` comes after everything."""

    content_type: str
    end: bytes

    def samples(self, family: Family, run: str, values: Mapping[Labels, float]) -> bytes:
        """The samples of one run, by the values of the family's labels after the run's."""

    def histogram(self, family: Family, run: str, gap: str, bounds: tuple[float, ...], counted: Counted) -> bytes:
        """The buckets of one run and gap at these bounds of the family."""

    def family(self, family: Family, blocks: Iterable[bytes]) -> list[bytes]:
        """The family with the blocks of all its runs."""

    def process(self, registry: Collects) -> bytes:
        """What the process itself counts."""


class Text:
    """Prometheus text or OpenMetrics, as prometheus_client's encoder writes heads."""

    def __init__(self, accept: str) -> None:
        self._encode, self.content_type = choose_encoder(accept)
        self.end = lines.END if self.content_type.startswith("application/openmetrics") else b""

    def samples(self, family: Family, run: str, values: Mapping[Labels, float]) -> bytes:
        around, run, line = _around(family.full_name, family.labels[1:]), lines.escaped(run), lines.line
        return "".join([line(around[of], run, value) for of, value in values.items()]).encode()

    def histogram(self, family: Family, run: str, gap: str, bounds: tuple[float, ...], counted: Counted) -> bytes:
        """No sum: signed values have none that a rate of classic buckets could be taken of."""
        around, run, line = _around(f"{family.full_name}_bucket", ("gap", "le")), lines.escaped(run), lines.line
        counts = zip((*map(repr, bounds), "+Inf"), counted.at(family, bounds), strict=True)
        return "".join([line(around[gap, edge], run, count) for edge, count in counts]).encode()

    def family(self, family: Family, blocks: Iterable[bytes]) -> list[bytes]:
        """In one piece: a scrape has as many pieces as families."""
        return [lines.head(_metric(family), self._encode) + b"".join(blocks)]

    def process(self, registry: Collects) -> bytes:
        return self._encode(registry).removesuffix(lines.END)


class Protobuf:
    """Messages of client_model, with native buckets beside the classic ones."""

    content_type = f"{PROTOBUF}; proto=io.prometheus.client.MetricFamily; encoding=delimited"
    end = b""

    def samples(self, family: Family, run: str, values: Mapping[Labels, float]) -> bytes:
        type, of_run = _type(family.type), protobuf.label("run", run)
        labels = family.labels[1:]
        return b"".join([protobuf.sample(type, of_run + _pairs(labels, of), value) for of, value in values.items()])

    def histogram(self, family: Family, run: str, gap: str, bounds: tuple[float, ...], counted: Counted) -> bytes:
        counts = counted.at(family, bounds)
        buckets = [protobuf.bucket(n, edge) for n, edge in zip(counts, (*bounds, math.inf), strict=True)]
        content = protobuf.histogram(counted.total, counted.sum, b"".join(buckets), _native(counted))
        labels = _pairs(("run", "gap"), (run, gap))
        return protobuf.sized(4, labels + protobuf.sized(protobuf.HISTOGRAM_FIELD, content))

    def family(self, family: Family, blocks: Iterable[bytes]) -> list[bytes]:
        return protobuf.family(family.full_name, family.help, _type(family.type), [b"".join(blocks)])

    def process(self, registry: Collects) -> bytes:
        return b"".join(_collected(registry.collect()))


@cache
def _around(name: str, labels: tuple[str, ...]) -> lines.Around:
    return lines.Around(name, labels)


def _metric(family: Family) -> Metric:
    if family.type == "counter":
        return CounterMetricFamily(family.full_name, family.help)
    return Metric(family.full_name, family.help, family.type)


def _type(name: str) -> protobuf.Type:
    return protobuf.Type.UNTYPED if name == "unknown" else protobuf.Type[name.upper()]


@lru_cache(lines.KEPT)
def _pairs(labels: tuple[str, ...], values: tuple[str, ...]) -> bytes:
    return b"".join(map(protobuf.label, labels, values))


def _native(counted: Counted) -> bytes:
    """A Histogram's fields from schema on. A zero threshold is there even where nothing was counted."""
    below, above = native.negative(counted.buckets), native.positive(counted.buckets)
    return (
        protobuf.signed(5, native.SCHEMA)
        + protobuf.double(6, native.ZERO_THRESHOLD)
        + protobuf.number(7, native.zeros(counted.buckets))
        + protobuf.spans(9, below.spans)
        + protobuf.packed(10, below.deltas)
        + protobuf.spans(12, above.spans)
        + protobuf.packed(13, above.deltas)
    )


def _collected(metrics: Iterable[Metric]) -> Iterator[bytes]:
    """prometheus_client's own metrics: counters, gauges and classic histograms."""
    for metric in metrics:
        type = _type(metric.type)
        name = metric.name + ("_total" if metric.type == "counter" else "")
        write = _classic if type is protobuf.Type.HISTOGRAM else _plain
        yield from protobuf.family(name, metric.documentation, type, list(write(metric, type)))


def _plain(metric: Metric, type: protobuf.Type) -> Iterator[bytes]:
    for sample in metric.samples:
        labels = _pairs(tuple(sample.labels), tuple(sample.labels.values()))
        yield protobuf.sample(type, labels, sample.value)


def _classic(metric: Metric, type: protobuf.Type) -> Iterator[bytes]:
    """Samples of one histogram follow each other: its buckets, its count, its sum."""
    buckets: list[bytes] = []
    count = 0
    for sample in metric.samples:
        if sample.name.endswith("_bucket"):
            count = int(sample.value)
            buckets.append(protobuf.bucket(count, float(sample.labels["le"])))
        elif sample.name.endswith("_sum"):
            content = protobuf.histogram(count, sample.value, b"".join(buckets))
            labels = _pairs(tuple(sample.labels), tuple(sample.labels.values()))
            yield protobuf.sized(4, labels + protobuf.sized(protobuf.HISTOGRAM_FIELD, content))
            buckets = []


TEXT: Final = Text("")
OPENMETRICS: Final = Text("application/openmetrics-text; version=1.0.0")
DELIMITED: Final = Protobuf()


def asked_for(accept: str) -> Format:
    """The format that an Accept header wants most; Prometheus text where it names none that there is."""
    offers = [(_quality(parameters), _offered(type, parameters)) for type, parameters in _accepted(accept)]
    best: Format = TEXT
    quality = 0.0
    for wanted, offer in offers:
        # Of equals the first: Prometheus lists them in its order of preference and gives the first ones no quality.
        if offer is not None and wanted > quality:
            best, quality = offer, wanted
    return best


def _offered(type: str, parameters: Mapping[str, str]) -> Format | None:
    if type == PROTOBUF:
        is_ours = all(parameters.get(name, value) == value for name, value in MESSAGE.items())
        return DELIMITED if is_ours and "proto" in parameters else None
    if type == "application/openmetrics-text":
        return OPENMETRICS if parameters.get("version", "1.0.0") == "1.0.0" else None
    return TEXT if type == "text/plain" else None


def _accepted(accept: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    for item in accept.lower().split(","):
        type, *parameters = map(str.strip, item.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        yield type, {name.strip(): value.strip().strip('"') for name, _, value in pairs}


def _quality(parameters: Mapping[str, str]) -> float:
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0
