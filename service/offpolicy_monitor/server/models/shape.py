"""What all shapes of answers have in common, and the shape of a problem."""

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """An object with at least these fields."""

    model_config = ConfigDict(extra="allow")


class FieldProblem(Shape):
    """One field at fault."""

    field: str
    message: str


class ProblemDocument(Shape):
    """RFC 9457. `type` is `urn:offpolicy-monitor:problem:<kind>`, stable and compared as a string.

    `instance` is `urn:offpolicy-monitor:request:<id>`, the id that the service's log has and the header X-Request-Id.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    errors: list[FieldProblem] = []
