"""Figure: all that there is to say of a figure that is answered. The catalogue of them is in `figures`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

#: The release that first answered what the first release answers.
FIRST: Final = "0.1.0"
#: Units of what is told in whole numbers. A mean of such counts has another: "tokens per sequence".
WHOLE: Final = frozenset({"tokens", "sequences", "spans", "whole versions", "decimal places"})


@dataclass(frozen=True)
class Gauge:
    """The metric family that shows a figure, and its labels that the path does not give."""

    family: str
    labels: Mapping[str, str] = field(default_factory=dict)


def gauge(family: str, **labels: str) -> Gauge:
    """A Gauge with these labels."""
    return Gauge(family, labels)


@dataclass(frozen=True)
class Figure:
    """One figure.

    path      a pattern (figures.path); of a kind of table below the name of its field
    unit      nats, tokens, a ratio, a share of ... ; empty for a number without one; one of WHOLE says that it is whole
    meaning   its formula, or what it is, as docs/methods.md and docs/figures.md have it
    code      where it is computed
    source    the paper or framework that it comes from
    headline  whether it is kept narrow, to be plotted over thousands of steps in milliseconds; or of which gaps
    gauge     the metric family that shows it, if any
    since     the release that first answered it
    """

    path: str
    unit: str
    meaning: str
    code: str = ""
    source: str = ""
    headline: bool | tuple[str, ...] = False
    gauge: Gauge | None = None
    since: str = FIRST

    @property
    def name(self) -> str:
        """The last key of its path."""
        return self.path.rpartition(".")[2]

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole number, such as a count."""
        return self.unit in WHOLE

    @property
    def headlines(self) -> tuple[str, ...]:
        """The patterns of what is kept narrow."""
        if isinstance(self.headline, bool):
            return (self.path,) if self.headline else ()
        return tuple(self.path.replace("{gap}", gap) for gap in self.headline)


def under(prefix: str, figures: Iterable[Figure]) -> tuple[Figure, ...]:
    """The figures, each below a prefix."""
    return tuple(replace(figure, path=f"{prefix}.{figure.path}") for figure in figures)
