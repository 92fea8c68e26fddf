"""What rules would drop at other thresholds, and which thresholds to take."""

from typing import Any, Final

from pydantic import Field, create_model

from offpolicy_monitor.methods import METHODS
from offpolicy_monitor.server.models.figures import Figures
from offpolicy_monitor.server.models.shape import Shape


class Setting(Shape):
    """A row as a framework writes it."""

    framework: str
    lines: list[str]
    differs: str = Field(description="What is a little different there; empty for nothing.")


class Curve(Shape):
    """Shares dropped at each threshold; null where there is nothing to share."""

    threshold: list[float]
    masked_token_fraction: list[float | None]
    masked_sequence_fraction: list[float | None]
    masked_advantage_mass: list[float | None]
    ratio: bool = Field(
        description="Whether the threshold is itself a bound on the importance ratio, as far from 1 as its inverse."
    )
    error: list[float] = Field(description="The most by which any of the three is off, at each threshold.")
    by_advantage_sign: dict[str, Figures]
    by_length_quartile: dict[str, list[float | None]] = Field(
        description="Share of the rule's own unit, tokens or sequences, within quarters of the sequences by length."
    )
    config: list[Setting] | None = Field(None, description="Where one threshold was asked for: the setting to paste.")
    no_option: list[str] | None = Field(
        None, description="Frameworks that have no option for it, where one was asked for."
    )


class Preset(Shape):
    """A threshold that a row has."""

    name: str
    parameter: str
    threshold: float


class _WhatIf(Shape):
    """The fields of a Curve where a method has one threshold; else a Curve for each of `parameters`, by its name."""

    method: str
    gap: str
    level: str
    max_error: float
    steps: list[int] = Field(description="First and last step read; empty where none counts.")
    steps_read: int
    steps_in_range: int
    parameter: str | None = Field(description="The threshold's name in a row, where the method has but one.")
    parameters: list[str] = Field(description="The thresholds that have a curve.")
    variant: str | None = Field(None, description="As `recommendations` names it, where it is not the level's first.")
    presets: list[Preset] = Field(description="Rows that differ in their thresholds alone, to be marked on the axis.")


#: Thresholds whose curves stand under their own names.
_NAMED: Final[dict[str, Any]] = {
    name: (Curve | None, None)
    for method in METHODS.values()
    if method.only is None
    for form in method.forms.values()
    for name in form.kept
}
WhatIf: Final = create_model("WhatIf", __base__=_WhatIf, __doc__=_WhatIf.__doc__, **_NAMED)


class Threshold(Shape):
    """A threshold that drops a wanted share of the tokens, and how sure it is."""

    method: str
    gap: str
    level: str
    parameter: str = Field(description="The threshold's name in a row of the method.")
    variant: str | None = Field(None, description="What of the method's options it is of, where that is not the first.")
    threshold: float
    low: float = Field(description="95 % of the thresholds that resampled steps give lie between low and high.")
    high: float
    between: list[float] | None = Field(
        description="The histogram's edges next to the threshold; null where it is found from all tokens."
    )
    masked_token_fraction: float
    masked_token_fraction_at_double_length: float
    summary: str


class PresetState(Shape):
    """What a row has dropped."""

    name: str
    state: str = Field(description="inert, active or saturated.")
    steps: int
    summary: str


class Recommendations(Shape):
    """Thresholds for the target, and the rows of the run that do nothing or too much."""

    target: float
    methods: list[Threshold]
    presets: list[PresetState]
    steps: list[int] = Field(description="First and last step looked at; empty where none counts.")
