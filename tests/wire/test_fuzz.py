"""Whatever the bytes, decoding gives a message or a Refusal, never another error and never a warning."""

from typing import Any

import numpy as np
import orjson
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.wire.arrays import ARRAYS
from offpolicy_monitor.wire.decode import decode_batch, decode_evaluation
from offpolicy_monitor.wire.digest import content_digest
from offpolicy_monitor.wire.message import Message
from offpolicy_monitor.wire.schema import Envelope

from tests.wire.bodies import JSON, LIMITS, SAFETENSORS, frame_body, ints

STATUSES = {400, 413, 415, 422}
REFUSED = None


def outcome(body: bytes, media_type: str) -> Message | None:
    """The message, or None where the body is refused (or is the later half of a post)."""
    try:
        decoded = decode_batch(body, media_type, LIMITS)
        decode_evaluation(body, media_type, LIMITS)
    except Refusal as refused:
        assert refused.status in STATUSES
        assert refused.detail.encode()
        return REFUSED
    return decoded if isinstance(decoded, Message) else REFUSED


def check(message: Message | None) -> None:
    """What a batch promises holds, whatever it was decoded from."""
    if message is None:
        return
    batch = message.batch
    assert int(batch.lengths.sum()) >= batch.tokens
    assert all(np.isfinite(batch.columns[name]).all() for name in ("advantages",) if name in batch.columns)
    assert len(content_digest(message)) == 16


@given(body=st.binary(max_size=100), media_type=st.sampled_from([JSON, SAFETENSORS]))
def test_random_bytes_are_refused(body: bytes, media_type: str) -> None:
    assert outcome(body, media_type) is REFUSED


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
trees = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=2))
members = st.sampled_from([*ARRAYS, *Envelope.model_fields, "methods"]) | st.text()
near = st.lists(st.integers(0, 2), max_size=3)


@settings(max_examples=300)
@given(st.dictionaries(members, trees | near | st.lists(near, max_size=3) | st.integers(0, 3), max_size=8))
@example({"step": 1, "logprobs": [[1], []], "old_logprobs": [[1], []], "lengths": [1, 0]})
@example({"step": 1, "logprobs": [], "old_logprobs": [], "experts": [[], []]})
@example({"step": 1, "logprobs": [[], []], "old_logprobs": [[], []], "experts": [[], []]})
def test_any_json_object_is_a_message_or_refused(value: dict[str, Any]) -> None:
    check(outcome(orjson.dumps(value), JSON))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_mutated_json_body_is_a_message_or_refused(data: st.DataObject) -> None:
    body = bytearray(b'{"step":1,"lengths":[2,1],"old_logprobs":[-1,-2,null],"logprobs":[-1,-2,-3],"mask":[1,0,1]}')
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(32, 126))
    check(outcome(bytes(body), JSON))


def seed_frame() -> bytes:
    values = np.array([-1.0, -2.0, -3.0], np.float32)
    arrays: dict[str, np.ndarray] = {
        "old_logprobs": values,
        "logprobs": values,
        "mask": np.array([1, 0, 1], np.uint8),
        "advantages": values[:2],
    }
    return frame_body({"step": 1, "shards": 2}, lengths=ints(2, 1), turns=np.array([1, 2, 3], np.int16), **arrays)


SEED = seed_frame()


@settings(max_examples=500)
@given(st.data())
def test_a_mutated_frame_is_a_message_or_refused(data: st.DataObject) -> None:
    body = bytearray(SEED)
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    check(outcome(bytes(body), SAFETENSORS))


DTYPES = ("?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")
shapes = st.lists(st.integers(0, 3), max_size=5).map(tuple)


@st.composite
def tensors(draw: st.DrawFn) -> np.ndarray:
    shape, dtype = draw(shapes), np.dtype(draw(st.sampled_from(DTYPES)))
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype).reshape(shape)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(list(ARRAYS)), tensors(), max_size=6))
def test_any_tensors_are_a_message_or_refused(arrays: dict[str, np.ndarray]) -> None:
    check(outcome(frame_body({"step": 1}, **arrays), SAFETENSORS))


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from([n for n in ARRAYS if "logprobs" not in n]), tensors(), max_size=4), st.data())
def test_any_bits_in_well_shaped_tensors_are_a_message_or_refused(
    arrays: dict[str, np.ndarray], data: st.DataObject
) -> None:
    lengths = data.draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = np.dtype(data.draw(st.sampled_from(["f2", "f4", "f8"])))
    size = sum(lengths) * dtype.itemsize
    columns = {
        name: np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), dtype)
        for name in ("sampling_logprobs", "old_logprobs")
    }
    check(
        outcome(frame_body({"step": 1}, **{**arrays, **columns, "lengths": np.array(lengths, np.int64)}), SAFETENSORS)
    )
