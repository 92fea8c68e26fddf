"""What a method of the catalogue is, and what a row of it is. Plain data: no torch, no HTTP, no catalogue."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from offpolicy_monitor.core.decision import Decision

GAPS: Final = ("mismatch", "staleness", "total")
REQUIRED: Final = "required"
NON_NEGATIVE: Final = (0.0, math.inf)
#: What every weight can be raised to: its square still adds up over every token to what float64 holds.
WEIGHTS: Final = (0.0, 1e100)
ANY_NUMBER: Final = (-math.inf, math.inf)


@dataclass(frozen=True)
class Threshold:
    """A numeric parameter: its default (REQUIRED: must be given; None: absent) and the range it must lie in."""

    default: float | str | None = REQUIRED
    within: tuple[float, float] = NON_NEGATIVE


@dataclass(frozen=True)
class Choice:
    """A parameter that names one of a few options; the first is the default."""

    options: tuple[str, ...]


Parameter = Threshold | Choice


@dataclass(frozen=True)
class Method:
    """One method: what it is, the gap it is put on by default, its levels (the first is the default), its parameters.

    `bounds` methods need lower, upper or both. `signed` methods need advantages. `passes_level` methods hand the level
    to their rule. `request_wide` methods look at all tokens of a request at once (core.second_moment) before their
    rule sees a part of them. `weights` methods reweight and drop nothing. `two_sided` methods tell apart what they drop
    on the low and on the high side.
    """

    name: str
    rule: Callable[..., Decision]
    summary: str
    source: str
    gap: str
    levels: tuple[str, ...]
    parameters: Mapping[str, Parameter]
    bounds: bool = False
    signed: bool = False
    passes_level: bool = False
    request_wide: bool = False
    weights: bool = False
    two_sided: bool = False


@dataclass(frozen=True)
class MethodRow:
    """One row to run: a method with its gap, level and parameters, under a name, with their source."""

    name: str
    method: Method
    gap: str
    level: str
    parameters: Mapping[str, Any]
    source: str = ""

    @property
    def spec(self) -> dict[str, Any]:
        """What is shown with the figures: method, gap, level and the parameters that were set."""
        given = {name: value for name, value in self.parameters.items() if value is not None}
        return {"method": self.method.name, "gap": self.gap, "level": self.level, **given}

    @property
    def definition(self) -> dict[str, Any]:
        """The row as a caller would send it: its name and its `spec`."""
        return {"name": self.name, **self.spec}

    @property
    def two_sided(self) -> bool:
        """Whether low and high drops are told apart; k-statistics have no sides."""
        return self.method.two_sided and self.parameters.get("statistic", "ratio") == "ratio"

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the rule."""
        rest = {name: value for name, value in self.parameters.items() if name != "kl_tau"}
        return {**rest, "level": self.level} if self.method.passes_level else rest
