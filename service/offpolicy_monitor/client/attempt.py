"""Attempt: the restart epoch of a trainer, so that steps replayed from a checkpoint supersede those of before.

Schedulers count restarts in the environment; where none does, a run of one shard asks the service what it has. Knows
names of variables and the rule, and no HTTP.
"""

from collections.abc import Mapping
from typing import Any

from offpolicy_monitor.errors import ConfigurationError

EXPLICIT = "OFFPOLICY_ATTEMPT"
# The launcher inside a job counts from 0 again when the job itself is started anew.
INNER = "TORCHELASTIC_RESTART_COUNT"
OUTER_WEIGHT = 1000
# The job's own counter -> what it is before any restart.
OUTER = {
    "SLURM_RESTART_COUNT": 0,
    "AWS_BATCH_JOB_ATTEMPT": 1,
    "BATCH_TASK_RETRY_ATTEMPT": 0,
    "CLOUD_RUN_TASK_ATTEMPT": 0,
    "FLYTE_ATTEMPT_NUMBER": 0,
}


def declared(environment: Mapping[str, str]) -> int | None:
    """The attempt that the environment tells: OFFPOLICY_ATTEMPT, else restarts of the job * 1000 + of the launcher.

    None where no restart was counted: a trainer may have been restarted by hand. Raises ConfigurationError where
    OFFPOLICY_ATTEMPT is no number; a scheduler's variable that is none is left out.
    """
    explicit = environment.get(EXPLICIT, "").strip()
    if explicit:
        if not (explicit.isascii() and explicit.isdigit()):
            raise ConfigurationError(f"{EXPLICIT} must be a whole number, not {explicit!r}")
        return int(explicit)
    outer = max((_count(environment.get(name), first) for name, first in OUTER.items()), default=0)
    restarts = outer * OUTER_WEIGHT + _count(environment.get(INNER), 0)
    return restarts or None


def following(run: Mapping[str, Any] | None, step: int, refused: int | None = None) -> int:
    """The attempt of a trainer whose first step is `step`, from what the service says of its run (None: unknown).

    The newest attempt goes on where it has not come further; where it has, its steps are being replayed: one more. At
    its last step it goes on too, as a second monitor does in the middle of a step, unless that step was `refused` under
    it: then others have it with other content, as a trainer finds that resumes there.
    """
    if run is None or run.get("last_step") is None:
        return 0
    newest, last = int(run.get("attempt") or 0), run["last_step"]
    return newest + 1 if last > step or (last == step and newest == refused) else newest


def _count(text: str | None, first: int) -> int:
    text = (text or "").strip()
    return max(int(text) - first, 0) if text.isascii() and text.isdigit() else 0
