import json
import struct
import time
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from offpolicy_monitor.errors import FrameError
from offpolicy_monitor.wire import frame

LIMIT = 1 << 20


def decode(body: bytes) -> frame.Frame:
    return frame.decode(memoryview(body), LIMIT, 32)


def join(parts: list[bytes | memoryview]) -> bytes:
    return b"".join(bytes(part) for part in parts)


def raw(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(shape: object = (2,), offsets: object = (0, 8), dtype: object = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_a_frame_holds_the_bytes_of_the_format() -> None:
    body = join(frame.encode({"step": 1}, {"a": np.array([1.0, -2.0], np.float32)}))
    (length,) = struct.unpack("<Q", body[:8])
    assert length % 8 == 0
    assert json.loads(body[8 : 8 + length]) == {
        "__metadata__": {"batch": '{"step": 1}'},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    }
    assert body[8 + length :] == struct.pack("<ff", 1.0, -2.0)


def test_what_is_encoded_is_decoded() -> None:
    arrays: dict[str, np.ndarray] = {
        "mask": np.array([1, 0, 1], np.uint8),
        "logprobs": np.array([-1.5, -0.25, -3.0], np.float32),
        "lengths": np.array([2, 1], np.int64),
        "flag": np.array([True, False]),
        "grid": np.arange(6, dtype=np.uint16).reshape(1, 3, 2),
        "none": np.zeros((0, 4), np.float64),
    }
    decoded = decode(join(frame.encode({"step": 3, "labels": {"gpu": "ä"}}, arrays)))
    assert decoded.envelope == {"step": 3, "labels": {"gpu": "ä"}}
    assert decoded.tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(decoded.tensors[name].array, array)
        assert decoded.tensors[name].array.dtype == array.dtype


def test_tensors_start_at_multiples_of_their_item_size() -> None:
    arrays: dict[str, np.ndarray] = {"a": np.ones(3, np.uint8), "b": np.ones(3, np.float32), "c": np.ones(1, np.int64)}
    for tensor in decode(join(frame.encode({}, arrays))).tensors.values():
        assert tensor.array.ctypes.data % tensor.array.itemsize == 0


def test_contiguous_arrays_are_sent_without_a_copy() -> None:
    array = np.ones(1000, np.float32)
    (_, buffer) = frame.encode({}, {"a": array})
    assert np.shares_memory(np.frombuffer(buffer, np.uint8), array)


def test_strided_and_big_endian_arrays_are_written_as_their_values() -> None:
    arrays: dict[str, np.ndarray] = {"every_other": np.arange(6, dtype=np.float32)[::2], "big": np.array([1, 2], ">i4")}
    tensors = decode(join(frame.encode({}, arrays))).tensors
    assert tensors["every_other"].array.tolist() == [0.0, 2.0, 4.0]
    assert tensors["big"].array.tolist() == [1, 2]


def test_decoded_tensors_are_views_of_the_body() -> None:
    body = join(frame.encode({}, {"a": np.ones(1000, np.float32)}))
    assert np.shares_memory(decode(body).tensors["a"].array, np.frombuffer(body, np.uint8))


def test_an_unaligned_tensor_is_copied_to_an_aligned_one() -> None:
    data = b"\x07" + struct.pack("<f", 2.5)
    header = {"a": entry([1], [0, 1], "U8"), "b": entry([1], [1, 5])}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    tensor = decode(raw(text, data)).tensors["b"].array
    assert tensor.flags.aligned
    assert tensor.tolist() == [2.5]


def test_bfloat16_travels_as_bit_patterns() -> None:
    body = join(frame.encode({}, {"a": np.array([0x3F80, 0xC000], np.uint16)}, bfloat16=["a"]))
    tensor = decode(body).tensors["a"]
    assert (tensor.dtype, tensor.array.tolist()) == ("BF16", [0x3F80, 0xC000])


def test_bfloat16_of_anything_but_bit_patterns_is_an_error() -> None:
    with pytest.raises(FrameError, match="bit patterns"):
        frame.encode({}, {"a": np.ones(1, np.float32)}, bfloat16=["a"])


def test_a_dtype_that_the_format_lacks_is_an_error() -> None:
    with pytest.raises(FrameError, match="complex"):
        frame.encode({}, {"a": np.ones(1, np.complex64)})


def test_the_safetensors_package_reads_our_frames() -> None:
    arrays: dict[str, np.ndarray] = {
        "a": np.arange(5, dtype=np.float32),
        "b": np.ones((2, 3), np.int64),
        "c": np.ones(1, np.uint8),
    }
    loaded = safetensors.numpy.load(join(frame.encode({"step": 1}, arrays)))
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name], array)


@pytest.mark.parametrize("dtype", ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
def test_frames_of_the_safetensors_package_are_read(dtype: str) -> None:
    array = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype)
    body = safetensors.numpy.save(
        {"x": array, "y": np.ones(3, np.uint8)}, metadata={"batch": '{"step": 7}', "by": "me"}
    )
    decoded = decode(body)
    assert decoded.envelope == {"step": 7}
    np.testing.assert_array_equal(decoded.tensors["x"].array, array)
    assert decoded.tensors["x"].array.dtype == array.dtype


def test_a_frame_without_an_envelope_has_an_empty_one() -> None:
    assert decode(safetensors.numpy.save({"x": np.ones(1, np.float32)})).envelope == {}


BATCH = {"batch": "{}"}
MALFORMED = {
    "nothing": b"",
    "half a length": b"\x01\x00\x00",
    "a header beyond the body": struct.pack("<Q", 100) + b"{}",
    "an enormous header": struct.pack("<Q", 2**64 - 1) + b"{}",
    "no JSON": raw(b"{"),
    "no UTF-8": raw(b'{"\xff": 1}'),
    "UTF-16": raw('{"a": 1}'.encode("utf-16")),
    "no object": raw([]),
    "a bomb of lists": raw(b"[" * 500_000),
    "a bomb of digits": raw(b'{"a": ' + b"9" * 10_000 + b"}"),
    "NaN in the header": raw(b'{"a": NaN}'),
    "a repeated tensor": raw(b'{"a": {"dtype":"U8","shape":[0],"data_offsets":[0,0]}, "a": 1}'),
    "a repeated key inside": raw(b'{"a": {"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "metadata of numbers": raw({"__metadata__": {"batch": 1}}),
    "metadata that is a list": raw({"__metadata__": []}),
    "an envelope that is no JSON": raw({"__metadata__": {"batch": "step"}}),
    "an envelope that is a list": raw({"__metadata__": {"batch": "[]"}}),
    "an envelope with a repeated field": raw({"__metadata__": {"batch": '{"step": 1, "step": 2}'}}),
    "an envelope with Infinity": raw({"__metadata__": {"batch": '{"step": Infinity}'}}),
    "an entry that is a list": raw({"a": []}),
    "an entry without offsets": raw({"a": {"dtype": "U8", "shape": [0]}}),
    "an entry with more": raw({"a": {**entry([0], [0, 0]), "more": 1}}),
    "an unknown dtype": raw({"a": entry(dtype="F31")}, bytes(8)),
    "a dtype that is a list": raw({"a": entry(dtype=[])}, bytes(8)),
    "a shape that is a number": raw({"a": entry(shape=2)}, bytes(8)),
    "a negative extent": raw({"a": entry(shape=[-2])}, bytes(8)),
    "two negative extents": raw({"a": entry(shape=[-1, -2])}, bytes(8)),
    "a fractional extent": raw({"a": entry(shape=[2.0])}, bytes(8)),
    "a boolean extent": raw({"a": entry(shape=[True, 2])}, bytes(8)),
    "nine dimensions": raw({"a": entry(shape=[2] + [1] * 8)}, bytes(8)),
    "an extent that hides behind a zero": raw({"a": entry(shape=[0, 2**60], offsets=[0, 0])}),
    "extents that hide behind a zero": raw({"a": entry(shape=[0, 2**30, 2**30], offsets=[0, 0])}),
    "an extent of a thousand digits": raw({"a": entry(shape=[0, 10**1000], offsets=[0, 0])}),
    "a product that wraps to the size": raw({"a": entry(shape=[2**32, 2**32, 2], offsets=[0, 8])}, bytes(8)),
    "three offsets": raw({"a": entry(offsets=[0, 4, 8])}, bytes(8)),
    "one offset": raw({"a": entry(offsets=[0])}, bytes(8)),
    "a negative offset": raw({"a": entry(offsets=[-8, 0])}, bytes(8)),
    "offsets in reverse": raw({"a": entry(offsets=[8, 0])}, bytes(8)),
    "offsets that do not fit the shape": raw({"a": entry(offsets=[0, 4])}, bytes(8)),
    "offsets beyond the data": raw({"a": entry()}, bytes(4)),
    "data that no tensor claims": raw({"a": entry()}, bytes(9)),
    "a hole": raw({"a": entry(), "b": entry(offsets=[12, 20])}, bytes(20)),
    "a hole in front": raw({"a": entry(offsets=[4, 12])}, bytes(12)),
    "an overlap": raw({"a": entry(), "b": entry(offsets=[4, 12])}, bytes(12)),
    "the same bytes twice": raw({"a": entry(), "b": entry()}, bytes(8)),
    "an empty tensor beyond the data": raw({"a": entry([0], [8, 8])}),
    "an empty tensor inside another": raw({"a": entry(), "b": entry([0], [4, 4])}, bytes(8)),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_frame_is_a_frame_error(body: bytes) -> None:
    with pytest.raises(FrameError) as caught:
        decode(body)
    assert not isinstance(caught.value, frame.FrameLimitError)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize(
    ("behind", "data", "message"),
    [
        ({}, bytes(9), "9"),
        ({}, bytes(7), "7"),
        ({"b": entry()}, bytes(8), "overlaps"),
        ({"b": entry(dtype=[])}, bytes(8), "unknown dtype"),
        ({"__metadata__": BATCH}, bytes(8), "repeated"),
    ],
)
def test_a_body_is_held_against_its_own_header_whatever_came_before(
    behind: dict[str, object], data: bytes, message: str, separators: tuple[str, str]
) -> None:
    whole = header({"__metadata__": BATCH, "a": entry()}, separators)
    for step in range(3):
        before = header({"__metadata__": {"batch": json.dumps({"step": step})}, "a": entry()}, separators)
        assert decode(raw(before, bytes(8))).envelope == {"step": step}
    with pytest.raises(FrameError, match=message):
        decode(raw(whole[:-1] + (b"," + header(behind, separators)[1:] if behind else b"}"), data))


def header(content: object, separators: tuple[str, str]) -> bytes:
    return json.dumps(content, separators=separators).encode()


def test_the_text_of_a_client_is_bounded_and_escaped_in_errors() -> None:
    with pytest.raises(FrameError) as caught:
        decode(raw({"\ud800\n" + "x" * 5000: 1}))
    assert str(caught.value).encode() and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_header_over_the_limit_is_told_apart() -> None:
    with pytest.raises(frame.FrameLimitError) as caught:
        frame.decode(memoryview(raw(b"{}" + b" " * 100)), 50, 32)
    assert (caught.value.what, caught.value.got, caught.value.limit) == ("header", 102, 50)


def test_a_hundred_thousand_tensors_are_refused_at_once() -> None:
    body = raw({f"t{index}": entry([0], [0, 0]) for index in range(100_000)})
    started = time.process_time()
    with pytest.raises(frame.FrameLimitError, match="100000 is over the limit of 32"):
        frame.decode(memoryview(body), 1 << 26, 32)
    assert time.process_time() - started < 2.0


def test_decoding_allocates_no_more_than_the_header() -> None:
    body = memoryview(join(frame.encode({}, {"a": np.ones(1_000_000, np.float32)})))
    tracemalloc.start()
    frame.decode(body, LIMIT, 32)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


@given(st.binary(max_size=200))
def test_random_bytes_are_no_frame(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode(struct.pack("<Q", len(body) // 2) + body)


@given(st.data())
def test_a_mutated_frame_decodes_or_is_a_frame_error(data: st.DataObject) -> None:
    arrays: dict[str, np.ndarray] = {"a": np.arange(4, dtype=np.float32), "b": np.ones((2, 2), np.uint8)}
    body = bytearray(join(frame.encode({"step": 1}, arrays)))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)) | st.just(len(body)))
    try:
        decoded = decode(bytes(body[:cut]))
    except FrameError:
        return
    assert sum(tensor.array.nbytes for tensor in decoded.tensors.values()) <= len(body)


@pytest.mark.parametrize(
    "envelope",
    [
        {"rollout": "\ud800"}, {"\udfff": 1}, {"labels": {"k": "a\ud800b"}}, {"labels": {"\udc00": "v"}},
        {"methods": [{"method": "mask", "upper": 2, "name": "\ud800"}]}, {"methods": [[["\ude00\ud83d"]]]},
    ],
)  # fmt: skip
def test_half_a_surrogate_pair_anywhere_in_the_envelope_is_malformed(envelope: dict[str, object]) -> None:
    with pytest.raises(FrameError, match="surrogates not allowed"):
        decode(b"".join(map(bytes, frame.encode(envelope, {}))))


def test_a_whole_surrogate_pair_is_the_character_that_it_spells() -> None:
    body = b"".join(map(bytes, frame.encode({"rollout": "\U0001f600"}, {})))
    assert decode(body).envelope == {"rollout": "\U0001f600"}
