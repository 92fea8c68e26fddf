"""What a method of the catalogue is, and what a row of it is. Plain data: no torch, no HTTP, no catalogue."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from offpolicy_monitor.methods.curve import Curve
from offpolicy_monitor.methods.rule import Clip, Rule, looks_ahead, rule_of, weight_of

REQUIRED: Final = "required"
NON_NEGATIVE: Final = (0.0, math.inf)
#: What every weight can be raised to: its square still adds up over every token to what float64 holds.
WEIGHTS: Final = (0.0, 1e100)
ANY_NUMBER: Final = (-math.inf, math.inf)
SHARE: Final = (0.0, 1.0)
#: A rule on staleness is anchored on pi_old, one on total on mu; rules on mismatch compare no current policy.
_OTHER_ANCHOR: Final = {"staleness": "total", "total": "staleness"}


@dataclass(frozen=True)
class Threshold:
    """A numeric parameter: its default (REQUIRED: must be given; None: absent) and the range it must lie in."""

    default: float | str | None = REQUIRED
    within: tuple[float, float] = NON_NEGATIVE


@dataclass(frozen=True)
class Choice:
    """A parameter that names one of a few options, the first by default.

    `text` is for those who ask what-if; without one, what-if reads its curves by the default whatever the row says.
    """

    options: tuple[str, ...]
    text: str = ""


Parameter = Threshold | Choice
Parameters = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """What a method compares at a level with certain options: its curves by the names of their thresholds.

    `sides` says whether figures tell apart what is dropped low and high. What-if keeps it at every gap where it is
    `everywhere`, else at the method's own and where a row puts it. `lowest` is the least threshold that means anything;
    `weight` the score whose exponential weighs what is kept, if any.
    """

    curves: Mapping[str, Curve]
    sides: bool = False
    everywhere: bool = False
    lowest: float = 0.0
    weight: str = ""

    @property
    def kept(self) -> Mapping[str, Curve]:
        """The curves that have what-if tables."""
        return {name: curve for name, curve in self.curves.items() if curve.kept}


class RowError(ValueError):
    """Parameters of a row that do not go together: which one is at fault, and why."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key, self.message = key, message


@dataclass(frozen=True)
class Sent:
    """A row as it was sent, with its level and its parameters read."""

    row: Mapping[str, Any]
    level: str
    parameters: Parameters


@dataclass(frozen=True)
class Method:
    """One method: all that there is to say of it.

    text        what it does, in a line of docs/methods.md
    papers      where it comes from, and which frameworks have it
    gap         the one it is put on by default
    levels      the first is the default
    forms       (level, variant) -> what is compared; a variant is the first option, and others that are not the default
    reweights   whether it multiplies with a weight and drops nothing
    check       what it asks of its parameters beside their ranges: RowError, or the parameters as they are to be
    kinds       level -> the kind of correction whose limits alerts apply (alerts.CORRECTIONS); by default the level's
    title       what sentences call it, if not by its name
    asked       whether its thresholds are recommended, and its own scores kept for what-if, only where a row asks: they
                may take another look at all tokens
    """

    name: str
    text: str
    papers: str
    gap: str
    levels: tuple[str, ...]
    parameters: Mapping[str, Parameter]
    forms: Mapping[tuple[str, str], Form]
    reweights: bool = False
    check: Callable[[Sent], Parameters] = lambda sent: sent.parameters
    kinds: Mapping[str, str] | None = None
    title: str = ""
    asked: bool = False

    @property
    def summary(self) -> str:
        """The text without its marks."""
        return self.text.replace("`", "")

    @property
    def only(self) -> str | None:
        """The name of its threshold, where it has but one."""
        thresholds = [name for name, parameter in self.parameters.items() if isinstance(parameter, Threshold)]
        return thresholds[0] if len(thresholds) == 1 else None

    @property
    def choices(self) -> Mapping[str, Choice]:
        """The parameters that name options."""
        return {name: parameter for name, parameter in self.parameters.items() if isinstance(parameter, Choice)}

    @property
    def whatif_choices(self) -> Mapping[str, Choice]:
        """Those of them that what-if may be told."""
        return {name: choice for name, choice in self.choices.items() if choice.text}

    def variant(self, options: Mapping[str, Any]) -> str:
        """The variant with these options; what is absent is by default."""
        return _joined(self.choices, options)

    def whatif_variant(self, options: Mapping[str, Any]) -> str:
        """The variant that what-if reads for these options."""
        return _joined(self.whatif_choices, options)

    def variants(self, level: str) -> tuple[str, ...]:
        """The variants at a level that what-if keeps, the default one first."""
        return tuple(variant for (at, variant), form in self.forms.items() if at == level and form.kept)

    def kind(self, level: str) -> str:
        """The kind of correction that it is at a level, which decides how much it may mask."""
        return (self.kinds or {}).get(level, "token" if level == "token" else "sequence")


def _joined(choices: Mapping[str, Choice], options: Mapping[str, Any]) -> str:
    given = [(options.get(name) or choice.options[0], choice) for name, choice in choices.items()]
    first = [option for option, _ in given[:1]]
    return ":".join(first + [option for option, choice in given[1:] if option != choice.options[0]])


@dataclass(frozen=True)
class MethodRow:
    """One row to run: a method with its gap, level and parameters, under a name, with their source."""

    name: str
    method: Method
    gap: str
    level: str
    parameters: Mapping[str, Any]
    source: str = ""

    @cached_property
    def spec(self) -> dict[str, Any]:
        """What is shown with the figures: method, gap, level and the parameters that were set."""
        given = {name: value for name, value in self.parameters.items() if value is not None}
        return {"method": self.method.name, "gap": self.gap, "level": self.level, **given}

    @property
    def definition(self) -> dict[str, Any]:
        """The row as a caller would send it: its name and its `spec`."""
        return {"name": self.name, **self.spec}

    @property
    def form(self) -> Form:
        """What it compares."""
        return self.method.forms[self.level, self.method.variant(self.parameters)]

    @cached_property
    def whatif(self) -> dict[str, Any] | None:
        """What asks for its curves, and the thresholds that have one; None where what-if keeps none."""
        variant = self.method.whatif_variant(self.spec)
        if variant not in self.method.variants(self.level):
            return None
        asked = ("method", "gap", "level", *self.method.whatif_choices)
        return {
            "query": {name: self.spec[name] for name in asked if name in self.spec},
            "thresholds": list(self.method.forms[self.level, variant].kept),
        }

    @cached_property
    def rule(self) -> Rule:
        """What it compares, at its thresholds."""
        form = self.form
        return rule_of(form.curves, self.parameters, self.method.reweights, form.sides, form.weight)

    @cached_property
    def weight(self) -> Clip | None:
        """What it weighs what it keeps with; None where it only drops."""
        return weight_of(self.rule)

    @cached_property
    def needs_advantages(self) -> bool:
        """Whether it looks at the sign of A."""
        return any(curve.signs is not None for curve in self.form.curves.values())

    def applies(self, gaps: Collection[str], advantages: bool) -> bool:
        """Whether its inputs are there, where these gaps are, and perhaps advantages."""
        return self.gap in gaps and (advantages or not self.needs_advantages)

    @property
    def other_anchor(self) -> str | None:
        """The gap it would stand on with mu for its anchor instead of pi_old, or the other way round.

        None on mismatch, and for rules that look ahead, whose bounds are of many tokens of their own gap.
        """
        return None if looks_ahead(self.rule) else _OTHER_ANCHOR.get(self.gap)

    @property
    def two_sided(self) -> bool:
        """Whether low and high drops are told apart."""
        return self.form.sides
