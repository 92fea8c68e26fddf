"""JSON schemas of the fields that hold figures, for the OpenAPI document: they follow from the catalogue and the kinds.

The rows of the catalogue say what a figure means, the kinds of tables which answers have a field, and when.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from offpolicy_monitor.figures import FIGURES, Figure
from offpolicy_monitor.figures.rows.methods import CORRECTION
from offpolicy_monitor.summary.evaluation import OF_A_SEQUENCE
from offpolicy_monitor.summary.figure import under
from offpolicy_monitor.summary.step import DETAILS, MARKS
from offpolicy_monitor.summary.tables import KINDS

Schema = dict[str, Any]
_WHEN: Final = {kind.name: kind.when for kind in KINDS if kind.when}


def _fields(figures: Iterable[Figure]) -> dict[str, Schema]:
    """The schema of each field by its name: `gaps` is an object by gap of what each gap has."""
    tree: dict[str, Any] = {}
    for figure in figures:
        *above, last = figure.path.split(".")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = figure
    return {
        name: _schema(node) | ({"description": _WHEN[name]} if name in _WHEN else {}) for name, node in tree.items()
    }


def _schema(node: Any) -> Schema:
    """What has a name for a key is a list where that is an index, else an object by it."""
    if isinstance(node, Figure):
        unit = f" ({node.unit})" if node.unit else ""
        return {"type": "integer" if node.is_whole else "number", "description": f"{node.meaning}{unit}"}
    key, below = next(iter(node.items()))
    if key == "{index}":
        return {"type": "array", "items": _below(below)}
    if key.startswith("{"):
        return {"type": "object", "additionalProperties": _below(below)}
    return {"type": "object", "properties": {name: _below(one) for name, one in node.items()}}


def _below(node: Any) -> Schema:
    """Of what a field holds: any figure may be null, and what is there only where something has all three log-probs."""
    return or_null(_schema(node))


def or_null(schema: Schema) -> Schema:
    """The same or null."""
    return {**schema, "type": [schema["type"], "null"]}


#: The fields of a merged step that hold figures; `correction` is none, but another name of a method row.
OF_A_STEP: Final[Mapping[str, Schema]] = _fields(figure for figure in FIGURES if figure not in CORRECTION)
#: Those that an answer about a shard alone has too.
OF_A_SHARD: Final[Mapping[str, Schema]] = {
    name: schema for name, schema in OF_A_STEP.items() if name not in (*DETAILS, *MARKS)
}
OF_A_METHOD: Final[Schema] = OF_A_STEP["methods"]["additionalProperties"]


def _per_sequence(of_each: Schema, description: str) -> Schema:
    return {"type": "array", "items": of_each, "description": description}


def _per_position(of_each: Schema, description: str) -> Schema:
    return _per_sequence(
        {"type": "array", "items": of_each}, f"{description}; a list per sequence, one entry per position"
    )


_KEPT: Final[Schema] = {"type": "integer", "enum": [0, 1]}
#: The same of an evaluation, with what a row decides.
OF_AN_EVALUATED_METHOD: Final[Schema] = OF_A_METHOD | {
    "properties": OF_A_METHOD["properties"]
    | {
        "keep_sequences": _per_sequence(_KEPT, "1 where some valid token is kept; with detail sequence or token"),
        "keep_tokens": _per_position(_KEPT, "1 where the token is kept, 0 where it is invalid; with detail token"),
        "weights": _per_position(
            {"type": "number"}, "0 where the token is invalid; with detail token, of a method that gives any"
        ),
    }
}
#: What an evaluation says of one sequence.
OF_ONE_SEQUENCE: Final[Schema] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "as sent in `sequence_ids`"},
        **_fields((Figure("tokens", "tokens", "under the mask"), *under("gaps.{gap}", OF_A_SEQUENCE))),
    },
    "required": ["tokens", "gaps"],
}
