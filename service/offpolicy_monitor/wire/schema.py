"""The envelope of a body as a strict model.

Knows names, types, ranges and which combinations are allowed; not how either media type spells them, and no arrays. A
body's envelope is refused with every field at fault, not with the first one.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from offpolicy_monitor.errors import MAX_ERRORS, FieldError, quotable
from offpolicy_monitor.vocabulary import LARGEST_VERSION, TEXT, TEXT_MUST
from offpolicy_monitor.wire.arrays import all_invalid
from offpolicy_monitor.wire.limits import Limits

MAX_INTEGER = (1 << 63) - 1  # the database's widest integer is signed, 64 bits
MAX_LABELS = 8
MAX_ROLLOUT_LENGTH = 256

Natural = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Positive = Annotated[int, Field(ge=1, le=MAX_INTEGER)]
Text = Annotated[str, StringConstraints(pattern=TEXT)]
Name = Annotated[str, StringConstraints(pattern=TEXT, min_length=1, max_length=MAX_ROLLOUT_LENGTH)]


def _few(labels: object) -> object:
    """Refuse too many pairs before each of them is looked at: a body of millions would be as many errors."""
    if isinstance(labels, dict) and len(labels) > MAX_LABELS:
        told = {"pairs": len(labels), "most": MAX_LABELS}
        raise PydanticCustomError("too_many_labels", "{pairs} pairs, but at most {most} are allowed", told)
    return labels


class Envelope(BaseModel):
    """The envelope of one shard. Integers are JSON integers of at most 64 bits; unknown fields are refused.

    `step`, `minibatch`, `minibatches`, `attempt`, `shard` and `shards` say which shard it is; `policy_version` is that
    of the current policy; `rollout` names the rollout of a two-phase post; `labels` and `sequence_ids` are for finding
    again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    step: Natural
    minibatch: Natural = 0
    minibatches: Positive | None = None
    attempt: Natural = 0
    shard: Natural = 0
    shards: Positive = 1
    policy_version: Annotated[int, Field(ge=-LARGEST_VERSION, le=LARGEST_VERSION)] | None = None
    rollout: Name | None = None
    labels: Annotated[dict[Text, Text], BeforeValidator(_few)] = {}
    sequence_ids: Annotated[list[Text], Field(fail_fast=True)] | None = None


class EvaluateEnvelope(Envelope):
    """The envelope of a stateless evaluation: `step` may be left out, `methods` may be given."""

    step: Natural = 0
    methods: Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None = None


AnyEnvelope = TypeVar("AnyEnvelope", bound=Envelope)


def parse_envelope(model: type[AnyEnvelope], fields: Mapping[str, object], limits: Limits) -> AnyEnvelope:
    """Validate the envelope's fields. Raises Refusal 422 naming all fields at fault (the first 32)."""
    known, unknown = fields, list[FieldError]()
    if not fields.keys() <= model.model_fields.keys():
        known = {name: value for name, value in fields.items() if name in model.model_fields}
        others = (name for name in fields if name not in known)
        unknown = [FieldError(name, "unknown field") for name in islice(others, MAX_ERRORS)]
    try:
        envelope = model.model_validate(known)
    except ValidationError as error:
        raise all_invalid([*_field_errors(error), *unknown]) from error
    if unknown:
        raise all_invalid(unknown)
    errors = _disagreements(envelope)
    if errors:
        raise all_invalid(errors)
    _check_limits(envelope, limits)
    return envelope


# pydantic's wording for these speaks of "inputs", which a reader of a problem document has not heard of.
WORDING = {
    "missing": "required",
    "extra_forbidden": "unknown field",
    "string_pattern_mismatch": TEXT_MUST,
}


def _field_errors(error: ValidationError) -> list[FieldError]:
    """One FieldError per problem: the envelope's own field, and in the message where inside it."""
    found = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        field, *inside = (quotable(str(part)) for part in problem["loc"] or ("envelope",))
        message = WORDING.get(problem["type"], problem["msg"])
        found.append(FieldError(field, f"{'.'.join(inside)}: {message}" if inside else message))
    return found


def _disagreements(envelope: Envelope) -> list[FieldError]:
    """Fields that are each in range but not together."""
    errors = []
    if envelope.shard >= envelope.shards:
        errors.append(FieldError("shard", f"{envelope.shard} must be less than shards ({envelope.shards})"))
    if envelope.minibatches is not None and envelope.minibatch >= envelope.minibatches:
        message = f"{envelope.minibatch} must be less than minibatches ({envelope.minibatches})"
        errors.append(FieldError("minibatch", message))
    return errors


def _check_limits(envelope: Envelope, limits: Limits) -> None:
    for text in (*envelope.labels.keys(), *envelope.labels.values()):
        limits.check("max_label_length", "labels", len(text))
    ids = envelope.sequence_ids or ()
    limits.check("max_sequences", "sequence_ids", len(ids))
    limits.check("max_sequence_id_length", "sequence_ids", max(map(len, ids), default=0))
    if isinstance(envelope, EvaluateEnvelope):
        limits.check("max_methods", "methods", len(envelope.methods or ()))
