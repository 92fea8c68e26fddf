"""A body whose one array is `summary` is decoded to a reduced shard, whose digest is of what it says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.summary import from_bytes
from offpolicy_monitor.wire.decode import decode_batch, decode_evaluation
from offpolicy_monitor.wire.digest import reduced_digest
from offpolicy_monitor.wire.message import Reduced

from tests.fixtures.forged import again
from tests.fixtures.reduced import arrays_of, envelope_of, summary_body
from tests.wire.bodies import LIMITS, SAFETENSORS, frame_body, json_body

ENVELOPE = envelope_of(0, 1)
BODY = summary_body(ENVELOPE, arrays_of(0))


def decoded(body: bytes) -> Reduced:
    message = decode_batch(body, SAFETENSORS, LIMITS)
    assert isinstance(message, Reduced)
    return message


def stored() -> bytes:
    return BODY[8 + int.from_bytes(BODY[:8], "little") :]


def test_a_summary_is_decoded_to_a_reduced_shard() -> None:
    message = decoded(BODY)
    assert message.envelope.step == 7 and not message.is_first_half
    assert message.summary == from_bytes(stored())


#: What the wheels of older releases post of this shard.
OLDER = ("reduced_f832f41.bin", "reduced_v2.bin")


@pytest.mark.parametrize("name", OLDER)
def test_what_older_clients_reduce_is_taken_and_says_the_same(name: str) -> None:
    older = np.frombuffer(Path(__file__).with_name(name).read_bytes(), np.uint8)
    assert older[0] == 2
    found, wanted = (decoded(body).summary for body in (frame_body(ENVELOPE, summary=older), BODY))
    assert found.specs == wanted.specs
    wanted = replace(wanted, arrays=wanted.arrays.lacking(found.arrays.absent))
    assert found.batch == wanted.batch
    assert found.arrays.scheme.spans.keys() == wanted.arrays.scheme.spans.keys()
    for row in wanted.arrays.scheme.spans.keys() - found.arrays.absent:
        # What lies on an edge of a bin may fall to either side of it.
        assert found.arrays[row].sum() == pytest.approx(wanted.arrays[row].sum(), rel=1e-5, abs=1e-5), row
    assert np.array_equal(found.worst.sequences.whole, wanted.worst.sequences.whole)


def test_the_digest_is_of_what_a_summary_says_not_of_how_it_was_compressed() -> None:
    other = again(stored(), level=9)
    same = decoded(frame_body(ENVELOPE, summary=np.frombuffer(other, np.uint8)))
    assert other != stored()
    assert reduced_digest(same) == reduced_digest(decoded(BODY))


@pytest.mark.parametrize(("change", "same"), [({"step": 8}, True), ({"minibatches": 2}, False), ({"shards": 2}, False)])
def test_the_digest_tells_other_envelopes_apart_but_for_the_key(change: dict[str, object], same: bool) -> None:
    other = decoded(frame_body({**ENVELOPE, **change}, summary=np.frombuffer(stored(), np.uint8)))
    assert (reduced_digest(other) == reduced_digest(decoded(BODY))) is same


def test_json_has_no_summary_and_nothing_evaluates_one() -> None:
    for body, media_type in ((json_body(step=1, summary=[1, 2]), "application/json"),):
        with pytest.raises(Refusal, match="summary: unknown field"):
            decode_batch(body, media_type, LIMITS)
    with pytest.raises(Refusal, match="no tokens to evaluate"):
        decode_evaluation(BODY, SAFETENSORS, LIMITS)
