"""Our own JSONL: one batch per line, each line the JSON body of POST /v1/runs/{run}/batches.

A file may grow while it is read. A last line without its end is taken where it is a whole JSON object, which half of
one can never be; else it is waited for.
"""

from collections.abc import Iterator
from pathlib import Path

from offpolicy_monitor.client.files.lines import Line, lines
from offpolicy_monitor.client.files.record import Bad, Item, Record, Unfinished, Unreadable
from offpolicy_monitor.wire.arrays import ARRAYS


def read(path: Path, start: int = 0, number: int = 0) -> Iterator[Item]:
    """The batches behind byte `start`, the end of line `number`. Raises Unfinished at a torn last line."""
    for line in lines(path, start, number):
        where = f"{path}:{line.number}"
        try:
            yield _record(where, line)
        except Unreadable as error:
            if line.torn:
                raise Unfinished(f"{where}: the last line is not whole yet") from error
            yield Bad(where, str(error), line.end, line.number)


def _record(where: str, line: Line) -> Record:
    value = line.object(nan=False)
    arrays = {name: value.pop(name) for name in ARRAYS if name in value}
    for name in ("step", "minibatch", "shard"):
        given = value.get(name, None if name == "step" else 0)
        if type(given) is not int or given < 0:
            raise Unreadable(f"{name} must be an integer of at least 0, not {given!r}")
    return Record(where, value, arrays, line.end, line.number)
