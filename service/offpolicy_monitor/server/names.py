"""Names in paths: what a run may be called. The pattern is the contract's; a name outside of it is 422."""

from typing import Annotated

from fastapi import Path

from offpolicy_monitor.vocabulary import RUN_NAME

RUN_PATTERN = f"^{RUN_NAME}$"

RunName = Annotated[str, Path(pattern=RUN_PATTERN, description="Name of the run; an unknown one is created.")]
KnownRun = Annotated[str, Path(pattern=RUN_PATTERN, description="Name of the run.")]
