"""Tail: new lines of growing files, in step order, from where each was left.

A file is known by its first line and the bytes before the position reached, not by its name: a rotation renames it, and
a truncation makes it another. Knows lines and the state; posts through a Delivery.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from offpolicy_monitor.client.files import jsonl
from offpolicy_monitor.client.files.deliver import Delivery
from offpolicy_monitor.client.files.record import Bad, Item, Record, Unfinished
from offpolicy_monitor.client.files.state import anchor, head
from offpolicy_monitor.client.files.units import Unit

START: dict[str, Any] = {"head": None, "offset": 0, "line": 0, "anchor": None}


@dataclass
class Tail:
    """Delivers the lines added since the last call; `read` remembers how files looked that were read to their end."""

    delivery: Delivery
    read: dict[str, list[list[Any]]] = field(default_factory=dict)

    def deliver(self, units: Iterable[Unit]) -> None:
        """Deliver every whole line behind what was delivered before, all files merged by step."""
        state = self.delivery.state
        changed = [unit for unit in units if self.read.get(unit.name) != unit.stat()]
        marks = {unit.name: _mark(unit, state.units) for unit in changed}
        for name, mark in marks.items():
            if mark["offset"]:
                state.put(name, mark)
        streams = [self._stream(unit, marks[unit.name]) for unit in changed]
        for unit, item in heapq.merge(*streams, key=lambda pair: pair[1].order):
            self.delivery.item(item, None)
            self._moved(unit, item)

    def _moved(self, unit: Unit, item: Item) -> None:
        path = unit.paths[0]
        try:
            mark = {"head": head(path), "offset": item.end, "line": item.line, "anchor": anchor(path, item.end)}
        except FileNotFoundError:
            return  # rotated meanwhile: found again under its new name, and posted again at worst
        self.delivery.state.put(unit.name, mark)
        self.delivery.shows.reached(unit.name, item.end, item if isinstance(item, Record) else None)

    def _stream(self, unit: Unit, mark: dict[str, Any]) -> Iterator[tuple[Unit, Item]]:
        order, stat = (0, 0, 0), unit.stat()
        self.delivery.waiting.pop(unit.name, None)
        self.delivery.shows.reached(unit.name, mark["offset"], None)
        try:
            for item in jsonl.read(unit.paths[0], mark["offset"], mark["line"]):
                # A bad line has no step of its own: it stays behind the line before it.
                order = item.order if isinstance(item, Record) else order
                yield unit, replace(item, order=order) if isinstance(item, Bad) else item
        except Unfinished as error:
            self.delivery.waiting[unit.name] = str(error)
        except FileNotFoundError:
            return
        self.read[unit.name] = stat


def _mark(unit: Unit, entries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Where the unit's file was left, under this name or one it had before; the start where it was never seen."""
    path = unit.paths[0]
    first = head(path)
    own = entries.get(unit.name, START)
    for entry in (own, *sorted(entries.values(), key=lambda entry: -int(entry["offset"]))):
        if first is not None and entry["head"] == first and _holds(path, entry):
            return entry
    return START


def _holds(path: Path, entry: dict[str, Any]) -> bool:
    return bool(anchor(path, int(entry["offset"])) == entry["anchor"])
