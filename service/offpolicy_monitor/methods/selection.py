"""The rows chosen for a run: names of presets, or rows of the caller's own -> MethodRow; and those that were kept.

Row names are labels of metrics and parts of a series' path (`methods.NAME.masked_token_fraction`), so they are stricter
here than in a stateless evaluation: letters, digits, `_` and `-`, each name once. Knows no run and no database.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from offpolicy_monitor.errors import quoted
from offpolicy_monitor.methods.catalogue import METHODS
from offpolicy_monitor.methods.model import MethodRow
from offpolicy_monitor.methods.parse import parse_row, refusal
from offpolicy_monitor.methods.presets import ON_REQUEST, PRESETS

#: No dots: they part the names in a series' path.
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PRESETS: Final = {preset.name: preset for preset in (*PRESETS, *ON_REQUEST)}


def parse_selection(entries: Sequence[Any]) -> tuple[MethodRow, ...]:
    """Check entries in order; a Refusal (422) names the field at fault, `methods[i]` or `methods[i].key`."""
    chosen: dict[str, MethodRow] = {}
    for index, entry in enumerate(entries):
        row = _entry(entry, f"methods[{index}]")
        if row.name in chosen:
            first = list(chosen).index(row.name)
            raise refusal(_name_field(entry, index), f"{row.name!r} is the name of methods[{first}] already")
        chosen[row.name] = row
    return tuple(chosen.values())


def restored(definitions: Sequence[Mapping[str, Any]]) -> tuple[MethodRow, ...]:
    """Rows from their definitions (`MethodRow.definition`), which were checked when they were chosen."""
    return tuple(_restored(definition) for definition in definitions)


def _entry(entry: Any, field: str) -> MethodRow:
    if isinstance(entry, str):
        if entry not in _PRESETS:
            raise refusal(field, f"{quoted(entry)} is no preset; presets: {', '.join(_PRESETS)}")
        return _PRESETS[entry]
    if not isinstance(entry, Mapping):
        raise refusal(field, "must be the name of a preset, or an object")
    row = parse_row(entry, field)
    if NAME.fullmatch(row.name) is None:
        raise refusal(f"{field}.name", "must be 1 to 64 letters, digits, '_' or '-', the first a letter or a digit")
    return row


def _name_field(entry: Any, index: int) -> str:
    return f"methods[{index}]" if isinstance(entry, str) else f"methods[{index}].name"


def _restored(definition: Mapping[str, Any]) -> MethodRow:
    method = METHODS[definition["method"]]
    parameters = {name: definition.get(name) for name in method.parameters}
    return MethodRow(definition["name"], method, definition["gap"], definition["level"], parameters)
