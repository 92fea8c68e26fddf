"""Delivery: units in, posts out, and a state that moves only behind the service's acknowledgement.

The same for following a folder and for finished dumps. Knows records, units and the state; not how a record is posted
and not how progress is shown.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from offpolicy_monitor.client.files.formats import Format
from offpolicy_monitor.client.files.record import Bad, Item, Record
from offpolicy_monitor.client.files.state import State
from offpolicy_monitor.client.files.units import Unit
from offpolicy_monitor.errors import OffpolicyMonitorError, Refusal

CONFLICT = 409


class Shows(Protocol):
    """What delivery tells: how many bytes of a unit are through, and lines for people."""

    def reached(self, unit: str, end: int, record: Record | None) -> None:
        """`end` bytes of `unit` are done, the last of them with `record`."""

    def note(self, text: str) -> None:
        """Say something that stays."""


class BadDump(OffpolicyMonitorError):
    """A position in a dump that holds no batch, or one that the service refuses; says file, line and reason."""


@dataclass(frozen=True)
class Choice:
    """What the command line chose: the attempt in place of that of the dumps, steps `first` to `last`, `skip_bad`."""

    attempt: int | None = None
    first: int = 0
    last: int | None = None
    skip_bad: bool = False

    def wants(self, step: int) -> bool:
        """Whether a step is to be posted."""
        return self.first <= step and (self.last is None or step <= self.last)


@dataclass
class Delivery:
    """`post` stores a record under an attempt (None: its own) and tells whether it was known.

    Counts what became of all; `waiting` says by unit what is not whole yet.
    """

    format: Format
    post: Callable[[Record, int | None], bool]
    state: State
    choice: Choice
    shows: Shows
    stored: int = 0
    known: int = 0
    bad: int = 0
    waiting: dict[str, str] = field(default_factory=dict)

    def whole(self, unit: Unit) -> None:
        """Deliver a unit that is read at once; nothing where it was delivered before and has not changed."""
        if "step" in self.format.name_of.groupindex and not self.choice.wants(unit.step):
            return self.shows.reached(unit.name, unit.size(), None)
        stat, entry = unit.stat(), self.state.units.get(unit.name, {})
        if not (entry.get("done") and entry.get("stat") == stat):
            entry = self._entry(unit, stat, entry)
            for index, item in enumerate(self.format.read(unit) if not entry["done"] else ()):
                if index >= entry["items"]:
                    self.item(item, None if self.format.own else entry["attempt"])
                    entry = {**entry, "items": index + 1}
                    self.state.put(unit.name, entry)
                    self.shows.reached(unit.name, item.end, item if isinstance(item, Record) else None)
            self.state.put(unit.name, {**entry, "done": True})
        self.shows.reached(unit.name, unit.size(), None)

    def _entry(self, unit: Unit, stat: list[list[Any]], entry: dict[str, Any]) -> dict[str, Any]:
        """Where to go on in a unit: where it stopped if its content is the same, else at its beginning.

        Other content in files that were delivered is a trainer that goes back to a checkpoint: a new attempt, once for
        all the steps it repeats.
        """
        content = unit.content()
        if entry.get("content") == content:
            return {**entry, "stat": stat}
        if entry.get("items") and not self.format.own:
            if entry["attempt"] == self.state.attempt:
                self.state.attempt += 1
            self.shows.note(f"{unit.name} was written again: posted as attempt {self._attempt()}")
        return {"stat": stat, "content": content, "items": 0, "done": False, "attempt": self._attempt()}

    def _attempt(self) -> int:
        self.state.attempt = max(self.state.attempt, self.choice.attempt or 0)
        return self.state.attempt

    def item(self, item: Item, attempt: int | None) -> None:
        """Deliver one record; a bad one is counted or raised as BadDump, as chosen."""
        if isinstance(item, Bad):
            return self.spoilt(item.where, item.reason)
        if not self.choice.wants(item.order[0]):
            return None
        try:
            known = self.post(item, self.choice.attempt if attempt is None else attempt)
        except Refusal as error:
            hint = "; the steps of a restarted trainer need a higher --attempt" if error.status == CONFLICT else ""
            return self.spoilt(item.where, f"refused: {error}{hint}")
        self.known += known
        self.stored += not known
        return None

    def spoilt(self, where: str, reason: str) -> None:
        """Count what cannot be stored, or raise BadDump, as chosen."""
        if not self.choice.skip_bad:
            raise BadDump(f"{where}: {reason}")
        self.bad += 1
        self.shows.note(f"skipped {where}: {reason}")
