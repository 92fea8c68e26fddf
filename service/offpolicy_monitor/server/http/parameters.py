"""Parameters that several routes take: names in paths, ranges of steps, pages. A value outside of them is 422."""

from typing import Annotated

from fastapi import Path, Query

from offpolicy_monitor.store.rows.cursors import LARGEST_INTEGER
from offpolicy_monitor.vocabulary import RUN_NAME

RUN_PATTERN = f"^{RUN_NAME}$"

RunName = Annotated[str, Path(pattern=RUN_PATTERN, description="Name of the run; an unknown one is created.")]
KnownRun = Annotated[str, Path(pattern=RUN_PATTERN, description="Name of the run.")]
StepNumber = Annotated[int, Path(ge=0, le=LARGEST_INTEGER, description="Training step.")]

First = Annotated[int | None, Query(alias="from", ge=0, le=LARGEST_INTEGER, description="First step.")]
Last = Annotated[int | None, Query(alias="to", ge=0, le=LARGEST_INTEGER, description="Last step, included.")]
Minibatch = Annotated[
    int | None, Query(ge=0, le=LARGEST_INTEGER, description="Gradient step inside it; the last one if not named.")
]
Limit = Annotated[int, Query(ge=1, le=1000, description="Most rows in the answer.")]
Cursor = Annotated[str | None, Query(max_length=256, description="`next_cursor` of the page before.")]
