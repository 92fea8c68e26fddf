"""Follow: a folder's dumps as they come, in step order, for as long as it is asked to.

Looks at the folder again and again; a unit that is not whole is waited for and holds no other one up. Knows units, not
formats' content.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path

from offpolicy_monitor.client.files.deliver import Delivery
from offpolicy_monitor.client.files.record import Unfinished
from offpolicy_monitor.client.files.tail import Tail
from offpolicy_monitor.client.files.units import Readiness, Unit

TOLD_AFTER = 30.0  # seconds that a unit waits before it is mentioned


class Follower:
    """Delivers what is whole in `folder`."""

    def __init__(self, folder: Path, delivery: Delivery, readiness: Readiness) -> None:
        self.folder, self.delivery, self.readiness = folder, delivery, readiness
        self.tail = Tail(delivery)
        self.noticed: dict[tuple[str, str], float] = {}

    def look(self) -> None:
        """One look: deliver every whole unit, in step order; then forget what is gone."""
        units = self.delivery.format.in_folder(self.folder)
        if self.delivery.format.grows:
            self.tail.deliver(_present(units))
        else:
            for unit in units:
                self._whole(unit)
        names = {unit.name for unit in units}
        self.delivery.state.keep(names)
        self.readiness.forget(names)
        for name in self.delivery.waiting.keys() - names:
            del self.delivery.waiting[name]
        self._tell(time.monotonic())
        self.delivery.state.save()

    def _tell(self, now: float) -> None:
        """Say once what a unit has been waiting for rather long."""
        waiting = self.delivery.waiting.items()
        self.noticed = {unit: self.noticed.get(unit, now) for unit in waiting}
        for (name, reason), since in self.noticed.items():
            if now - since >= TOLD_AFTER:
                self.delivery.shows.note(f"waiting for {name}: {reason}")
                self.noticed[name, reason] = math.inf

    def _whole(self, unit: Unit) -> None:
        try:
            reason = self.readiness.why_not(unit)
            if reason is None:
                self.delivery.whole(unit)
                self.delivery.waiting.pop(unit.name, None)
            else:
                self.delivery.waiting[unit.name] = reason
        except Unfinished as error:
            self.delivery.waiting[unit.name] = str(error)
        except FileNotFoundError:
            pass  # deleted between the look at the folder and the reading

    def follow(self, once: bool, poll: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Look every `poll` seconds; with `once` until nothing that is there can become whole by waiting a little."""
        while True:
            self.look()
            if once and not self._settling():
                return
            sleep(min(poll, self.readiness.settle) if once else poll)

    def _settling(self) -> bool:
        now = time.monotonic()
        return any(
            name in self.delivery.waiting and now - since < self.readiness.settle
            for name, (_, since) in self.readiness.seen.items()
        )


def _present(units: list[Unit]) -> list[Unit]:
    return [unit for unit in units if all(path.exists() for path in unit.paths)]
