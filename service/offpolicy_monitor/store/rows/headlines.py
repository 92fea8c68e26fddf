"""The headline figures of steps, one row per step: numbers in a row, their names once for all steps that have the same.

So a figure of thousands of steps is read in milliseconds, and a step's figures take eight bytes each. Every function
takes the caller's connection.
"""

import hashlib
import json
import struct
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, select

from offpolicy_monitor.store.rows.statement import INSERT, Statement, putting
from offpolicy_monitor.store.rows.tables import metric_names, metrics

#: Ids in one statement.
CHUNK: Final = 500
SIZE: Final = struct.calcsize("<d")
#: Ids of sets of names: those that are committed, and those of the transaction itself.
Ids = MutableMapping[tuple[str, ...], int]


def write(connection: Connection, figures: Mapping[int, Mapping[str, float]], known: Ids) -> None:
    """Keep the figures of steps, by the ids of their rows, in place of those that they had.

    Most steps have the same names as the one before: `known` is what was found of them, and learns what is found now.
    """
    rows = []
    for step, of_step in figures.items():
        names = tuple(of_step)
        if names not in known:
            known[names] = _id(connection, json.dumps(names, separators=(",", ":")))
        rows.append({"step_id": step, "names_id": known[names], "figures": _packed(of_step.values())})
    _PUT.run(connection, *rows)


def read(connection: Connection, steps: Sequence[int]) -> dict[int, dict[str, float]]:
    """The figures of steps, by the ids of their rows; one that has none is left out."""
    rows = [
        row
        for start in range(0, len(steps), CHUNK)
        for row in connection.execute(select(metrics).where(metrics.c.step_id.in_(steps[start : start + CHUNK])))
    ]
    names = names_of(connection, {row.names_id for row in rows})
    return {row.step_id: dict(zip(names[row.names_id], _unpacked(row.figures), strict=True)) for row in rows}


def names_of(connection: Connection, ids: Iterable[int]) -> dict[int, list[str]]:
    """The names that rows name by these ids, in the order of their numbers."""
    wanted = list(ids)
    query = select(metric_names.c.id, metric_names.c.names)
    found = (
        row
        for start in range(0, len(wanted), CHUNK)
        for row in connection.execute(query.where(metric_names.c.id.in_(wanted[start : start + CHUNK])))
    )
    return {row.id: json.loads(row.names) for row in found}


def columns_of(
    connection: Connection,
    rows: Sequence[tuple[int | None, bytes | None]],
    paths: Sequence[str],
    names: dict[int, list[str]],
) -> NDArray[np.float64]:
    """[F, n] float64: the figures at F paths of n rows (names_id, figures), NaN where a row has none.

    Rows that have the same names are read as one table. `names` are those that are known by their ids, and learns those
    that are read.
    """
    found = np.full((len(paths), len(rows)), np.nan)
    at: dict[int, list[int]] = {}
    for index, (names_id, _) in enumerate(rows):
        if names_id is not None:
            at.setdefault(names_id, []).append(index)
    if new := at.keys() - names.keys():
        names |= names_of(connection, new)
    for names_id, indices in at.items():
        known = names[names_id]
        table = np.frombuffer(b"".join(rows[index][1] or b"" for index in indices), "<f8")
        table = table.reshape(-1, len(known))
        for field, path in enumerate(paths):
            if path in known:
                found[field, indices] = table[:, known.index(path)]
    return found


def _id(connection: Connection, text: str) -> int:
    """The id of a set of names, which is entered where it is new."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    found = _ID.rows(connection, digest=digest)
    if not found:
        entering = INSERT[connection.dialect.name](metric_names).on_conflict_do_nothing()
        connection.execute(entering, {"digest": digest, "names": text})
        found = _ID.rows(connection, digest=digest)
    [(known,)] = found
    return int(known)


def _packed(values: Collection[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def _unpacked(figures: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(figures) // SIZE}d", figures)


_PUT: Final = putting(metrics)
_ID: Final = Statement(select(metric_names.c.id).where(metric_names.c.digest == bindparam("digest", required=True)))
