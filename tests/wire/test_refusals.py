"""Bodies that must be refused, as a table: the body, the status, the field at fault."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.wire.decode import decode_batch

from tests.wire.bodies import JSON, LIMITS, SAFETENSORS, f32, frame_body, ints, json_body

GOOD: dict[str, Any] = {"step": 1, "lengths": [2, 1], "old_logprobs": [-1, -2, -3], "logprobs": [-1, -2, -3]}
ROWS: dict[str, Any] = {"step": 1, "old_logprobs": [[-1, -2], [-3]], "logprobs": [[-1, -2], [-3]]}
PADDED: dict[str, Any] = {"step": 1, "old_logprobs": [[-1, -2], [-3, 0]], "logprobs": [[-1, -2], [-3, 0]]}
ABSENT = object()


def refusal(body: bytes, media_type: str, **limits: int) -> Refusal:
    with pytest.raises(Refusal) as caught:
        decode_batch(body, media_type, replace(LIMITS, **limits))
    return caught.value


def changed(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**base, **changes}.items() if value is not ABSENT}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"nonsense", b'{"step": 1,}', b"\xff\xfe", b'{"step": NaN}', b'{"logprobs": [Infinity]}',
        b'{"logprobs": [1e999]}', b'{"rollout": "\\ud800"}', b'{"step": 1} {}',
    ],
)  # fmt: skip
def test_json_that_cannot_be_parsed_is_400(body: bytes) -> None:
    assert refusal(body, JSON).status == 400


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b'"text"', b"true"])
def test_json_that_is_no_object_is_422(body: bytes) -> None:
    assert refusal(body, JSON).status == 422


JSON_422 = [
    # the combination of arrays
    (changed(GOOD, logprobs=ABSENT), "sampling_logprobs"),
    (changed(GOOD, logprobs=ABSENT, old_logprobs=ABSENT), "logprobs"),
    ({"step": 1, "lengths": [3], "logprobs": [1, 2, 3]}, "old_logprobs"),
    ({"step": 1}, "logprobs"),
    (changed(GOOD, log_probs=[1]), "log_probs"),
    (changed(GOOD, methods=[]), "methods"),
    # lists and their entries
    (changed(GOOD, logprobs=1.0), "logprobs"),
    (changed(GOOD, logprobs="abc"), "logprobs"),
    (changed(GOOD, logprobs=None), "logprobs"),
    (changed(GOOD, logprobs={"0": 1}), "logprobs"),
    (changed(GOOD, logprobs=["-1", "-2", "-3"]), "logprobs"),
    (changed(GOOD, logprobs=[-1, True, -3]), "logprobs"),
    (changed(GOOD, logprobs=[-1, [-2], -3]), "logprobs"),
    (changed(GOOD, logprobs=[-1, {}, -3]), "logprobs"),
    (changed(GOOD, logprobs=[[[-1]], [[-2]]]), "logprobs"),
    (changed(GOOD, advantages=None), "advantages"),
    (changed(GOOD, advantages=[None, 1]), "advantages"),
    (changed(GOOD, advantages=["1", 1]), "advantages"),
    (changed(GOOD, advantages=[True, False]), "advantages"),
    (changed(GOOD, advantages=[1, None, 1]), "advantages"),
    (changed(GOOD, rewards=["1", 1]), "rewards"),
    (changed(GOOD, group_ids=[None, 1]), "group_ids"),
    (changed(GOOD, group_ids=[1.0, 2]), "group_ids"),
    (changed(GOOD, group_ids=[2**63, 2]), "group_ids"),
    (changed(GOOD, turns=[0, 1, True]), "turns"),
    (changed(GOOD, policy_versions=[0.5, 1]), "policy_versions"),
    (changed(GOOD, policy_versions=[-2, 1]), "policy_versions"),
    (changed(GOOD, policy_versions=[0, 1, -2]), "policy_versions"),
    # lengths
    (changed(GOOD, lengths=ABSENT), "lengths"),
    (changed(GOOD, lengths=[2, 2]), "lengths"),
    (changed(GOOD, lengths=[4, -1]), "lengths"),
    (changed(GOOD, lengths=[3.0]), "lengths"),
    (changed(GOOD, lengths=[None, 3]), "lengths"),
    (changed(GOOD, lengths=[[2], [1]]), "lengths"),
    (changed(GOOD, lengths=[]), "lengths"),
    (changed(GOOD, lengths=3), "lengths"),
    (changed(ROWS, lengths=[2, 2]), "lengths"),
    (changed(ROWS, lengths=[1, 2]), "lengths"),
    (changed(ROWS, lengths=[1, 1]), "lengths"),
    (changed(ROWS, lengths=[2]), "lengths"),
    (changed(PADDED, lengths=[3, 1]), "lengths"),
    (changed(PADDED, lengths=[2, 1, 0]), "lengths"),
    # mask
    (changed(GOOD, mask=[1, 1, 2]), "mask"),
    (changed(GOOD, mask=[1, 1, 0.5]), "mask"),
    (changed(GOOD, mask=[1, 1, -1]), "mask"),
    (changed(GOOD, mask=[1, 1, None]), "mask"),
    (changed(GOOD, mask=["1", "1", "1"]), "mask"),
    (changed(GOOD, mask=[1, 1]), "mask"),
    (changed(GOOD, mask=[[1, 1], [1]]), "mask"),
    (changed(PADDED, mask=[1, 1, 1, 0]), "mask"),
    (changed(PADDED, mask=[[1, 1], [1]]), "mask"),
    # sizes and forms that disagree
    (changed(GOOD, logprobs=[-1, -2]), "logprobs"),
    (changed(GOOD, logprobs=[[-1, -2], [-3]]), "logprobs"),
    (changed(ROWS, logprobs=[-1, -2, -3]), "logprobs"),
    (changed(ROWS, logprobs=[[-1], [-2, -3]]), "logprobs"),
    (changed(ROWS, logprobs=[[-1, -2], [-3], []]), "logprobs"),
    (changed(GOOD, entropy=[1, 2]), "entropy"),
    (changed(GOOD, turns=[1]), "turns"),
    (changed(GOOD, advantages=[1]), "advantages"),
    (changed(GOOD, advantages=[1, 2, 3, 4]), "advantages"),
    (changed(ROWS, advantages=[1, 2, 3]), "advantages"),
    (changed(ROWS, advantages=[[1], [2]]), "advantages"),
    (changed(GOOD, rewards=[1, 2, 3]), "rewards"),
    (changed(ROWS, rewards=[[1, 2], [3]]), "rewards"),
    (changed(GOOD, group_ids=[1]), "group_ids"),
    (changed(GOOD, sequence_ids=["a"]), "sequence_ids"),
    (changed(GOOD, sequence_ids=["a", "b", "c"]), "sequence_ids"),
    # advantages under the mask
    (changed(GOOD, advantages=[1e300, 1]), "advantages"),
    (changed(GOOD, advantages=[1, 1e39, 1]), "advantages"),
    (changed(GOOD, advantages=[1, 1, 1e39], mask=[0, 1, 1]), "advantages"),
    (changed(GOOD, advantages=[1, 1e39], mask=[0, 1, 1]), "advantages"),
    # expert ids
    (changed(GOOD, experts=[1, 2, 3]), "experts"),
    (changed(GOOD, experts=[[1], [2], [3]]), "experts"),
    (changed(GOOD, experts=[[[1]], [[2]]]), "experts"),
    (changed(GOOD, experts=[[[1]], [[2]], [[3, 4]]]), "experts"),
    (changed(GOOD, experts=[[[1]], [[2]], [[3], [4]]]), "experts"),
    (changed(GOOD, experts=[[[1]], [[2]], [[65536]]]), "experts"),
    (changed(GOOD, experts=[[[1]], [[2]], [[-1]]]), "experts"),
    (changed(GOOD, experts=[[[1]], [[2]], [[0.5]]]), "experts"),
    (changed(GOOD, experts=[[[]], [[]], [[]]]), "experts"),
    (changed(GOOD, experts=[[[1] * 257]] * 3), "experts"),
    (changed(GOOD, experts=[[[1]]] * 3, old_experts=[[[1, 2]]] * 3), "experts"),
]


@pytest.mark.parametrize(("members", "field"), JSON_422, ids=lambda value: value if isinstance(value, str) else "")
def test_json_that_is_wrong_is_422_and_names_the_field(members: dict[str, Any], field: str) -> None:
    refused = refusal(json_body(**members), JSON)
    assert refused.status == 422
    assert field in [error.field for error in refused.errors]
    assert len(refused.detail) < 500


TENSORS: dict[str, np.ndarray] = {"lengths": ints(2, 1), "old_logprobs": f32(1, 2, 3), "logprobs": f32(1, 2, 3)}
GRID = np.zeros((2, 2), np.float32)


def pair(array: np.ndarray) -> dict[str, Any]:
    return {"old_logprobs": array, "logprobs": array}


GRIDS: dict[str, Any] = {"lengths": ABSENT, **pair(GRID)}
FRAME_422: list[tuple[dict[str, Any], str]] = [
    ({"logprobs": ABSENT}, "logprobs"),
    ({"more": f32(1)}, "more"),
    ({"step": ints(1)}, "step"),
    ({"logprobs": ints(1, 2, 3)}, "logprobs"),
    ({"logprobs": np.zeros((3, 1, 1), np.float32)}, "logprobs"),
    ({"logprobs": np.float32(1).reshape(())}, "logprobs"),
    ({"logprobs": GRID}, "logprobs"),
    ({"lengths": f32(2, 1)}, "lengths"),
    ({"lengths": np.array([[2, 1]])}, "lengths"),
    ({"lengths": np.array([True, True])}, "lengths"),
    ({"lengths": np.array([2**63, 3], np.uint64)}, "lengths"),
    ({"lengths": ints(2**62, 2**62)}, "lengths"),
    ({"mask": f32(1, np.nan, 0)}, "mask"),
    ({"mask": f32(1, np.inf, 0)}, "mask"),
    ({"mask": np.array([1, 2, 0], np.uint8)}, "mask"),
    ({"mask": np.array([1, 255, 0], np.uint8)}, "mask"),
    ({"mask": np.array([1, -1, 0], np.int8)}, "mask"),
    ({"mask": np.array([1, 1e-40, 0])}, "mask"),
    ({"mask": np.ones((1, 3), np.uint8)}, "mask"),
    ({"advantages": ints(1, 2)}, "advantages"),
    ({"advantages": f32(np.nan, 1)}, "advantages"),
    ({"advantages": f32(1, -np.inf, 1)}, "advantages"),
    ({"advantages": np.array([[1, 2, 3]], np.float32)}, "advantages"),
    ({"advantages": f32()}, "advantages"),
    ({"rewards": np.array([[1], [2]], np.float32)}, "rewards"),
    ({"group_ids": f32(1, 2)}, "group_ids"),
    ({"policy_versions": ints(0, -2)}, "policy_versions"),
    ({"policy_versions": np.array([0, 2**63], np.uint64)}, "policy_versions"),
    ({"experts": np.zeros((3, 2, 2), np.int32)}, "experts"),
    ({"experts": np.zeros((3, 2), np.uint8)}, "experts"),
    ({"experts": np.zeros((2, 2, 2), np.uint8)}, "experts"),
    ({"experts": np.zeros((3, 0, 2), np.uint8)}, "experts"),
    ({"experts": np.zeros((3, 1, 257), np.uint8)}, "experts"),
    ({"experts": np.zeros((1, 3, 2, 2), np.uint8)}, "experts"),
    ({**pair(f32()), "lengths": ints(0), "experts": np.zeros((0, 2**20, 1), np.uint8)}, "experts"),
    ({**GRIDS, "mask": np.zeros((2, 3), np.uint8)}, "mask"),
    ({**GRIDS, "mask": np.zeros(4, np.uint8)}, "mask"),
    ({**GRIDS, "lengths": ints(2, 3)}, "lengths"),
    ({**GRIDS, "lengths": ints(2)}, "lengths"),
    ({**GRIDS, "lengths": ints(2, -1)}, "lengths"),
    ({**GRIDS, "advantages": np.zeros((2, 1), np.float32)}, "advantages"),
    ({**GRIDS, "advantages": f32(1, 2, 3, 4)}, "advantages"),
    ({**GRIDS, "entropy": f32(1, 2, 3, 4)}, "entropy"),
    ({**GRIDS, "experts": np.zeros((2, 2, 2), np.uint8)}, "experts"),
    ({**GRIDS, "experts": np.zeros((2, 2, 1, 0), np.uint8)}, "experts"),
]  # fmt: skip


@pytest.mark.parametrize(("arrays", "field"), FRAME_422, ids=lambda value: value if isinstance(value, str) else "")
def test_a_frame_that_is_wrong_is_422_and_names_the_field(arrays: dict[str, Any], field: str) -> None:
    refused = refusal(frame_body({"step": 1}, **changed(TENSORS, **arrays)), SAFETENSORS)
    assert refused.status == 422
    assert field in [error.field for error in refused.errors]
    assert len(refused.detail) < 500


def test_bytes_that_are_no_frame_are_400() -> None:
    good = frame_body({"step": 1}, **TENSORS)
    for body in (b"", b"{}", good[:-1], good + b"\0", good[1:]):
        assert refusal(body, SAFETENSORS).status == 400


def test_an_8_bit_float_is_a_dtype_that_is_not_taken() -> None:
    body = frame_body({"step": 1}, **TENSORS, mask=np.ones(3, np.uint8)).replace(b'"U8"', b'"F8_E4M3"')
    body = (int.from_bytes(body[:8], "little") + len("F8_E4M3") - len("U8")).to_bytes(8, "little") + body[8:]
    refused = refusal(body, SAFETENSORS)
    assert (refused.status, refused.errors[0].field) == (422, "mask")


LIMITED = [
    ("max_tokens", {}, "logprobs"),
    ("max_sequences", {"lengths": ints(1, 1, 1)}, "lengths"),
    ("max_sequence_length", {"lengths": ints(3)}, "lengths"),
    ("max_tensors", {}, "tensors"),
    ("max_tokens", GRIDS, "logprobs"),
    ("max_sequences", {"lengths": ABSENT, **pair(GRID.reshape(4, 1))}, "logprobs"),
    ("max_sequence_length", {"lengths": ABSENT, **pair(GRID.reshape(1, 4))}, "logprobs"),
]


@pytest.mark.parametrize(("limit", "arrays", "field"), LIMITED)
def test_a_count_over_its_limit_is_422_and_names_limit_and_setting(
    limit: str, arrays: dict[str, Any], field: str
) -> None:
    body = frame_body({"step": 1}, **changed(TENSORS, **arrays))
    refused = refusal(body, SAFETENSORS, **{limit: 2})
    assert refused.status == 422
    assert refused.errors[0].field == field
    assert "limit of 2" in refused.detail and f"OFFPOLICY_{limit.upper()}" in refused.detail
    assert decode_batch(body, SAFETENSORS, replace(LIMITS, **{limit: 4}))


@pytest.mark.parametrize("shape", [(0, 2**40), (2**40, 0)])
def test_an_empty_tensor_of_absurd_shape_is_refused_before_anything_is_allocated(shape: tuple[int, int]) -> None:
    empty = np.zeros((0, 1), np.float32)
    body = frame_body({"step": 1}, old_logprobs=empty, logprobs=empty)
    absurd = str(list(shape)).encode()
    longer = 2 * (len(absurd) - len(b"[0, 1]"))
    body = (int.from_bytes(body[:8], "little") + longer).to_bytes(8, "little") + body[8:].replace(b"[0, 1]", absurd)
    assert refusal(body, SAFETENSORS).status == 422


def test_json_lists_have_the_same_limits() -> None:
    body = json_body(**ROWS)
    for limit, most in (("max_tokens", 2), ("max_sequences", 1), ("max_sequence_length", 1)):
        refused = refusal(body, JSON, **{limit: most})
        assert refused.status == 422
        assert f"OFFPOLICY_{limit.upper()}" in refused.detail


def test_a_json_body_over_its_limit_is_413() -> None:
    refused = refusal(json_body(**GOOD), JSON, max_json_bytes=20)
    assert refused.status == 413
    assert "limit of 20" in refused.detail and "OFFPOLICY_MAX_JSON_BYTES" in refused.detail


def test_a_frame_header_over_its_limit_is_413() -> None:
    refused = refusal(frame_body({"step": 1}, **TENSORS), SAFETENSORS, max_frame_header_bytes=20)
    assert refused.status == 413
    assert "limit of 20" in refused.detail and "OFFPOLICY_MAX_FRAME_HEADER_BYTES" in refused.detail


def test_the_envelope_of_a_frame_is_as_strict_as_that_of_json() -> None:
    for envelope, field in (
        ({"step": 1.0}, "step"),
        ({"step": 1, "stop": 2}, "stop"),
        ({"step": 1, "logprobs": []}, "logprobs"),
    ):
        refused = refusal(frame_body(envelope, **TENSORS), SAFETENSORS)
        assert (refused.status, refused.errors[0].field) == (422, field)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ([[-1, -2, -3]], "its rows are 1 where those of the log-probs are 2"),
        ([[-1, -2], [-3, -4]], "row 1 is 2 long where that of the log-probs is 1"),
        ([[-1], [-2, -3]], "row 0 is 1 long where that of the log-probs is 2"),
    ],
)
def test_rows_that_are_not_those_of_the_log_probs_are_told_apart(sent: list[Any], said: str) -> None:
    found = refusal(json_body(**changed(ROWS, logprobs=sent)), JSON)
    assert [(error.field, error.message) for error in found.errors] == [("logprobs", said)]
