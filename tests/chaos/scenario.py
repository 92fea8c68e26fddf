"""Scenario and outcome: the rows of the command, and of its report."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.chaos.stage import Stage

SQLITE, POSTGRES = "sqlite", "postgres"
BOTH = (SQLITE, POSTGRES)


@dataclass(frozen=True)
class Scenario:
    """A fault: `play` injects it `full` times, or `quick` times (0: not at all) in a quick run.

    A `control` plants a defect, which the audit must find. After `limit` seconds it is broken off. One that measures
    how quickly the service answers is played `alone`, others may be played beside each other. A quick run plays it on
    the `quick_databases`, where that is less than all.
    """

    name: str
    play: "Callable[[Stage], None]"
    databases: tuple[str, ...] = BOTH
    full: int = 1
    quick: int = 1
    control: bool = False
    limit: float = 240.0
    alone: bool = False
    quick_databases: tuple[str, ...] = ()

    def played_on(self, quick: bool) -> tuple[str, ...]:
        """The databases of a quick or a full run."""
        if not (self.quick if quick else self.full):
            return ()
        return self.quick_databases or self.databases if quick else self.databases


@dataclass
class Outcome:
    """What became of a scenario on a database. `broken` are promises that it found broken, a sentence each.

    `memory` are (seconds, MiB) of the service.
    """

    scenario: str
    database: str
    control: bool = False
    trials: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    recovery: list[float] = field(default_factory=list)
    measured: dict[str, float] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    skipped: str = ""
    seconds: float = 0.0

    @property
    def row(self) -> tuple[bool, str, str]:
        """Which row it is."""
        return self.control, self.scenario, self.database

    @property
    def failed(self) -> bool:
        """Whether a promise was broken; a control fails where its defect was not found."""
        if self.skipped:
            return False
        harmed = self.lost + self.doubled + self.wrong > 0
        return bool(self.broken) or harmed != self.control or self.acknowledged == 0
