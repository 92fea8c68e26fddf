from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.wire.digest import content_digest

from tests.wire.bodies import decode_frame, decode_json, f32, ints

BASE: dict[str, Any] = {
    "step": 1, "minibatch": 1, "minibatches": 4, "attempt": 0, "shard": 1, "shards": 8, "policy_version": 3,
    "rollout": "r", "labels": {"engine": "vllm", "gpu": "h100"}, "sequence_ids": ["a", "b"],
    "lengths": [2, 1], "old_logprobs": [-1, -2, -3], "logprobs": [-1, -2, None], "mask": [1, 1, 1],
    "advantages": [1, 2], "rewards": [0, 1], "group_ids": [5, 6], "turns": [0, 0, 1], "policy_versions": [2, 3],
}  # fmt: skip


def digest(**changes: Any) -> bytes:
    members = {**BASE, **changes}
    return content_digest(decode_json(**{name: value for name, value in members.items() if value is not ...}))


def test_a_digest_has_sixteen_bytes_and_is_the_same_each_time() -> None:
    assert len(digest()) == 16
    assert digest() == digest()


@pytest.mark.parametrize("field", ["step", "minibatch", "attempt", "shard"])
def test_the_key_of_a_shard_is_not_in_its_digest(field: str) -> None:
    assert digest(**{field: 2}) == digest()


def test_which_rollout_a_shard_was_joined_from_is_not_in_its_digest() -> None:
    assert digest(rollout="q") == digest(rollout=...) == digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"minibatches": 5}, {"minibatches": ...}, {"shards": 9}, {"policy_version": 4}, {"policy_version": ...},
        {"labels": {"engine": "vllm", "gpu": "h200"}}, {"labels": {"engine": "vllm"}}, {"labels": {}},
        {"sequence_ids": ["a", "c"]}, {"sequence_ids": ["b", "a"]}, {"sequence_ids": ...}, {"lengths": [1, 2]},
        {"old_logprobs": [-1, -2, -3.0000002]}, {"logprobs": [-1, -2, -3]}, {"logprobs": [-1, None, -3]},
        {"mask": [1, 0, 1]}, {"mask": [0, 1, 1]},
        {"advantages": [1, 3]}, {"advantages": [1, 1, 2]}, {"advantages": ...},
        {"rewards": [1, 0]}, {"rewards": ...}, {"group_ids": [5, 7]}, {"turns": [0, 1, 1]},
        {"policy_versions": [2, -1]}, {"policy_versions": [2, 2, 3]},
    ],
)  # fmt: skip
def test_everything_else_is_in_the_digest(changes: dict[str, Any]) -> None:
    assert digest(**changes) != digest()


def test_columns_do_not_stand_for_each_other() -> None:
    assert digest(group_ids=..., rewards=[5, 6]) != digest(group_ids=[5, 6], rewards=...)
    assert digest(sampling_logprobs=[-1, -2, -3], old_logprobs=...) != digest()


def test_the_order_of_labels_and_a_mask_of_ones_do_not_matter() -> None:
    assert digest(labels={"gpu": "h100", "engine": "vllm"}) == digest()
    assert digest(mask=...) == digest()


def test_the_wire_dtype_of_log_probs_is_content_and_that_of_integers_is_not() -> None:
    def framed(dtype: str, **arrays: np.ndarray) -> bytes:
        old = np.array([-1.0, -2.0, -3.0], dtype)
        return content_digest(decode_frame({"step": 1}, old_logprobs=old, logprobs=f32(-1, -2, -3), **arrays))

    reference = framed("f4", lengths=ints(2, 1), turns=ints(0, 1, 2))
    assert framed("f4", lengths=np.array([2, 1], np.uint8), turns=np.array([0, 1, 2], np.int16)) == reference
    assert framed("f2", lengths=ints(2, 1), turns=ints(0, 1, 2)) != reference
    assert framed("f8", lengths=ints(2, 1), turns=ints(0, 1, 2)) != reference


def test_any_nan_is_the_same_nan_and_infinities_differ() -> None:
    def framed(bits: int) -> bytes:
        old = np.array([0xBF800000, bits, 0xC0000000], np.uint32).view(np.float32)
        return content_digest(decode_frame({"step": 1}, lengths=ints(3), old_logprobs=old, logprobs=f32(-1, -2, -3)))

    assert len({framed(nan) for nan in (0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7FA00000)}) == 1
    assert len({framed(bits) for bits in (0x7FC00000, 0x7F800000, 0xFF800000)}) == 3


def test_masked_positions_are_told_apart_from_absent_ones_only_before_a_token() -> None:
    pair = {"old_logprobs": [-1, -2, -3], "logprobs": [-1, -2, -3]}
    trailing = decode_json(step=1, lengths=[3], mask=[1, 1, 0], **pair)
    short = decode_json(step=1, lengths=[2], old_logprobs=[-1, -2], logprobs=[-1, -2])
    leading = decode_json(step=1, lengths=[3], mask=[0, 1, 1], old_logprobs=[9, -1, -2], logprobs=[9, -1, -2])
    assert content_digest(trailing) == content_digest(short)
    assert content_digest(leading) != content_digest(short)


def test_a_large_batch_is_hashed_to_its_last_value() -> None:
    values = np.full(300_000, -1.0, np.float32)
    changed = values.copy()
    changed[-1] = -1.5
    digests = {
        content_digest(decode_frame({"step": 1}, lengths=ints(300_000), old_logprobs=old, logprobs=values))
        for old in (values, changed)
    }
    assert len(digests) == 2


def test_an_empty_sequence_more_is_other_content() -> None:
    pair = {"old_logprobs": [-1, -2, -3], "logprobs": [-1, -2, -3]}
    digests = {
        content_digest(decode_json(step=1, lengths=lengths, **pair)) for lengths in ([2, 1], [2, 1, 0], [2, 0, 1])
    }
    assert len(digests) == 3


def test_advantages_of_sequences_differ_from_equal_ones_of_tokens() -> None:
    pair = {"old_logprobs": [[-1, -2], [], [-3]], "logprobs": [[-1, -2], [], [-3]]}
    per_sequence = decode_json(step=1, advantages=[1, 0, 3], **pair)
    per_token = decode_json(step=1, advantages=[[1, 0], [], [3]], **pair)
    assert per_sequence.batch.columns["advantages"].tolist() == per_token.batch.columns["advantages"].tolist()
    assert content_digest(per_sequence) != content_digest(per_token)
