"""Plots of how costs grow, from the figures of `make bench ARGS="--only linear"`: SVG with both axes logarithmic.

Colours follow the reader's scheme, light or dark. A dashed line through the largest size says what linear would be.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parents[2]
FIGURES: Final = ROOT / "tests" / "benchmarks" / "linear.json"
FOLDER: Final = ROOT / "docs" / "plots"
WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 56, 64
#: Units of the axes: the tick of a power of ten as people say it.
SIZES: Final = ((1e6, " M"), (1e3, " k"), (1, ""))
SECONDS: Final = ((1, " s"), (1e-3, " ms"), (1e-6, " µs"))
STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.grid { stroke: #d0d7de; stroke-width: 1 }
.linear { stroke: #656d76; stroke-width: 1.5; stroke-dasharray: 5 5; fill: none }
.line { fill: none; stroke-width: 2.5 }
.c0 { --c: #0969da } .c1 { --c: #bc4c00 } .c2 { --c: #1a7f37 }
.line { stroke: var(--c) } .dot, .name { fill: var(--c) }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .grid { stroke: #3d444d }
  .linear { stroke: #9198a1 }
  .c0 { --c: #58a6ff } .c1 { --c: #ffa657 } .c2 { --c: #56d364 }
  .dot, .name { fill: var(--c) }
}
"""

Points = Mapping[float, float]


@dataclass(frozen=True)
class Plot:
    """A file, its title, what its x axis counts, and its curves: what the bench calls them -> their name."""

    file: str
    title: str
    x: str
    curves: Mapping[str, str]


PLOTS: Final = (
    Plot("tokens.svg", "Measuring a batch, by its tokens", "tokens", {"measuring, by tokens": ""}),
    Plot(
        "sequences.svg", "Measuring 1,000,000 tokens, by the sequences they are in", "sequences",
        {"measuring 1,000,000 tokens, by their sequences": ""},
    ),
    Plot(
        "rows.svg", "Measuring 131,072 tokens, by method rows", "method rows",
        {"measuring 131,072 tokens, by method rows": ""},
    ),
    Plot(
        "history.svg", "What a long run costs, by its steps", "steps stored before",
        {
            "storing and judging a step, by the steps before it": "a step, stored and judged",
            "the series of a figure after a step, by all steps": "the series of a figure",
            "a page of steps after a step, by all steps": "a page of 100 steps",
        },
    ),
)  # fmt: skip


def plots() -> dict[Path, str]:
    """The files by their paths."""
    rows = json.loads(FIGURES.read_text())["rows"]
    return {FOLDER / plot.file: drawn(plot, curves_of(plot, rows)) for plot in PLOTS}


def curves_of(plot: Plot, rows: Iterable[Mapping[str, Any]]) -> dict[str, Points]:
    """Seconds by size, of each curve of a plot by its name; the bench gives milliseconds."""
    found: dict[str, dict[float, float]] = {name: {} for name in plot.curves.values()}
    for row in rows:
        if row["what"] in plot.curves:
            found[plot.curves[row["what"]]][row["at"]] = row["value"] / 1e3
    return dict(found)


def drawn(plot: Plot, curves: Mapping[str, Points]) -> str:
    """The picture as text."""
    x = Axis.over([size for points in curves.values() for size in points], LEFT, WIDTH - RIGHT)
    y = Axis.over([taken for points in curves.values() for taken in points.values()], HEIGHT - BOTTOM, TOP)
    sizes = {x.at(tick): said(tick, SIZES) for tick in x.ticks}
    parts = [*frame(plot.title, (plot.x, sizes), ("time", {y.at(tick): said(tick, SECONDS) for tick in y.ticks}))]
    for index, (name, points) in enumerate(curves.items()):
        parts += _curve(index, name, points, x, y)
    if len(curves) == 1:
        parts += _straight(next(iter(curves.values())), x, y)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    return "\n".join([head, f"<title>{escape(plot.title)}</title>", f"<style>{STYLE}</style>", *parts, "</svg>", ""])


@dataclass(frozen=True)
class Axis:
    """Powers of ten from `first` to `last`, drawn from pixel `start` to pixel `end`."""

    first: int
    last: int
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> "Axis":
        """Whole powers of ten around the values."""
        first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(first, max(last, first + 1), start, end)

    def at(self, value: float) -> float:
        """The pixel of a value."""
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return round(self.start + share * (self.end - self.start), 1)

    @property
    def ticks(self) -> Sequence[float]:
        return [10.0**power for power in range(self.first, self.last + 1)]


def said(value: float, units: Sequence[tuple[float, str]]) -> str:
    """10 ms, 1 M: a power of ten in the largest unit that it has one of."""
    unit, name = next((pair for pair in units if value >= pair[0] * (1 - 1e-9)), units[-1])
    return f"{value / unit:g}{name}"


def frame(title: str, x: tuple[str, Mapping[float, str]], y: tuple[str, Mapping[float, str]]) -> Iterable[str]:
    """Title, grid, ticks and what the axes are: of each its name, and the text of each tick by its pixel."""
    yield f'<text class="title" x="{LEFT}" y="28">{escape(title)}</text>'
    for at, tick in x[1].items():
        yield f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{at}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{tick}</text>'
    for at, tick in y[1].items():
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>'
        yield f'<text x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{tick}</text>'
    middle, centre = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 16}" text-anchor="middle">{escape(x[0])}</text>'
    yield f'<text transform="translate(18 {centre}) rotate(-90)" text-anchor="middle">{escape(y[0])}</text>'


def _curve(index: int, name: str, points: Points, x: Axis, y: Axis) -> Iterable[str]:
    """A line with its dots; its name above its last dot."""
    dots = [(x.at(size), y.at(taken)) for size, taken in points.items()]
    yield f'<g class="c{index}"><path class="line" d="M{" L".join(f"{across} {down}" for across, down in dots)}"/>'
    yield from (f'<circle class="dot" cx="{across}" cy="{down}" r="4"/>' for across, down in dots)
    across, down = dots[-1]
    yield f'<text class="name" x="{across - 6}" y="{down - 10}" text-anchor="end">{escape(name)}</text></g>'


def _straight(points: Points, x: Axis, y: Axis) -> Iterable[str]:
    """Linear growth that ends where the curve does."""
    last, taken = list(points.items())[-1]
    least = max(min(points), last * 10.0**y.first / taken)
    begin, end = f"{x.at(least)} {y.at(taken * least / last)}", f"{x.at(last)} {y.at(taken)}"
    yield f'<path class="linear" d="M{begin} L{end}"/>'
    middle = math.sqrt(least * last)
    at = x.at(middle), y.at(taken * middle / last)
    yield f'<text x="{at[0] + 10}" y="{at[1] + 16}">linear</text>'
