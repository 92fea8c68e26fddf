"""A helper gives what the service itself would store of a shard, to the byte; what it cannot do it leaves to it."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.methods import PRESETS
from offpolicy_monitor.pipeline.decoder import limits_of
from offpolicy_monitor.pipeline.expansion import header
from offpolicy_monitor.pipeline.helpers.helper import Helper, may_take, rows_of
from offpolicy_monitor.pipeline.helpers.parcel import Asked, Parcel
from offpolicy_monitor.pipeline.record import digest_of, dtypes_of, origin_of, record_of, small
from offpolicy_monitor.pipeline.remembered import Rows
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.store import ShardRecord, headline_of, prepared
from offpolicy_monitor.wire.decode import decode_batch
from offpolicy_monitor.wire.frame import MEDIA_TYPE
from offpolicy_monitor.wire.message import Message

from tests.fixtures.application import frame_bytes, good_frame
from tests.fixtures.fused import fused_measurer, loaded_pass
from tests.fixtures.reduced import arrays_of, summary_body

LIMITS = limits_of(Settings())
DEFAULT = Rows(None, PRESETS)
OWN = Rows.of([row.definition for row in PRESETS[3:6]])
RECEIVED_AT = 1_000.5
#: What two records are compared by; of a summary its stored form, which is all of it.
COMPARED = [field.name for field in fields(ShardRecord) if field.name != "summary"]


@pytest.fixture(scope="module")
def helper() -> Helper:
    return Helper(loaded_pass(), LIMITS)


def asked(frame: bytes, rows: Rows = DEFAULT) -> Asked:
    return Asked.of("r1", memoryview(frame), rows, RECEIVED_AT)


def of_service(frame: bytes, rows: Rows) -> ShardRecord:
    """What a thread of the service makes of a raw shard."""
    message = decode_batch(memoryview(frame), MEDIA_TYPE, LIMITS)
    assert isinstance(message, Message)
    measurer = fused_measurer()
    measurer.keep_worst = LIMITS.keep_worst
    summary = measurer.measure(message.batch, rows.run, origin_of(message))
    of_shard = small(message.envelope), digest_of(message), dtypes_of(message)
    return prepared(record_of("r1", RECEIVED_AT, *of_shard, summary, rows))


def many_tokens(**envelope: Any) -> bytes:
    """A frame of 3,000 tokens with everything that the pass measures."""
    source, lengths = np.random.default_rng(5), np.full(30, 100)
    logprobs = {
        name: -source.exponential(1.0, 3_000).astype(np.float32)
        for name in ("sampling_logprobs", "old_logprobs", "logprobs")
    }
    versions = source.integers(3, 7, 30)
    arrays = {"lengths": lengths, "advantages": source.normal(size=30).astype(np.float32), "policy_versions": versions}
    return frame_bytes({"step": 9, **envelope}, {**logprobs, **arrays})


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("rows", [DEFAULT, OWN], ids=["default rows", "own rows"])
def test_a_raw_shard_is_stored_as_the_service_stores_it(helper: Helper, rows: Rows, shards: int) -> None:
    envelope = {"policy_version": 6, "labels": {"task": "math"}, "sequence_ids": [f"s{n}" for n in range(30)]}
    frame = many_tokens(shards=shards, **envelope)
    sent = asked(frame, rows)
    parcel = helper.answer(sent)
    assert parcel is not None
    found, expected = parcel.record(sent, rows), of_service(frame, rows)
    for name in COMPARED:
        assert getattr(found, name) == getattr(expected, name), name
    assert found.summary == expected.summary
    assert headline_of(found) == headline_of(expected)
    assert parcel.envelope.sequence_ids is None
    assert all(seconds > 0 for seconds in parcel.seconds)


def test_headline_figures_are_not_made_again(helper: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = asked(good_frame())
    parcel = helper.answer(sent)
    assert parcel is not None
    record = parcel.record(sent, DEFAULT)
    monkeypatch.setattr("offpolicy_monitor.store.rows.narrow.headline", None)
    assert headline_of(record) == parcel.headline


def test_a_reduced_shard_is_checked_and_prepared(helper: Helper) -> None:
    body = summary_body({"step": 3}, arrays_of(1))
    sent = asked(body)
    parcel = helper.answer(sent)
    assert parcel is not None
    record = parcel.record(sent, DEFAULT)
    assert (record.key.step, record.dtypes) == (3, {})
    assert prepared(record).blob == record.blob


def left_to_the_service() -> dict[str, bytes]:
    tokens = {"lengths": [2], "sampling_logprobs": np.array([-1, -2], np.float32)}
    pair = {**tokens, "logprobs": np.array([-1.5, -2.5], np.float32)}
    whole = {**pair, "old_logprobs": np.array([-1, -2], np.float32)}
    return {
        "first half": frame_bytes({"step": 1, "rollout": "p"}, tokens),
        "later half": frame_bytes({"step": 1, "rollout": "p"}, {"logprobs": pair["logprobs"]}),
        "not a frame": b"\xff" * 200,
        "refused": good_frame(shards=0),
        "tables that torch makes": frame_bytes(
            {"step": 1}, {**whole, "old_logprobs_repeat": np.array([-1, -2], np.float32)}
        ),
        "float64": frame_bytes({"step": 1}, {**pair, "logprobs": np.array([-1.5, -2.5])}),
    }


def test_most_of_that_is_told_by_its_header() -> None:
    told = {name for name, frame in left_to_the_service().items() if not may_take(bytes(header(memoryview(frame))))}
    assert told == {"first half", "later half", "tables that torch makes", "float64"}
    assert may_take(bytes(header(memoryview(many_tokens()))))


@pytest.mark.parametrize("name", left_to_the_service())
def test_what_a_helper_is_not_for_it_leaves_to_the_service(helper: Helper, name: str) -> None:
    assert helper.answer(asked(left_to_the_service()[name])) is None


def test_a_shard_that_the_store_is_to_be_asked_about_has_a_claim(helper: Helper) -> None:
    sent = asked(good_frame())
    parcel = helper.answer(sent)
    assert isinstance(parcel, Parcel)
    claim, expected = parcel.claim(sent), of_service(good_frame(), DEFAULT)
    assert (claim.key, claim.digest) == (expected.key, expected.digest)
    assert not claim.summary.arrays.scheme.keys


def test_rows_are_the_same_objects_for_the_same_rows() -> None:
    frames = (
        asked(good_frame(step=1), OWN),
        asked(good_frame(step=2), Rows.of([row.definition for row in PRESETS[3:6]])),
    )
    assert rows_of(frames[0].rows) is rows_of(frames[1].rows)
