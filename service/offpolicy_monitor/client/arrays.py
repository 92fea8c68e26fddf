"""Arrays: what `Monitor.log` and `Monitor.evaluate` are given by name, read and checked against each other.

Knows the shapes that arrays may have, and not where they go.
"""

from collections.abc import Mapping
from typing import Any

from offpolicy_monitor.client.shapes import check, lengths_of_rows
from offpolicy_monitor.client.values import Value, read


def values_of(arrays: Mapping[str, Any], rollout: bool) -> dict[str, Value]:
    """The arrays by name, checked against each other; lengths of rows are filled in."""
    values = {name: read(name, value) for name, value in arrays.items() if value is not None}
    check(values, rollout)
    lengths = lengths_of_rows(values)
    if lengths is not None and "lengths" not in values:
        values["lengths"] = read("lengths", lengths)
    return values


def bfloat16(values: Mapping[str, Value]) -> frozenset[str]:
    """Names of those whose values came as bfloat16."""
    return frozenset(name for name, value in values.items() if value.bfloat16)
