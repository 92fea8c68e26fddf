"""The protobuf exposition: every family of the text with the same values, native buckets beside the classic ones."""

import math

import pytest
from offpolicy_monitor.exposition import formats, protobuf
from offpolicy_monitor.families import RUN_HISTOGRAMS
from prometheus_client.parser import text_string_to_metric_families

from tests.exposition.loaded import loaded
from tests.exposition.messages import Buckets, families, fields, signed, varint
from tests.fixtures.application import JSON, Client, json_bytes

# As Prometheus 2.42 asks with --enable-feature=native-histograms.
ACCEPT = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
#: What changes from one scrape to the next, whatever was posted.
MOVING = (
    "offpolicy_request_seconds",
    "offpolicy_store_seconds",
    "offpolicy_database_free_bytes",
    "offpolicy_oldest_job_seconds",
)


def load(client: Client) -> None:
    for step in range(2):
        assert client.post("/v1/runs/full/batches", json=loaded(step, noise=0.4)).status_code == 200
    client.post("/v1/runs/half/batches", content=json_bytes(sampling_logprobs=None, advantages=None), headers=JSON)
    client.post("/v1/runs/half/batches", content=b"{", headers=JSON)


def test_protobuf_has_every_sample_of_the_text_with_the_same_value(client: Client) -> None:
    load(client)
    text, answer = client.get("/metrics").text, client.get("/metrics", headers={"Accept": ACCEPT})
    assert answer.headers["content-type"] == formats.DELIMITED.content_type
    found, shown = families(answer.content), 0
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        assert (found[name].help, found[name].type.replace("untyped", "unknown")) == (family.documentation, family.type)
        for sample in family.samples if name not in MOVING else ():
            labels = dict(sample.labels)
            bound = labels.pop("le", None)
            value = found[name].samples[tuple(sorted(labels.items()))]
            if isinstance(value, Buckets):
                of_sample = {"_bucket": value.classic.get(float(bound or 0)), "_sum": value.sum, "_count": value.count}
                assert of_sample["_" + sample.name.rpartition("_")[2]] == sample.value, sample
            else:
                assert value == sample.value, sample
            shown += 1
    assert shown > 400
    assert set(found) == {f.name + "_total" * (f.type == "counter") for f in text_string_to_metric_families(text)}


def test_native_buckets_hold_what_the_classic_ones_do(client: Client) -> None:
    load(client)
    found = families(client.get("/metrics", headers={"Accept": ACCEPT}).content)
    seen = 0
    for family in RUN_HISTOGRAMS:
        for buckets in found[family.full_name].samples.values():
            assert isinstance(buckets, Buckets)
            assert (buckets.schema, buckets.zero_threshold) == (3, 2.0**-24)
            native = buckets.zero_count + sum(buckets.negative.values()) + sum(buckets.positive.values())
            assert native == buckets.count == buckets.classic[math.inf]
            seen += buckets.count > 0
    assert seen == 12  # three families of four gaps in two runs


def test_sums_are_those_of_the_values(client: Client) -> None:
    client.post("/v1/runs/r/batches", content=json_bytes(), headers=JSON)
    found = families(client.get("/metrics", headers={"Accept": ACCEPT}).content)
    sums = {
        family.name: found[family.full_name].samples[("gap", "staleness"), ("run", "r")].sum  # pyrefly: ignore[missing-attribute]
        for family in RUN_HISTOGRAMS
    }
    assert sums == {
        "token_log_ratio_nats": 0.4375,
        "sequence_log_geometric_ratio_nats": pytest.approx(0.1875 / 3 + 0.25 / 2),
        "token_log_ratio_abs_nats": 0.5625,
    }


@pytest.mark.parametrize(
    ("accept", "format"),
    [
        ("", formats.TEXT),
        ("*/*", formats.TEXT),
        ("text/plain;version=0.0.4", formats.TEXT),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", formats.OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1;q=0.9,text/plain;q=0.5", formats.TEXT),
        (ACCEPT, formats.DELIMITED),
        (ACCEPT.replace("delimited", "compact-text"), formats.OPENMETRICS),
        (
            "text/plain;q=0.9,application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;q=0.1",
            formats.TEXT,
        ),
        ("application/vnd.google.protobuf", formats.TEXT),
        ("application/openmetrics-text;q=nonsense, text/html", formats.TEXT),
        (",;=;,q", formats.TEXT),
    ],
)
def test_the_format_is_the_one_that_the_scraper_wants_most(accept: str, format: formats.Format) -> None:
    assert formats.asked_for(accept) is format


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 1 << 32, (1 << 63) - 1])
def test_integers_are_read_back(number: int) -> None:
    assert varint(protobuf.varint(number), 0) == (number, len(protobuf.varint(number)))
    assert [signed(protobuf.zigzag(value)) for value in (number, -number)] == [number, -number]
    assert fields(protobuf.number(7, number)) == {7: [number]}
