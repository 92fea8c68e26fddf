"""Figures by the names of their tables, and the catalogue of what each means."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from offpolicy_monitor.server.figure_shapes import figures_below
from offpolicy_monitor.server.models.shape import Shape

Figures = dict[str, Any]


Gaps = Annotated[dict[str, Figures], WithJsonSchema(figures_below("gaps"))]


Methods = Annotated[dict[str, Figures], WithJsonSchema(figures_below("methods"))]


Routing = Annotated[
    dict[str, Figures],
    WithJsonSchema(figures_below("routing")),
    Field(description="Only where two of the expert arrays were sent, by gap."),
]


NoiseFloor = Annotated[
    Figures,
    WithJsonSchema(figures_below("noise_floor")),
    Field(description="Only where log-probs that were computed once more were sent."),
]


Support = Annotated[
    dict[str, Figures],
    WithJsonSchema(figures_below("support")),
    Field(description="Only where the mass of the sampler's support was sent, by gap."),
]


MismatchLag = Annotated[
    Figures,
    WithJsonSchema(figures_below("mismatch_lag")),
    Field(description="Only where older weights sampled tokens of the mismatch."),
]


Attribution = Annotated[Figures, WithJsonSchema(figures_below("attribution"))]


Breakdowns = Annotated[Figures, WithJsonSchema(figures_below("breakdowns"))]


Outliers = Annotated[Figures, WithJsonSchema(figures_below("outliers"))]


Versions = Annotated[Figures, WithJsonSchema(figures_below("versions"))]


Signature = Annotated[Figures, WithJsonSchema(figures_below("signature"))]


class CataloguedFigure(Shape):
    """What a figure means."""

    path: str
    unit: str
    meaning: str
    source: str
    headline: bool = Field(description="Whether it is kept narrow: read over thousands of steps in milliseconds.")
    since: str = Field(description="The release that first answered it.")


class Catalogue(Shape):
    """Every figure that is answered."""

    figures: list[CataloguedFigure]
