"""Membership: what a service has of being one of several workers: its siblings, the board, the counts of all."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from offpolicy_monitor.exposition.counters import RunCounters
from offpolicy_monitor.server.workers.board import Board
from offpolicy_monitor.server.workers.published import Published
from offpolicy_monitor.server.workers.siblings import NoSiblings, Siblings


@dataclass(frozen=True)
class Place:
    """Of one worker: its number, of how many, the board of all, and the folder of their counts."""

    number: int
    workers: int
    board: Board
    folder: Path


@dataclass(frozen=True)
class Membership:
    """`place` is None where there is one process."""

    siblings: Siblings
    place: Place | None = None

    def published(self, registry: CollectorRegistry, counters: RunCounters, limit: int) -> Published | None:
        """The counts of all workers, of which these are the own."""
        place = self.place
        if place is None:
            return None
        return Published(place.folder, place.number, place.workers, registry, counters, limit)

    def led_here(self, leads: Callable[[], bool]) -> Callable[[], bool]:
        """Whether this process leads, or a sibling has of late."""
        place = self.place
        return leads if place is None else lambda: leads() or place.board.led()


ALONE: Final = Membership(NoSiblings())
