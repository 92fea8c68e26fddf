"""What PATCH may change of a run, and how its small JSON body is read."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.config import JsonDict

from offpolicy_monitor.access import AccessToken
from offpolicy_monitor.alerts import RULES, SEVERITIES, WALL_CLOCK_RULES
from offpolicy_monitor.errors import MAX_ERRORS, FieldError, Refusal, quotable, quoted
from offpolicy_monitor.methods import COMPARED, ON_REQUEST, PRESETS, parse_selection, restored
from offpolicy_monitor.server.http.body import read_small
from offpolicy_monitor.settings import Settings
from offpolicy_monitor.vocabulary import PROFILES, Profile
from offpolicy_monitor.wire.schema import MAX_LABELS, WORDING, Text

Finite = Annotated[float, Field(allow_inf_nan=False)]
EXAMPLE: Final[JsonDict] = {"methods": ["opsm", "tis_token", {"name": "tight", "method": "opsm", "delta": 0.001}]}

#: What a trainer says of its own run: a token with scope ingest is enough.
OF_TRAINERS: Final = frozenset({"profile", "labels", "finished"})
#: More tokens than any answer has.
MAX_LENGTH_CAP: Final = 1 << 40
#: What an entry may hold is the catalogue's business; here it is described, and read by `parse_selection`.
MethodEntry = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": [preset.name for preset in (*PRESETS, *ON_REQUEST)]},
                {"type": "object", "required": ["method"], "description": "A row as in /v1/evaluate."},
            ]
        }
    ),
]


class RuleChanges(BaseModel):
    """What a run has of its own for one rule; null for a threshold is no such severity. What is left out stays."""

    model_config = ConfigDict(extra="forbid", strict=True)

    enabled: bool = Field(True, description="Whether the run wants this rule.")
    steps: int = Field(
        1,
        ge=1,
        le=1000,
        description="Breaching steps that make an alert; of five or more, two between them may be better.",
    )
    info: Finite | None = None
    warning: Finite | None = None
    critical: Finite | None = None


class RunChanges(BaseModel):
    """The fields to change; those left out stay. `labels` replaces all labels."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [EXAMPLE]})

    profile: Profile = Field(PROFILES[0], description="What is normal for this run: the thresholds follow from it.")
    labels: Annotated[dict[Text, Text], Field(max_length=MAX_LABELS)] = Field({}, description="At most 8 pairs.")
    methods: list[MethodEntry] | None = Field(
        None, description="What runs on every batch from now on: names of presets, and rows; null for the default ones."
    )
    correction: str | None = Field(
        None, description="Name of the row that the trainer really uses: rules on masks look at it. Null: not known."
    )
    length_cap: int | None = Field(
        None, ge=1, le=MAX_LENGTH_CAP, description="Tokens that an answer may have at most. Null: not known."
    )
    alerts: dict[str, RuleChanges] = Field({}, description="Thresholds of this run's own, by rule; replaces all.")
    finished: bool = Field(False, description="The run is over: its alerts are resolved. A later step reopens it.")

    def given(self) -> dict[str, Any]:
        """The fields that were sent, by the names of Store.update_run."""
        sent = self.model_dump(exclude_unset=True)
        return {"overrides" if name == "alerts" else name: value for name, value in sent.items()}


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
    check_rules(changes.alerts)
    if changes.methods is not None:
        return changes.model_copy(update={"methods": _definitions(changes.methods, settings)})
    return changes


def check_scope(token: AccessToken | None, changes: RunChanges) -> None:
    """Refusal 403 where a token that is for posting changes more than a trainer says of its own run."""
    more = sorted(changes.model_fields_set - OF_TRAINERS)
    if token is not None and not token.has(["admin"]) and more:
        own = ", ".join(sorted(OF_TRAINERS))
        message = f"{', '.join(more)} needs scope admin; the token {token.id} may set {own}"
        raise Refusal(403, "scope-missing", message)


def read_overrides(document: object) -> dict[str, Any]:
    """What PATCH takes as `alerts`, as it is kept; Refusal 422 naming each field at fault."""
    try:
        changes = RunChanges.model_validate({"alerts": document})
    except ValidationError as error:
        raise _refusal(error) from error
    check_rules(changes.alerts)
    return dict(changes.given()["overrides"])


def check_rules(changes: Mapping[str, RuleChanges]) -> None:
    """Refusal 422 for what is no rule, or no severity of its rule."""
    for rule, change in changes.items():
        _check_rule(rule, change)


def check_correction(name: str | None, chosen: Sequence[Mapping[str, Any]] | None) -> None:
    """Refusal 422 where no row of this name runs; `chosen` are the run's rows, None for the default ones."""
    rows = [preset.name for preset in PRESETS] if chosen is None else [row["name"] for row in chosen]
    if name is not None and name not in rows:
        raise Refusal.of_field(
            422, "invalid-field", "correction", f"{quoted(name)} is not among the rows: {', '.join(rows)}"
        )


def _check_rule(name: str, change: RuleChanges) -> None:
    rule = next((rule for rule in (*RULES, *WALL_CLOCK_RULES) if rule.name == name), None)
    if rule is None:
        names = ", ".join(rule.name for rule in (*RULES, *WALL_CLOCK_RULES))
        raise Refusal.of_field(422, "invalid-field", f"alerts.{quotable(name)}", f"is no rule; rules: {names}")
    for severity in SEVERITIES:
        if severity in change.model_fields_set and severity not in rule.severities:
            message = f"{name} has no such severity; it has {', '.join(rule.severities)}"
            raise Refusal.of_field(422, "invalid-field", f"alerts.{name}.{severity}", message)


def with_methods_in_effect(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run with all its method rows in full, whether they are the default ones, which of them are compared with the
    correction in use, and what asks what-if of each."""
    default = run["methods"] is None
    rows = {row.name: row for row in (PRESETS if default else restored(run["methods"]))}
    return {
        **run,
        "methods": [row.definition for row in rows.values()],
        "default_methods": default,
        "compared": [name for name in COMPARED if name in rows and name != run["correction"]],
        "whatif": {name: row.whatif for name, row in rows.items() if row.whatif is not None},
    }


def _definitions(entries: list[Any], settings: Settings) -> list[dict[str, Any]]:
    limit, variable = settings.max_run_methods, settings.variable("max_run_methods")
    if len(entries) > limit:
        raise Refusal.over_limit(422, "over-limit", "methods", len(entries), limit, variable)
    return [row.definition for row in parse_selection(entries)]


def _refusal(error: ValidationError) -> Refusal:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if any(item["type"] == "json_invalid" for item in found):
        return Refusal(400, "malformed-body", "the body is not valid JSON")
    errors = [FieldError(_field(item["loc"]), WORDING.get(item["type"], item["msg"])) for item in found[:MAX_ERRORS]]
    return Refusal(422, "invalid-field", "; ".join(f"{e.field}: {e.message}" for e in errors), errors)


def _field(location: tuple[int | str, ...]) -> str:
    """The field at fault; inside the run's own thresholds the path to it, for the rest its name."""
    parts = [quotable(str(part)) for part in location] or ["body"]
    return ".".join(parts) if parts[0] == "alerts" else parts[0]
