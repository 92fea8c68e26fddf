"""Names in paths: what a run may be called. The pattern is the contract's; a name outside of it is 422."""

from typing import Annotated

from fastapi import Path

RUN_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

RunName = Annotated[str, Path(pattern=RUN_PATTERN, description="Name of the run; an unknown one is created.")]
KnownRun = Annotated[str, Path(pattern=RUN_PATTERN, description="Name of the run.")]
