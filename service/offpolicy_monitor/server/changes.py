"""What PATCH may change of a run, and how its small JSON body is read."""

from typing import Annotated, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offpolicy_monitor.errors import FieldError, Refusal
from offpolicy_monitor.server.body import read_small
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.wire.schema import MAX_LABELS, Text

Profile = Literal["dense_bf16", "moe_bf16", "fp8", "fp4", "bitwise"]


class RunChanges(BaseModel):
    """The fields to change; those left out stay. `labels` replaces all labels."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"profile": "moe_bf16"}]})

    profile: Profile = Field("dense_bf16", description="What is normal for this run: the thresholds follow from it.")
    labels: Annotated[dict[Text, Text], Field(max_length=MAX_LABELS)] = Field({}, description="At most 8 pairs.")


async def read_changes(request: Request, settings: Settings) -> RunChanges:
    """The body of a PATCH; Refusal 400 where it is no JSON, 422 naming each field at fault."""
    body = await read_small(request, settings)
    try:
        changes = RunChanges.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from error
    for text in (*changes.labels.keys(), *changes.labels.values()):
        if len(text) > settings.max_label_length:
            limit, variable = settings.max_label_length, settings.variable("max_label_length")
            raise Refusal.over_limit(422, "over-limit", "labels", len(text), limit, variable)
    return changes


def _refusal(error: ValidationError) -> Refusal:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if any(item["type"] == "json_invalid" for item in found):
        return Refusal(400, "malformed-body", "the body is not valid JSON")
    errors = [FieldError(str(item["loc"][0]) if item["loc"] else "body", item["msg"]) for item in found]
    return Refusal(422, "invalid-field", "; ".join(f"{e.field}: {e.message}" for e in errors), errors)
