"""Plots of the memory that the service held in scenarios of `make chaos`, over time: SVG with straight axes.

Drawn from what was committed of them, as the tables of docs/reliability.md are.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from scripts.docs.plots import BOTTOM, FOLDER, HEIGHT, LEFT, RIGHT, ROOT, STYLE, TOP, WIDTH, frame

COMMITTED: Final = ROOT / "tests" / "chaos" / "committed.json"
#: Files by the scenario that they show.
SHOWN: Final = {
    "500 connections of every kind": "memory-crowd.svg",
    "soak with random faults": "memory-soak.svg",
}
NAMES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
#: About so many ticks an axis.
TICKS: Final = 6

Line = Sequence[tuple[float, float]]


def memory_plots() -> dict[Path, str]:
    """The files by their paths."""
    return drawn_of(json.loads(COMMITTED.read_text()))


def drawn_of(outcomes: Iterable[Mapping[str, Any]]) -> dict[Path, str]:
    """A picture of each scenario that is shown and was watched, with a line for each database."""
    lines: dict[str, dict[str, Line]] = {}
    for outcome in outcomes:
        if outcome["scenario"] in SHOWN and outcome["memory"]:
            found = lines.setdefault(outcome["scenario"], {})
            found[NAMES[outcome["database"]]] = [(at, held) for at, held in outcome["memory"]]
    return {FOLDER / SHOWN[scenario]: drawn(scenario, by_name) for scenario, by_name in lines.items()}


@dataclass(frozen=True)
class Axis:
    """From 0 to a tick that is over the largest value, drawn from pixel `start` to pixel `end`."""

    step: float
    last: float
    start: float
    end: float

    @classmethod
    def over(cls, most: float, start: float, end: float) -> "Axis":
        """Ticks at 1, 2 or 5 times a power of ten."""
        power = 10.0 ** math.floor(math.log10(most / TICKS))
        step = next(factor * power for factor in (1, 2, 5, 10) if most / (factor * power) <= TICKS)
        return cls(step, math.ceil(most / step) * step, start, end)

    def at(self, value: float) -> float:
        """The pixel of a value."""
        return round(self.start + value / self.last * (self.end - self.start), 1)

    @property
    def ticks(self) -> Sequence[float]:
        return [number * self.step for number in range(round(self.last / self.step) + 1)]


def drawn(scenario: str, lines: Mapping[str, Line]) -> str:
    """The picture as text."""
    x = Axis.over(max(at for line in lines.values() for at, _ in line), LEFT, WIDTH - RIGHT)
    y = Axis.over(max(held for line in lines.values() for _, held in line), HEIGHT - BOTTOM, TOP)
    title = f"Memory of the service: {scenario}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    seconds, held = ({axis.at(tick): f"{tick:g}" for tick in axis.ticks} for axis in (x, y))
    axes = frame(title, ("seconds", seconds), ("MiB resident", held))
    parts = [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", *axes]
    for index, (name, line) in enumerate(lines.items()):
        points = " L".join(f"{x.at(at)} {y.at(held)}" for at, held in line)
        parts.append(f'<g class="c{index}"><path class="line" d="M{points}"/>')
        parts.append(f'<text class="name" x="{LEFT + 12 + 100 * index}" y="{TOP + 18}">{escape(name)}</text></g>')
    return "\n".join([*parts, "</svg>", ""])
