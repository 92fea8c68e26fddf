import numpy as np
import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.wire import frame
from offpolicy_monitor.wire.decode import decode_batch, decode_evaluation

from tests.wire.bodies import (
    JSON,
    LIMITS,
    SAFETENSORS,
    decode_frame,
    decode_json,
    f32,
    frame_body,
    ints,
    json_body,
    whole,
)

OLD, NEW = [-1.0, -2.0, -3.0], [-1.5, -2.5, -3.5]
PAIR = {"old_logprobs": OLD, "logprobs": NEW}
FRAME_PAIR = {"old_logprobs": f32(*OLD), "logprobs": f32(*NEW)}


def test_packed_json_is_decoded_to_a_batch() -> None:
    message = decode_json(step=4, lengths=[2, 0, 1], advantages=[0.5, 9.0, -1], **PAIR)
    batch = message.batch
    assert message.envelope.step == 4
    assert (batch.tokens, batch.sequences) == (3, 3)
    assert batch.offsets.tolist() == [0, 2, 2, 3]
    assert batch.columns["logprobs"].tolist() == NEW
    assert batch.columns["logprobs"].dtype == np.float32
    assert batch.columns["advantages"].tolist() == [0.5, 0.0, -1.0]
    assert dict(batch.dtypes) == {"old_logprobs": "float32", "logprobs": "float32"}


def test_a_packed_frame_is_decoded_without_copying_its_log_probs() -> None:
    mask, lengths = np.ones(3, np.uint8), np.array([2, 1], np.int32)
    body = frame_body({"step": 4}, lengths=lengths, mask=mask, **FRAME_PAIR)
    batch = whole(decode_batch(body, SAFETENSORS, LIMITS)).batch
    assert batch.positions is None
    assert batch.lengths.tolist() == [2, 1]
    for name, sent in PAIR.items():
        assert batch.columns[name].tolist() == sent
        assert np.shares_memory(batch.columns[name], np.frombuffer(body, np.uint8))


def test_the_mask_drops_tokens_and_remembers_their_positions() -> None:
    batch = decode_json(step=1, lengths=[2, 1], mask=[True, False, True], turns=[0, 1, 2], **PAIR).batch
    assert batch.offsets.tolist() == [0, 1, 2]
    assert batch.columns["old_logprobs"].tolist() == [-1.0, -3.0]
    assert batch.columns["turns"].tolist() == [0, 2]
    assert batch.positions is not None and batch.positions.tolist() == [0, 2]
    assert batch.lengths.tolist() == [2, 1]


def test_null_in_a_log_prob_list_is_nan_and_a_huge_number_is_infinite() -> None:
    column = decode_json(step=1, lengths=[3], old_logprobs=[None, -1e300, 1e39], logprobs=NEW).batch.columns[
        "old_logprobs"
    ]
    assert np.isnan(column[0])
    assert column[1:].tolist() == [-np.inf, np.inf]


def test_json_numbers_are_read_as_float32() -> None:
    column = decode_json(step=1, lengths=[3], old_logprobs=[-0.1, 0, -1], logprobs=NEW).batch.columns["old_logprobs"]
    assert column.tolist() == [float(np.float32(-0.1)), 0.0, -1.0]


def test_a_batch_of_no_sequences_is_accepted() -> None:
    for body in (
        decode_json(step=1, old_logprobs=[], logprobs=[]),
        decode_json(step=1, lengths=[], **{n: [] for n in PAIR}),
    ):
        assert (body.batch.sequences, body.batch.tokens) == (0, 0)
    nothing = np.zeros((0, 7), np.float32)
    assert decode_frame({"step": 1}, old_logprobs=nothing, logprobs=nothing).batch.sequences == 0


def test_empty_sequences_are_counted_as_sequences() -> None:
    batch = decode_json(step=1, old_logprobs=[[], []], logprobs=[[], []], rewards=[1, 0]).batch
    assert (batch.sequences, batch.tokens) == (2, 0)
    assert decode_json(step=1, lengths=[0, 0], old_logprobs=[], logprobs=[]).batch.sequences == 2


def test_lower_precision_is_widened_and_recorded() -> None:
    old = np.array([0xBF80, 0xC000, 0x7FC0], np.uint16)
    new = np.array([-1.5, -2.5, -0.5], np.float16)
    batch = decode_frame({"step": 1}, ("old_logprobs",), lengths=ints(3), old_logprobs=old, logprobs=new).batch
    assert batch.columns["old_logprobs"][:2].tolist() == [-1.0, -2.0]
    assert np.isnan(batch.columns["old_logprobs"][2])
    assert batch.columns["logprobs"].tolist() == [-1.5, -2.5, -0.5]
    assert dict(batch.dtypes) == {"old_logprobs": "bfloat16", "logprobs": "float16"}
    assert {column.dtype for column in batch.columns.values()} == {np.dtype(np.float32)}


def test_one_float64_array_makes_all_float_columns_float64() -> None:
    advantages = f32(0.5)
    batch = decode_frame(
        {"step": 1}, lengths=ints(3), old_logprobs=np.array(OLD), logprobs=f32(*NEW), advantages=advantages
    ).batch
    assert {column.dtype for column in batch.columns.values()} == {np.dtype(np.float64)}
    assert dict(batch.dtypes) == {"old_logprobs": "float64", "logprobs": "float32"}


def test_a_float64_advantage_beyond_float32_is_not_finite() -> None:
    with pytest.raises(Refusal, match="advantages"):
        decode_frame({"step": 1}, lengths=ints(3), advantages=np.array([1e39]), **FRAME_PAIR)


@pytest.mark.parametrize(
    "mask",
    [
        np.array([True, False, True]),
        np.array([1, 0, 1], np.uint8),
        np.array([1, 0, 1], np.int64),
        np.array([1, 0, 1], np.uint64),
        np.array([1, -0.0, 1], np.float16),
        np.array([1, 0, 1], np.float32),
        np.array([1, -0.0, 1], np.float64),
    ],
)
def test_a_mask_may_be_any_numeric_type(mask: np.ndarray) -> None:
    batch = decode_frame({"step": 1}, lengths=ints(3), mask=mask, **FRAME_PAIR).batch
    assert batch.columns["logprobs"].tolist() == [-1.5, -3.5]


def test_a_mask_may_be_bfloat16() -> None:
    mask = np.array([0x3F80, 0x8000, 0x3F80], np.uint16)
    batch = decode_frame({"step": 1}, ("mask",), lengths=ints(3), mask=mask, **FRAME_PAIR).batch
    assert batch.columns["logprobs"].tolist() == [-1.5, -3.5]


def test_a_byte_of_two_in_a_bool_mask_is_refused() -> None:
    body = frame_body({"step": 1}, lengths=ints(3), mask=np.array([True, True, True]), **FRAME_PAIR)
    with pytest.raises(Refusal, match="mask") as caught:
        decode_batch(body.replace(b"\x01\x01\x01", b"\x01\x02\x01"), SAFETENSORS, LIMITS)
    assert caught.value.status == 422


def test_garbage_under_a_zero_of_the_mask_is_not_looked_at() -> None:
    batch = decode_json(
        step=1, lengths=[2, 1], mask=[1, 0, 1], old_logprobs=[-1, None, -3], logprobs=[-1.5, 1e300, -3.5],
        advantages=[1, 1e300, 2], policy_versions=[3, -9, 4],
    ).batch  # fmt: skip
    assert batch.columns["advantages"].tolist() == [1.0, 2.0]
    assert batch.columns["policy_versions"].tolist() == [3, 4]


def test_the_advantage_of_a_sequence_without_a_token_may_be_anything() -> None:
    nan = f32(0.5, np.nan, np.inf)
    batch = decode_frame({"step": 1}, lengths=ints(3, 0, 0), advantages=nan, **FRAME_PAIR).batch
    assert batch.columns["advantages"].tolist() == [0.5, 0.0, 0.0]
    versions = decode_json(step=1, lengths=[3, 0], policy_versions=[7, -5], **PAIR).batch.columns["policy_versions"]
    assert versions.tolist() == [7, -1]


def test_a_list_of_s_advantages_is_per_sequence_and_of_t_per_token() -> None:
    per_sequence = decode_json(step=1, lengths=[2, 1], advantages=[1, 2], **PAIR).batch
    per_token = decode_json(step=1, lengths=[2, 1], advantages=[1, 2, 3], **PAIR).batch
    assert ("advantages" in per_sequence.per_token, "advantages" in per_token.per_token) == (False, True)
    assert per_token.columns["advantages"].tolist() == [1.0, 2.0, 3.0]


def test_where_s_equals_t_a_list_of_advantages_is_per_sequence() -> None:
    batch = decode_json(step=1, lengths=[2, 0, 1], advantages=[1, 2, 3], **PAIR).batch
    assert "advantages" not in batch.per_token
    assert batch.columns["advantages"].tolist() == [1.0, 0.0, 3.0]


def test_expert_ids_keep_their_dimensions() -> None:
    ids = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    batch = decode_frame(
        {"step": 1}, lengths=ints(2, 1), experts=ids, mask=np.array([1, 0, 1], np.uint8), **FRAME_PAIR
    ).batch
    np.testing.assert_array_equal(batch.columns["experts"], ids[[0, 2]])
    nested = decode_json(step=1, lengths=[2, 1], experts=ids.tolist(), **PAIR).batch.columns["experts"]
    np.testing.assert_array_equal(nested, ids)
    assert nested.dtype == np.uint16


def test_sequence_ids_come_along() -> None:
    assert decode_json(step=1, lengths=[2, 1], sequence_ids=["a", "b"], **PAIR).batch.sequence_ids == ("a", "b")


@pytest.mark.parametrize(
    "media_type", [JSON, "Application/JSON", "application/json; charset=utf-8", "application/json;x=y"]
)
def test_parameters_and_case_of_the_media_type_do_not_matter(media_type: str) -> None:
    assert whole(decode_batch(json_body(step=1, lengths=[3], **PAIR), media_type, LIMITS)).batch.tokens == 3


@pytest.mark.parametrize("media_type", [None, "", "text/json", "application/octet-stream", "application/jsonl", "*/*"])
def test_another_media_type_is_415(media_type: str | None) -> None:
    with pytest.raises(Refusal) as caught:
        decode_batch(b"{}", media_type, LIMITS)
    assert caught.value.status == 415
    assert "application/vnd.safetensors" in caught.value.detail


def test_an_evaluation_takes_methods_and_needs_no_step() -> None:
    rows = [{"name": "a", "method": "opsm"}]
    evaluation = decode_evaluation(json_body(lengths=[3], methods=rows, **PAIR), JSON, LIMITS)
    assert evaluation.methods == rows
    assert evaluation.batch.tokens == 3
    plain = decode_evaluation(frame_body({}, lengths=ints(3), **FRAME_PAIR), SAFETENSORS, LIMITS)
    assert plain.methods is None


def test_an_evaluation_has_no_halves() -> None:
    with pytest.raises(Refusal, match="at least two") as caught:
        decode_evaluation(json_body(rollout="r", lengths=[3], logprobs=NEW), JSON, LIMITS)
    assert [error.field for error in caught.value.errors] == ["sampling_logprobs", "old_logprobs"]


def test_a_body_may_be_any_bytes_like_view() -> None:
    padded = b"xx" + json_body(step=1, lengths=[3], **PAIR)
    assert whole(decode_batch(memoryview(padded)[2:], JSON, LIMITS)).batch.tokens == 3
    unaligned = memoryview(b"x" + frame_body({"step": 1}, lengths=ints(3), **FRAME_PAIR))[1:]
    assert whole(decode_batch(unaligned, SAFETENSORS, LIMITS)).batch.columns["logprobs"].tolist() == NEW


def test_a_deep_nest_is_400_and_a_shallower_one_422() -> None:
    for depth, status in ((100_000, 400), (1000, 422)):
        body = b'{"step":1,"logprobs":' + b"[" * depth + b"]" * depth + b"}"
        with pytest.raises(Refusal) as caught:
            decode_batch(body, JSON, LIMITS)
        assert caught.value.status == status


def test_a_frame_without_an_envelope_lacks_its_step() -> None:
    body = b"".join(bytes(part) for part in frame.encode({}, {"lengths": ints(3), **FRAME_PAIR}))
    with pytest.raises(Refusal, match="step: required"):
        decode_batch(body, SAFETENSORS, LIMITS)


def test_signalling_nans_are_nans() -> None:
    for bits, dtype in ((0x7FA00000, "u4"), (0x7FF4000000000000, "u8"), (0x7D00, "u2")):
        values = np.array([bits] * 3, dtype).view(dtype.replace("u", "f"))
        batch = decode_frame({"step": 1}, lengths=ints(3), old_logprobs=values, logprobs=f32(*NEW)).batch
        assert np.isnan(batch.columns["old_logprobs"]).all()


def test_null_is_nan_in_every_float_array_and_what_is_masked_may_hold_it() -> None:
    floats: dict[str, list[object]] = {"advantages": [None, 1, 2], "entropy": [None, 1, None], "rewards": [None]}
    pair = {"old_logprobs": [None, -1, -1], "logprobs": [None, -1, -1]}
    columns = decode_json(step=1, lengths=[3], mask=[0, 1, 1], **pair, **floats).batch.columns
    assert columns["advantages"].tolist() == [1, 2]
    assert columns["entropy"][0] == 1 and np.isnan(columns["entropy"][1])
    assert np.isnan(columns["rewards"][0])
