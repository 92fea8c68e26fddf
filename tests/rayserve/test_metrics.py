"""/metrics of several replicas: what each has counted, in every format, and the runs whoever answers."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pytest
from offpolicy_monitor.exposition.formats import DELIMITED, OPENMETRICS, TEXT, Format
from offpolicy_monitor.families import RUN_HISTOGRAMS
from offpolicy_monitor.rayserve.metrics import SELF, Part
from offpolicy_monitor.rayserve.metrics import application as exporter_of
from offpolicy_monitor.settings import Settings
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from tests.exposition.messages import Buckets, families
from tests.fixtures.application import JSON, Application, Client, json_bytes, running

BATCHES = "offpolicy_batches_total"
MISSED = "offpolicy_missed_replicas_total"


class Deployment:
    """Two replicas on one database, and the exporter; some may not answer it."""

    def __init__(self, replicas: dict[str, Client], url: str) -> None:
        self.replicas, self.silent = replicas, set[str]()
        self.app = exporter_of(Settings(database_url=url), self.ask)
        self.exporter: Client

    def ask(self, content_type: str) -> Iterable[Part]:
        if not self.replicas:
            raise RuntimeError("no replicas\nare there")
        for name, client in self.replicas.items():
            answer = client.get("/metrics", headers={"Accept": content_type}).content
            yield TimeoutError() if name in self.silent else (name, answer)

    def scrape(self, format: Format) -> bytes:
        answer = self.exporter.get("/metrics", headers={"Accept": format.content_type})
        assert (answer.status_code, answer.headers["content-type"]) == (200, format.content_type), answer.text
        return answer.content

    def samples(self, name: str, format: Format = TEXT) -> dict[str, float]:
        """By replica, "" for samples that are of none."""
        if format is DELIMITED:
            found = families(self.scrape(format))[name].samples
            pairs = [(dict(labels), value) for labels, value in found.items()]
        else:
            parse = prometheus if format is TEXT else openmetrics
            read = [s for family in parse(self.scrape(format).decode()) for s in family.samples if s.name == name]
            pairs = [(sample.labels, sample.value) for sample in read]
        values = {labels.get("replica", ""): value for labels, value in pairs}
        assert len(values) == len(pairs) > 0
        return values  # pyrefly: ignore[bad-return]


@pytest.fixture
def deployment(application: Application, postgres_url: str) -> Iterator[Deployment]:
    """Of whose replicas one has stored a shard, and the other two."""
    with ExitStack() as stack:
        one, two = (stack.enter_context(application(database_url=postgres_url)) for _ in range(2))
        for step, client in enumerate((one, two, two)):
            assert client.post("/v1/runs/r/batches", content=json_bytes(step=step), headers=JSON).status_code == 200
        found = Deployment({"one": one, "two": two}, postgres_url)
        found.exporter = stack.enter_context(running(found.app))
        yield found


@pytest.mark.parametrize("format", [TEXT, OPENMETRICS, DELIMITED])
def test_counts_are_each_replicas_own_and_runs_are_shown_once_in_every_format(
    deployment: Deployment, format: Format
) -> None:
    assert deployment.samples(BATCHES, format) == {"one": 1.0, "two": 2.0}
    assert deployment.samples("offpolicy_step", format) == {"": 2.0}
    leading = deployment.samples("offpolicy_leader", format)
    assert leading.keys() == {"one", "two", SELF} and sum(leading.values()) == 1.0


def test_native_histograms_are_those_of_the_replicas(deployment: Deployment) -> None:
    found = families(deployment.scrape(DELIMITED))
    own = {name: families(client.get("/metrics", headers={"Accept": DELIMITED.content_type}).content)
           for name, client in deployment.replicas.items()}  # fmt: skip
    compared = 0
    for family in RUN_HISTOGRAMS:
        for name, of_one in own.items():
            for labels, buckets in of_one[family.full_name].samples.items():
                assert isinstance(buckets, Buckets) and buckets.schema is not None and buckets.count > 0
                shown = found[family.full_name].samples[tuple(sorted([*labels, ("replica", name)]))]
                assert shown == buckets
                compared += 1
    assert compared == 2 * 3 * len(RUN_HISTOGRAMS)  # two replicas, three gaps


def test_who_does_not_answer_is_counted_and_takes_nothing_of_the_others_along(deployment: Deployment) -> None:
    assert deployment.samples(MISSED)[SELF] == 0.0
    deployment.silent = {"one"}
    assert deployment.samples(BATCHES) == {"two": 2.0}
    assert deployment.samples(MISSED)[SELF] == 2.0
    deployment.silent = set()
    assert deployment.samples(BATCHES) == {"one": 1.0, "two": 2.0}
    assert deployment.samples(MISSED)[SELF] == 2.0


def test_runs_are_shown_where_no_replica_can_be_asked(deployment: Deployment) -> None:
    deployment.replicas.clear()
    assert deployment.samples("offpolicy_step") == {"": 2.0}
    assert deployment.samples(MISSED) == {SELF: 2.0}
