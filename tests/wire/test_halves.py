from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.wire.decode import decode_batch
from offpolicy_monitor.wire.digest import content_digest
from offpolicy_monitor.wire.halves import join
from offpolicy_monitor.wire.message import ARRAY_BYTES, MESSAGE_BYTES, LaterHalf, Message

from tests.wire.bodies import JSON, LIMITS, SAFETENSORS, decode_frame, decode_json, f32, frame_body, ints, json_body

FIRST: dict[str, Any] = {
    "step": 1, "rollout": "r", "labels": {"engine": "vllm"}, "sequence_ids": ["a", "b", "c"], "lengths": [2, 0, 2],
    "mask": [1, 0, 1, 1], "sampling_logprobs": [-1, -2, -3, -4], "old_logprobs": [-1.1, -2.1, None, -4.1],
}  # fmt: skip
LATER: dict[str, Any] = {"step": 1, "minibatch": 1, "rollout": "r", "logprobs": [-1.2, -2.2, -3.2, -4.2]}
ADVANTAGES = [0.5, 7.0, -0.5]


def later(**members: Any) -> LaterHalf:
    decoded = decode_batch(json_body(**members), JSON, LIMITS)
    assert isinstance(decoded, LaterHalf)
    return decoded


def joined(first: dict[str, Any], second: dict[str, Any]) -> Message:
    return join(decode_json(**first), later(**second), LIMITS)


def refusal(first: dict[str, Any], second: dict[str, Any]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        joined(first, second)
    assert caught.value.status == 422
    return caught.value


def test_a_shard_without_the_current_log_probs_is_a_first_half() -> None:
    assert decode_json(**FIRST).is_first_half
    only_sampling = {name: value for name, value in FIRST.items() if name != "old_logprobs"}
    assert decode_json(**only_sampling).is_first_half


def test_a_shard_that_names_a_rollout_and_lacks_nothing_is_whole() -> None:
    assert not decode_json(**FIRST, logprobs=LATER["logprobs"]).is_first_half


def test_without_a_rollout_there_are_no_halves() -> None:
    pair = {name: value for name, value in FIRST.items() if name != "rollout"}
    assert not decode_json(**pair).is_first_half
    with pytest.raises(Refusal, match="at least two"):
        decode_batch(json_body(step=1, logprobs=[-1.0], lengths=[1]), JSON, LIMITS)


def test_joined_halves_are_what_one_post_would_have_been() -> None:
    got = joined(FIRST, {**LATER, "advantages": ADVANTAGES})
    one = decode_json(**{**FIRST, **LATER}, advantages=ADVANTAGES)
    assert content_digest(got) == content_digest(one)
    assert got.envelope == one.envelope
    assert got.batch.columns["logprobs"].tolist() == f32(-1.2, -3.2, -4.2).tolist()
    assert got.batch.columns["advantages"].tolist() == [0.5, 0.0, -0.5]
    assert not got.is_first_half


def test_the_envelope_is_that_of_the_later_half_with_labels_of_both() -> None:
    got = joined(FIRST, {**LATER, "policy_version": 9, "labels": {"gpu": "h100"}}).envelope
    assert (got.minibatch, got.policy_version) == (1, 9)
    assert got.labels == {"engine": "vllm", "gpu": "h100"}
    assert got.sequence_ids == ["a", "b", "c"]


def test_the_later_half_may_be_padded() -> None:
    padded = {**LATER, "logprobs": [[-1.2, -2.2, 9], [9, 9, 9], [-3.2, -4.2, 9]]}
    assert content_digest(joined(FIRST, padded)) == content_digest(joined(FIRST, LATER))


def test_the_later_half_may_repeat_lengths_and_mask() -> None:
    repeated = {**LATER, "lengths": FIRST["lengths"], "mask": FIRST["mask"]}
    assert content_digest(joined(FIRST, repeated)) == content_digest(joined(FIRST, LATER))
    unmasked = {name: value for name, value in FIRST.items() if name != "mask"}
    assert joined(unmasked, {**LATER, "mask": [1, 1, 1, 1]}).batch.tokens == 4


def test_advantages_per_token_replace_those_per_sequence() -> None:
    got = joined({**FIRST, "advantages": ADVANTAGES}, {**LATER, "advantages": [1, 2, 3, 4]}).batch
    assert got.columns["advantages"].tolist() == [1.0, 3.0, 4.0]
    assert "advantages" in got.per_token


def test_a_float64_later_half_widens_the_first() -> None:
    body = frame_body({"step": 1, "rollout": "r"}, logprobs=np.array([-1.2, -2.2, -3.2, -4.2]))
    half = decode_batch(body, SAFETENSORS, LIMITS)
    assert isinstance(half, LaterHalf)
    got = join(decode_json(**FIRST), half, LIMITS).batch
    assert {got.columns[name].dtype for name in ("logprobs", "old_logprobs")} == {np.dtype(np.float64)}
    assert dict(got.dtypes) == {"sampling_logprobs": "float32", "old_logprobs": "float32", "logprobs": "float64"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"logprobs": [-1.2, -2.2, -3.2]}, "lengths"),
        ({"logprobs": [[-1, -2], [], [-3]]}, "lengths"),
        ({"logprobs": [[-1, -2], [-3, -4]]}, "lengths"),
        ({"lengths": [2, 1, 1]}, "lengths"),
        ({"lengths": [4]}, "lengths"),
        ({"mask": [1, 1, 1, 1]}, "mask"),
        ({"mask": [1, 0, 1]}, "mask"),
        ({"advantages": [1, 2]}, "advantages"),
        ({"advantages": [1, 2, 1e39]}, "advantages"),
        ({"sequence_ids": ["a"]}, "sequence_ids"),
    ],
)
def test_a_later_half_that_does_not_fit_is_refused(changes: dict[str, Any], field: str) -> None:
    assert [error.field for error in refusal(FIRST, {**LATER, **changes}).errors] == [field]


def test_expert_ids_of_both_halves_have_the_same_dimensions() -> None:
    first, second = {**FIRST, "old_experts": [[[1, 2]]] * 4}, {**LATER, "experts": [[[1]]] * 4}
    assert refusal(first, second).errors[0].field in ("experts", "old_experts")
    assert joined(first, {**LATER, "experts": [[[3, 4]]] * 4}).batch.columns["experts"].shape == (3, 1, 2)


def test_a_message_that_owns_its_arrays_outlives_the_body() -> None:
    body = bytearray(frame_body({"step": 1, "rollout": "r"}, lengths=ints(2), old_logprobs=f32(-1, -2)))
    first = decode_batch(memoryview(body), SAFETENSORS, LIMITS)
    assert isinstance(first, Message)
    kept = first.owned()
    body[-24:] = bytes(24)
    assert first.batch.columns["old_logprobs"].tolist() == [0.0, 0.0]
    assert kept.batch.columns["old_logprobs"].tolist() == [-1.0, -2.0]
    assert kept.batch.lengths.tolist() == [2]


def test_the_cost_of_keeping_a_message_counts_its_arrays_and_its_objects() -> None:
    message = decode_frame(
        {"step": 1}, lengths=ints(1000), old_logprobs=f32(*[-1.0] * 1000), logprobs=f32(*[-1.0] * 1000)
    )
    arrays, objects = 8000 + 2 * 8 + 8, MESSAGE_BYTES + 4 * ARRAY_BYTES
    assert message.nbytes == arrays + objects
    # The log-probs are views of the frame, which is counted by itself.
    assert message.copied_bytes == message.nbytes - 8000 - 8


def test_the_limits_hold_for_the_lengths_of_a_later_half() -> None:
    with pytest.raises(Refusal, match="OFFPOLICY_MAX_SEQUENCES"):
        join(decode_json(**FIRST), later(**LATER, lengths=[2, 0, 2]), replace(LIMITS, max_sequences=2))


def test_the_later_half_may_bring_the_sequence_ids() -> None:
    got = joined({**FIRST, "sequence_ids": None}, {**LATER, "sequence_ids": ["x", "y", "z"]})
    assert got.batch.sequence_ids == ("x", "y", "z")
