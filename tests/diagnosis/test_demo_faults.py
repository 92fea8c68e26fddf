"""What the demo trainer plants for real is named from its own messages, and a healthy demo is left in peace."""

from functools import cache
from typing import Any

import pytest
from offpolicy_monitor.batch import Origin, RaggedBatch
from offpolicy_monitor.demo.faults import KINDS, Fault, parse_fault
from offpolicy_monitor.demo.message import Message
from offpolicy_monitor.demo.trainer import Trainer
from offpolicy_monitor.diagnosis import Evidence, collect, diagnose
from offpolicy_monitor.summary.step import StepSummary

from tests.demo.small import small
from tests.diagnosis.confusion import LIMITS
from tests.fixtures.application import SAFETENSORS, Client, frame_bytes
from tests.fixtures.fused import fused_measurer
from tests.fixtures.threads import one_thread

__all__ = ["one_thread"]

#: int8 weights and a coarse cache that is read for a dozen tokens are noise and no bug; tokens with NaN are left out,
#: what is cut off is cut off on both sides, and answers that were dropped for their age are not there to be looked at.
#: A merge that rounds is of weights that do not arrive as they are. A prompt of three letters that lacks one is another
#: prompt altogether, from the first token of the answer to its last.
EXPECTED = {
    **{name: "noise" if name in ("int8", "nan", "kv_cache", "cut", "dropped_stale") else name for name in KINDS},
    "nf4_merge": "partial_sync",
    "shifted": "off_by_one",
    "early_replica": "stale_weights",
    "prompt": "unknown",
}
#: What shows in the first of several gradient steps, or in more tokens than those of one gradient step a training step.
#: What changes slowly shows while it does: such a policy learns as slowly as a large one.
CHANGES: dict[str, dict[str, Any]] = {
    **{name: {"minibatches": 2} for name in ("early_replica", "sampling", "prompt", "dropped_stale")},
    "nf4_merge": {"minibatches": 2, "learning_rate": 3e-4},
}
STEPS = 8


@cache
def messages(fault: Fault | None, **changes: Any) -> list[Message]:
    """All gradient steps of a short run, one a training step unless asked otherwise; nobody changes them."""
    trainer = Trainer(small(**{"fault": fault, "minibatches": 1} | changes))
    return [message for step in range(STEPS) for message in trainer.gradient_steps(trainer.rollouts(step), step)]


def measured(message: Message) -> StepSummary:
    columns = dict(message.arrays)
    lengths, mask = columns.pop("lengths"), columns.pop("mask")
    a_sequence = {name: columns.pop(name) for name in ("advantages", "rewards", "group_ids")}
    batch = RaggedBatch.from_positions(lengths, columns, a_sequence, mask)
    labels = message.envelope["labels"]
    assert isinstance(labels, dict)
    return fused_measurer().measure(batch, (), Origin(None, None, labels))


def evidence_of(fault: Fault | None, **changes: Any) -> Evidence:
    return collect([measured(message) for message in messages(fault, **changes)], limits=LIMITS)


@pytest.mark.parametrize("name", KINDS)
def test_a_fault_of_the_demo_is_named_from_eight_training_steps(name: str) -> None:
    found = diagnose(evidence_of(parse_fault(name), **CHANGES.get(name, {})))
    assert found[0]["name"] == EXPECTED[name], found[:2]


@pytest.mark.parametrize(
    "given", ["temperature=0.9", "temperature=1.25", "top_p=0.95", "off_by_one=0.5", "stale_weights=4", "quantised=5"]
)
def test_a_fault_of_another_strength_is_named_too(given: str) -> None:
    assert diagnose(evidence_of(parse_fault(given), seed=1))[0]["name"] == parse_fault(given).name


@pytest.mark.parametrize("lag", [0, 2])
def test_a_healthy_demo_has_nothing_but_noise(lag: int) -> None:
    assert diagnose(evidence_of(None, lag=lag, seed=2))[0]["name"] == "noise"


def test_the_slope_of_a_demo_at_another_temperature_is_the_ratio_of_temperatures() -> None:
    assert evidence_of(Fault("temperature", 0.8))["signature.regression.slope"] == pytest.approx(0.8, abs=0.05)


def test_fewer_bits_of_weights_are_more_noise() -> None:
    coarse, fine = (evidence_of(Fault("int8", bits))["gaps.mismatch.k3"] for bits in (4, 8))
    assert coarse > 20 * fine


def test_a_demo_with_a_fault_is_diagnosed_over_http(client: Client) -> None:
    for message in messages(parse_fault("stale_weights")):
        content = frame_bytes(message.envelope, message.arrays)
        assert client.post("/v1/runs/demo/batches", content=content, headers=SAFETENSORS).status_code == 200
    first = client.get("/v1/runs/demo/diagnosis").json()["hypotheses"][0]
    assert first["name"] == "stale_weights"
    assert first["evidence"]["signature.replica.share"] > 0.9
