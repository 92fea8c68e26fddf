"""A JSON body: its lists as sent arrays.

Knows which JSON values may stand in which array and how nested lists spell packed, padded and ragged forms. Numbers are
read as float32: one beyond its range is an infinity, as it would be in a float32 tensor.
"""

import gc
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
import orjson

from offpolicy_monitor.batch import Array
from offpolicy_monitor.errors import Refusal
from offpolicy_monitor.wire.arrays import ARRAYS, ArrayRow, Kind, invalid
from offpolicy_monitor.wire.json_text import occurrences
from offpolicy_monitor.wire.limits import Limits
from offpolicy_monitor.wire.sent import SentArray, check_inner, check_rows

TYPES: Mapping[Kind, frozenset[type]] = {
    "log-prob": frozenset({int, float, NoneType}),
    "float": frozenset({int, float, NoneType}),
    "int": frozenset({int}),
    "mask": frozenset({bool, int, float}),
    "experts": frozenset({int}),
}
WANTED: Mapping[Kind, str] = {
    "log-prob": "numbers or null",
    "float": "numbers or null",
    "int": "integers",
    "mask": "0, 1, true or false",
    "experts": "integers",
}

# What parses lets no other thread run anyway.
_ONE_AT_A_TIME = threading.Lock()


def parse_json(body: memoryview, limits: Limits) -> tuple[dict[str, object], dict[str, SentArray]]:
    """The envelope's fields (unknown keys among them) and the arrays. Raises Refusal 400, 413, 422."""
    if len(body) > limits.max_json_bytes:
        raise limits.refusal(413, "max_json_bytes", "body", len(body))
    lists = sum(occurrences(body, "[{").values())
    if lists > limits.max_json_lists:
        raise limits.refusal(422, "max_json_lists", "body", f"{lists} lists and objects")
    with _uncollected():
        value = _parsed(body)
        if not isinstance(value, dict):
            raise invalid("body", "must be a JSON object")
        arrays = {name: _sent(ARRAYS[name], value.pop(name), limits) for name in ARRAYS if name in value}
    return value, arrays


@contextmanager
def _uncollected() -> Iterator[None]:
    """Python's collector, which would look for cycles in a million lists, waits until arrays have taken their place."""
    with _ONE_AT_A_TIME:
        collecting = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collecting:
                gc.enable()


def _parsed(body: memoryview) -> object:
    """The value of the text."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(400, "malformed-body", f"the body is not valid JSON: {error}") from error


def _sent(row: ArrayRow, value: object, limits: Limits) -> SentArray:
    if not isinstance(value, list):
        raise invalid(row.name, f"must be a list, not {_json_type(type(value))}")
    widths, items = _unnest(row, value)
    rows = widths.pop(0) if _is_rows(row, widths, items) else None
    if rows is not None and row.per == "sequence":
        raise invalid(row.name, "must be one flat list with an entry per sequence")
    count = len(value) if rows is None else sum(rows)
    check_rows(row.name, len(rows or ()), max(rows or (), default=0), count, limits)
    inner = _inner(row, widths)
    check_inner(row.name, count, inner)
    dtype, values = _array(row, items)
    lengths = None if rows is None else np.array(rows, np.int64)
    return SentArray(row.name, dtype, values.reshape(count, *inner), lengths)


def _unnest(row: ArrayRow, value: list[Any]) -> tuple[list[list[int]], list[Any]]:
    """Take the outer lists off: the widths of the lists on each level, outermost first, and the innermost items."""
    widths: list[list[int]] = []
    while value and len(widths) <= row.inner_rank and set(map(type, value)) == {list}:
        widths.append(list(map(len, value)))
        value = list(chain.from_iterable(value))
    unwanted = set(map(type, value)) - TYPES[row.kind]
    if unwanted:
        found = ", ".join(sorted(map(_json_type, unwanted)))
        raise invalid(row.name, f"must hold {WANTED[row.kind]}, all nested alike, but holds {found}")
    return widths, value


def _is_rows(row: ArrayRow, widths: list[list[int]], items: list[Any]) -> bool:
    """Whether the outermost lists are the sequences; where all are empty, what would be in them need not show."""
    return len(widths) == row.inner_rank + 1 or (not items and bool(widths) and not any(widths[0]))


def _inner(row: ArrayRow, widths: list[list[int]]) -> tuple[int, ...]:
    """[layers, k] from the widths behind the positions, which must all be equal."""
    if row.inner_rank == 0:
        return ()
    if not widths:
        return (0,) * row.inner_rank
    if len(widths) != row.inner_rank or any(len(set(level)) > 1 for level in widths):
        raise invalid(row.name, "each position must hold the same number of layers, and each layer of experts")
    return tuple(level[0] if level else 0 for level in widths)


def _array(row: ArrayRow, items: list[Any]) -> tuple[str, Array]:
    try:
        if row.kind in ("log-prob", "float"):
            return "float32", _float32(items)
        if row.kind == "mask":
            return "float64", np.array(items, np.float64)
        return ("int64", np.array(items, np.int64)) if row.kind == "int" else ("uint16", _experts(row, items))
    except OverflowError as error:
        raise invalid(row.name, "an integer is beyond 64 bits") from error


def _float32(items: list[Any]) -> Array:
    with np.errstate(over="ignore"):
        return np.array(items, np.float64).astype(np.float32)


def _experts(row: ArrayRow, items: list[Any]) -> Array:
    ids = np.array(items, np.int64)
    if len(ids) and (ids.min() < 0 or ids.max() > np.iinfo(np.uint16).max):
        raise invalid(row.name, "an expert id must be from 0 to 65535")
    return ids.astype(np.uint16)


JSON_TYPES: Mapping[type, str] = {
    NoneType: "null", bool: "a boolean", str: "a string", dict: "an object", list: "a list", float: "a fraction"
}  # fmt: skip


def _json_type(kind: type) -> str:
    return JSON_TYPES.get(kind, "a number")
