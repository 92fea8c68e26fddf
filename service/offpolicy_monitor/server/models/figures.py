"""Figures by the names of their tables, and the catalogue of what each means."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, WithJsonSchema

from offpolicy_monitor.server.figure_shapes import OF_AN_EVALUATED_METHOD, OF_ONE_SEQUENCE, Schema, or_null
from offpolicy_monitor.server.models.shape import Shape

Figures = dict[str, Any]
MethodFigures = Annotated[Figures, WithJsonSchema(OF_AN_EVALUATED_METHOD)]
SequenceFigures = Annotated[Figures, WithJsonSchema(OF_ONE_SEQUENCE)]

#: Fields that every merged step has, and every answer about a shard; any other may be absent or null.
ALWAYS_OF_A_STEP: Final = ("gaps", "methods")
ALWAYS_OF_A_SHARD: Final = (
    *("tokens", "sequences", "empty_sequences", "excluded_tokens", "suspect_tokens"),
    *ALWAYS_OF_A_STEP,
)


def with_figures(fields: Mapping[str, Schema], always: tuple[str, ...]) -> ConfigDict:
    """The configuration of a shape that has these fields, some of them always, beside those that it declares itself."""

    def add(schema: dict[str, Any]) -> None:
        declared, required = schema["properties"], schema.get("required", [])
        further = {
            name: field if name in always else or_null(field) for name, field in fields.items() if name not in declared
        }
        schema["properties"] = declared | further
        schema["required"] = required + [name for name in always if name in further]

    return ConfigDict(extra="allow", json_schema_extra=add)


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
