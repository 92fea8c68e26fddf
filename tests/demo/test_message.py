import json
import struct

import numpy as np
import torch
from offpolicy_monitor.demo.faults import parse_fault
from offpolicy_monitor.demo.message import Message
from offpolicy_monitor.demo.trainer import Trainer
from offpolicy_monitor.wire.frame import encode
from safetensors.numpy import load

from tests.demo.small import small


def body(message: Message) -> bytes:
    return b"".join(bytes(part) for part in encode(message.envelope, message.arrays))


def envelope(data: bytes) -> dict[str, object]:
    (length,) = struct.unpack_from("<Q", data)
    decoded = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["batch"])
    assert isinstance(decoded, dict)
    return decoded


def test_a_message_reads_as_safetensors_with_the_shapes_of_the_wire() -> None:
    trainer = Trainer(small(lag=1))
    list(trainer.gradient_steps(trainer.rollouts(0), 0))
    rollouts = trainer.rollouts(1)
    messages = list(trainer.gradient_steps(rollouts, 1))
    arrays = load(body(messages[1]))
    sequences, positions = 64, int(arrays["lengths"].sum())
    generated = int(rollouts[1].mask.sum())
    assert {name: (array.dtype.name, array.shape) for name, array in arrays.items()} == {
        "sampling_logprobs": ("float32", (positions,)),
        "old_logprobs": ("float32", (positions,)),
        "logprobs": ("float32", (positions,)),
        "entropy": ("float32", (positions,)),
        "mask": ("bool", (positions,)),
        "policy_versions": ("int32", (positions,)),
        "lengths": ("int64", (sequences,)),
        "advantages": ("float32", (sequences,)),
        "rewards": ("float32", (sequences,)),
        "group_ids": ("int64", (sequences,)),
    }
    assert positions == generated + 64 * 4  # prompts of three letters and the token that asks
    assert int(arrays["mask"].sum()) == generated
    assert np.array_equal(arrays["policy_versions"] == -1, ~arrays["mask"])
    assert set(arrays["policy_versions"][arrays["mask"]].tolist()) == {0}
    assert arrays["group_ids"].tolist() == [group for group in range(8) for _ in range(8)]


def test_a_rescore_is_a_column_of_the_message_where_it_was_asked_for() -> None:
    trainer = Trainer(small(sampler="exact", rescored=True))
    [first, *_] = trainer.gradient_steps(trainer.rollouts(0), 0)
    assert np.array_equal(first.arrays["engine_logprobs"], first.arrays["sampling_logprobs"])
    stale = Trainer(small(fault=parse_fault("dropped_stale=1"), rescored=True))
    messages = [message for step in range(3) for message in stale.gradient_steps(stale.rollouts(step), step)]
    sent = [message.arrays for message in messages]
    assert sent and all(len(arrays["engine_logprobs"]) == len(arrays["mask"]) for arrays in sent)


def test_the_envelope_names_the_gradient_step_and_the_policy() -> None:
    trainer = Trainer(small())
    _, second = trainer.gradient_steps(trainer.rollouts(7), 7)
    assert envelope(body(second)) == {
        "step": 7,
        "minibatch": 1,
        "minibatches": 2,
        "policy_version": 7,
        "labels": {"engine": "kv-cache", "precision": "bfloat16"},
    }


def test_each_sequence_holds_its_own_log_probs_after_its_prompt() -> None:
    trainer = Trainer(small())
    rollouts = trainer.rollouts(0)
    message = next(trainer.gradient_steps(rollouts, 0))
    rollout, start = rollouts[0], 0
    for row, length in enumerate(message.arrays["lengths"].tolist()):
        written = int(rollout.mask[row].sum())
        assert length == 4 + written
        for name, values in (("sampling_logprobs", rollout.log_mu), ("old_logprobs", rollout.log_old)):
            sent = torch.from_numpy(message.arrays[name][start : start + length])
            assert torch.equal(sent[4:], values[row, :written])
            assert sent[:4].tolist() == [0.0] * 4
        assert message.arrays["mask"][start : start + length].tolist() == [False] * 4 + [True] * written
        start += length
