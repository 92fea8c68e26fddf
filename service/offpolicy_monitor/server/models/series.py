"""Figures over the steps."""

from typing import Final

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from offpolicy_monitor.server.models.shape import Shape

SERIES: Final[JsonDict] = {"field": "gaps.mismatch.k3", "step": [1, 2], "minibatch": [0, 0], "value": [0.001, None]}


VERDICTS: Final[JsonDict] = {"field": "verdict", "step": [1, 2], "minibatch": [0, 0], "value": ["accept", "skip"]}


class Series(Shape):
    """One figure over the steps, as columns."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [SERIES]})

    field: str
    step: list[int]
    minibatch: list[int]
    value: list[float | str | None] = Field(description="Words of `verdict`, times of `received_at`, else numbers.")


class SeveralSeries(Shape):
    """Several figures over the steps, in the order asked."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [{"series": [SERIES, VERDICTS]}]})

    series: list[Series]


TABLE: Final[JsonDict] = {"step": [1, 2], "minibatch": [0, 0], "values": {"gaps.mismatch.k3": [0.001, None]}}


class Table(Shape):
    """Figures over the same steps."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [TABLE]})

    step: list[int]
    minibatch: list[int]
    values: dict[str, list[float | str | None]]


class Tables(Shape):
    """Figures over the steps with `layout=tables`: those that have the same steps share them."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [{"tables": [TABLE]}]})

    tables: list[Table]
