"""Rows as a caller sent them -> MethodRow, or a refusal that names the field at fault."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.errors import FieldError, Refusal, quotable, quoted
from offpolicy_monitor.methods.catalogue import METHODS
from offpolicy_monitor.methods.model import REQUIRED, Choice, MethodRow, Parameter, RowError, Sent
from offpolicy_monitor.vocabulary import GAPS

LARGEST: Final = sys.float_info.max


def parse_row(row: Mapping[str, Any], field: str = "methods") -> MethodRow:
    """Check one row as it came; a Refusal (422) names the field at fault, prefixed by `field`."""
    method = METHODS.get(_text(row, "method", field, tuple(METHODS), None))
    assert method is not None
    known = {"name", "method", "gap", "level", *method.parameters}
    for key in row:
        if key not in known:
            raise refusal(
                f"{field}.{quotable(key)}", f"is no parameter of {method.name}; it has {', '.join(sorted(known))}"
            )
    name = row.get("name", method.name)
    if not isinstance(name, str) or not 0 < len(name) <= 128:
        raise refusal(f"{field}.name", "must be a string of 1 to 128 characters")
    gap = _text(row, "gap", field, GAPS, method.gap)
    level = _text(row, "level", field, method.levels, method.levels[0])
    parameters = {key: _parameter(row, key, parameter, field) for key, parameter in method.parameters.items()}
    try:
        return MethodRow(name, method, gap, level, method.check(Sent(row, level, parameters)))
    except RowError as error:
        raise refusal(f"{field}.{error.key}", error.message) from error


def parse_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[MethodRow, ...]:
    """Check rows in order; the field of a refusal is `methods[i].key`."""
    parsed = []
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise refusal(f"methods[{index}]", "must be an object")
        parsed.append(parse_row(row, f"methods[{index}]"))
    return tuple(parsed)


def refusal(field: str, message: str) -> Refusal:
    """A row is wrong: 422 with the field at fault."""
    return Refusal(422, "invalid-method", f"{field}: {message}", [FieldError(field, message)])


def _text(row: Mapping[str, Any], key: str, field: str, options: tuple[str, ...], default: str | None) -> str:
    value = row.get(key, default)
    if value not in options:
        raise refusal(f"{field}.{key}", f"must be one of {', '.join(options)}; got {quoted(value)}")
    return str(value)


def _parameter(row: Mapping[str, Any], key: str, parameter: Parameter, field: str) -> Any:
    if isinstance(parameter, Choice):
        return _text(row, key, field, parameter.options, parameter.options[0])
    value = row.get(key)
    if value is None and parameter.default != REQUIRED:
        return parameter.default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refusal(f"{field}.{key}", "is required" if value is None else "must be a number")
    low, high = parameter.within
    if not -LARGEST <= value <= LARGEST or not low <= value <= high:
        raise refusal(f"{field}.{key}", f"must be a finite number from {low} to {high}; got {quoted(value)}")
    return float(value)
