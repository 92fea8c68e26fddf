"""JSON schemas of figures for the OpenAPI document, made of the rows of the catalogue: meanings and units."""

from typing import Any

from offpolicy_monitor.figures import FIGURES, Figure

Schema = dict[str, Any]


def figures_below(prefix: str) -> Schema:
    """The schema of the figures below a pattern: `gaps` is an object by gap of what each gap has."""
    tree: dict[str, Any] = {}
    for figure in FIGURES:
        if figure.path.startswith(f"{prefix}."):
            *above, last = figure.path.removeprefix(f"{prefix}.").split(".")
            node = tree
            for key in above:
                node = node.setdefault(key, {})
            node[last] = figure
    return _schema(tree)


def _schema(node: Any) -> Schema:
    """What has a name for a key is a list where that is an index, else an object by it."""
    if isinstance(node, Figure):
        unit = f" ({node.unit})" if node.unit else ""
        return {"type": ["number", "null"], "description": f"{node.meaning}{unit}"}
    key, below = next(iter(node.items()))
    if key == "{index}":
        return {"type": "array", "items": _schema(below)}
    if key.startswith("{"):
        return {"type": "object", "additionalProperties": _schema(below)}
    return {"type": "object", "properties": {name: _schema(one) for name, one in node.items()}}
