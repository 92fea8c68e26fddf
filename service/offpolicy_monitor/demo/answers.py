"""What the service answered: k3 (nats) by gap, as the demo shows it. A monitor hands each answer over."""

from collections.abc import Mapping
from typing import Any


class Answers:
    """`latest` k3 by gap, and the mean of each over all answers; filled on the monitor's thread."""

    def __init__(self) -> None:
        self.latest: dict[str, float] = {}
        self._sums: dict[str, tuple[float, int]] = {}

    def take(self, answer: Mapping[str, Any]) -> None:
        """Take in the answer to one gradient step; a gap without figures is left out."""
        for gap, figures in (answer.get("gaps") or {}).items():
            k3 = figures.get("k3")
            if k3 is not None:
                total, count = self._sums.get(gap, (0.0, 0))
                self.latest[gap], self._sums[gap] = k3, (total + k3, count + 1)

    def mean(self, gap: str) -> float | None:
        """Mean k3 of a gap over the answers that had it; None where none had."""
        total, count = self._sums.get(gap, (0.0, 0))
        return total / count if count else None
