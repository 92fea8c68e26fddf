from dataclasses import replace
from typing import Any

import pytest
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.summary.faults import is_text
from offpolicy_monitor.wire.arrays import ARRAYS
from offpolicy_monitor.wire.schema import Envelope, EvaluateEnvelope, parse_envelope

from tests.wire.bodies import LIMITS

BEYOND = 2**63


def refusal(fields: dict[str, Any], model: type[Envelope] = Envelope, /, **limits: int) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse_envelope(model, fields, replace(LIMITS, **limits))
    assert caught.value.status == 422
    return caught.value


def fields_at_fault(refused: Refusal) -> list[str]:
    return [error.field for error in refused.errors]


def test_an_envelope_has_the_defaults_of_the_contract() -> None:
    envelope = parse_envelope(Envelope, {"step": 5}, LIMITS)
    assert envelope.model_dump() == {
        "step": 5,
        "minibatch": 0,
        "minibatches": None,
        "attempt": 0,
        "shard": 0,
        "shards": 1,
        "policy_version": None,
        "rollout": None,
        "labels": {},
        "sequence_ids": None,
    }


def test_an_envelope_keeps_what_was_sent() -> None:
    fields: dict[str, Any] = {
        "step": 2**63 - 1, "minibatch": 3, "minibatches": 4, "attempt": 1, "shard": 7, "shards": 8,
        "policy_version": 12, "rollout": "r-12", "labels": {"engine": "vllm"}, "sequence_ids": ["a", "ü"],
    }  # fmt: skip
    assert parse_envelope(Envelope, fields, LIMITS).model_dump() == fields


INTEGERS = ("step", "minibatch", "minibatches", "attempt", "shard", "shards", "policy_version")


@pytest.mark.parametrize("field", INTEGERS)
@pytest.mark.parametrize("value", ["1", 1.0, 1.5, True, [1], {}, BEYOND, 10**30])
def test_a_number_is_a_json_integer_of_64_bits(field: str, value: object) -> None:
    assert fields_at_fault(refusal({"step": 1, "shards": 2, field: value})) == [field]


@pytest.mark.parametrize("field", ["step", "minibatch", "minibatches", "attempt", "shard", "shards"])
def test_a_count_is_not_negative(field: str) -> None:
    assert fields_at_fault(refusal({"step": 1, field: -1})) == [field]


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({}, ["step"]),
        ({"step": None}, ["step"]),
        ({"step": 1, "minibatch": None}, ["minibatch"]),
        ({"step": 1, "shards": 0}, ["shards"]),
        ({"step": 1, "minibatches": 0}, ["minibatches"]),
        ({"step": 1, "shard": 2, "shards": 2}, ["shard"]),
        ({"step": 1, "shard": 1}, ["shard"]),
        ({"step": 1, "minibatch": 4, "minibatches": 4}, ["minibatch"]),
        ({"step": 1, "steps": 1}, ["steps"]),
        ({"step": 1, "run": "r1"}, ["run"]),
        ({"step": 1, "methods": []}, ["methods"]),
        ({"step": 1, "rollout": ""}, ["rollout"]),
        ({"step": 1, "rollout": 7}, ["rollout"]),
        ({"step": 1, "rollout": "x" * 257}, ["rollout"]),
        ({"step": 1, "rollout": "a\x00b"}, ["rollout"]),
        ({"step": 1, "labels": None}, ["labels"]),
        ({"step": 1, "labels": ["engine"]}, ["labels"]),
        ({"step": 1, "labels": {"gpu": 1}}, ["labels"]),
        ({"step": 1, "labels": {"gpu": "a\nb"}}, ["labels"]),
        ({"step": 1, "labels": {"g\x1bpu": "a"}}, ["labels"]),
        ({"step": 1, "labels": {str(index): "" for index in range(9)}}, ["labels"]),
        ({"step": 1, "sequence_ids": "abc"}, ["sequence_ids"]),
        ({"step": 1, "sequence_ids": ["a", 1]}, ["sequence_ids"]),
        ({"step": 1, "sequence_ids": ["a", None]}, ["sequence_ids"]),
        ({"step": 1, "sequence_ids": ["\ud800"]}, ["sequence_ids"]),
        ({"step": True, "shards": "2", "zeal": 1}, ["step", "shards", "zeal"]),
        ({"shard": 3, "attempt": 1.0, "step": 1}, ["attempt"]),
        ({"step": 1, "shard": 3, "minibatch": 1, "minibatches": 1}, ["shard", "minibatch"]),
    ],
)
def test_all_fields_at_fault_are_named(fields: dict[str, Any], at_fault: list[str]) -> None:
    assert fields_at_fault(refusal(fields)) == at_fault


#: One of each kind: a turn of the direction, its end, marks of a direction, invisible signs, ends of lines.
UNSEEN = "\u202e\u202c\u2066\u2069\u200e\u200f\u061c\xad\u200b\u2060\u206a\ufeff\ufffb\u180e\u2028\u2029\x85"


@pytest.mark.parametrize("letter", UNSEEN, ids=ascii)
def test_a_text_is_what_it_looks_like(letter: str) -> None:
    text = f"bo{letter}gnp.exe"
    for field, value in (
        ("labels", {"of": text}),
        ("labels", {text: "of"}),
        ("sequence_ids", [text]),
        ("rollout", text),
    ):
        refused = refusal({"step": 1, field: value})
        assert fields_at_fault(refused) == [field] and "turns text around" in refused.detail
        assert refused.detail.isprintable()
    assert not is_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h100",
        "\u05d0\u05d1",
        "\u0645\u06cc\u200c\u0634\u0648\u062f",
        "\U0001f469\u200d\U0001f52c \u2713\ufe0f",
        "\u65e5\u672c",
    ],
)
def test_letters_of_any_script_are_taken(text: str) -> None:
    envelope = parse_envelope(Envelope, {"step": 1, "labels": {text: text}, "sequence_ids": [text]}, LIMITS)
    assert envelope.labels == {text: text} and envelope.sequence_ids == [text] and is_text(text)


def test_the_detail_names_field_and_message() -> None:
    assert refusal({"step": 1, "shard": 3, "shards": 2}).detail == "shard: 3 must be less than shards (2)"
    assert refusal({}).detail == "step: required"
    assert refusal({"step": 1, "stop": 2}).detail == "stop: unknown field"


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"labels": {"k" * 5: "v"}}, "max_label_length"),
        ({"labels": {"k": "v" * 5}}, "max_label_length"),
        ({"sequence_ids": ["i" * 5]}, "max_sequence_id_length"),
        ({"sequence_ids": [""] * 5}, "max_sequences"),
    ],
)
def test_a_limit_is_refused_with_its_value_and_setting(fields: dict[str, Any], limit: str) -> None:
    refused = refusal({"step": 1, **fields}, **{limit: 4})
    (field,) = fields
    assert fields_at_fault(refused) == [field]
    assert "5 is over the limit of 4" in refused.detail
    assert f"OFFPOLICY_{limit.upper()}" in refused.detail
    assert parse_envelope(Envelope, {"step": 1, **fields}, replace(LIMITS, **{limit: 5})).step == 1


def test_many_unknown_fields_make_a_short_answer() -> None:
    refused = refusal({"x" * 1000 + str(index): index for index in range(1000)})
    assert len(refused.errors) == 32
    assert len(refused.detail) < 4000


def test_a_field_name_of_half_a_surrogate_can_be_encoded() -> None:
    refused = refusal({"step": 1, "\ud800": 1})
    assert refused.detail.encode()
    assert all(error.field.encode() for error in refused.errors)


def test_an_evaluation_needs_no_step_and_may_ask_for_methods() -> None:
    assert parse_envelope(EvaluateEnvelope, {}, LIMITS).methods is None
    rows = [{"name": "tight", "method": "opsm", "delta": 0.001}]
    assert parse_envelope(EvaluateEnvelope, {"methods": rows}, LIMITS).methods == rows


@pytest.mark.parametrize("methods", [{}, "opsm", ["opsm"], [1], [None]])
def test_methods_are_a_list_of_objects(methods: object) -> None:
    assert fields_at_fault(refusal({"methods": methods}, EvaluateEnvelope)) == ["methods"]


def test_more_methods_than_the_limit_are_refused() -> None:
    refused = refusal({"methods": [{}] * 3}, EvaluateEnvelope, max_methods=2)
    assert "OFFPOLICY_MAX_METHODS" in refused.detail


def test_the_table_holds_the_arrays_of_the_contract() -> None:
    assert {name: (row.kind, row.per) for name, row in ARRAYS.items()} == {
        "sampling_logprobs": ("log-prob", "token"),
        "old_logprobs": ("log-prob", "token"),
        "logprobs": ("log-prob", "token"),
        "engine_logprobs": ("log-prob", "token"),
        "old_logprobs_repeat": ("log-prob", "token"),
        "old_support_logprobs": ("log-prob", "token"),
        "support_logprobs": ("log-prob", "token"),
        "lengths": ("int", "sequence"),
        "mask": ("mask", "token"),
        "advantages": ("float", "either"),
        "policy_versions": ("int", "either"),
        "rewards": ("float", "sequence"),
        "group_ids": ("int", "sequence"),
        "turns": ("int", "token"),
        "entropy": ("float", "token"),
        "sampling_experts": ("experts", "token"),
        "old_experts": ("experts", "token"),
        "experts": ("experts", "token"),
    }
