"""GET /healthz and /readyz: the process is alive; it can do its work."""

from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from offpolicy_monitor._version import __version__
from offpolicy_monitor.server import services
from offpolicy_monitor.server.http.queries import CHECKED

WARMING_UP: Final = "the device measures a first batch, to load what it needs"

router = APIRouter(tags=["operation"], dependencies=CHECKED)


@router.get("/healthz", summary="The process is alive")
async def healthz() -> dict[str, str]:
    """Answers as long as the event loop turns; looks at nothing else."""
    return {"status": "alive", "version": __version__}


@router.get("/readyz", summary="Shards can be stored, schema current, device warm, no stage stuck")
async def readyz(request: Request) -> JSONResponse:
    """200 when every check holds, else 503 with the checks that do not, and the `reason`: what is waited for.

    `measured_by` is the form that measures batches now: `fused`, `torch` or `torch, compiled`. `stuck` names the
    stages that no longer get on, with the age of their oldest job in seconds.
    """
    parts = services.of(request)
    store, stuck = await parts.probe.finding(), _stuck_stages(parts)
    checks: dict[str, Any] = {**store.checks, "device": parts.device_is_warm, "stages": not stuck}
    ready = all(value is True for value in checks.values())
    status = 200 if ready else 503
    headers = {} if ready else {"Retry-After": "1"}
    answer: dict[str, Any] = {"status": "ready" if ready else "not ready", "checks": checks}
    reason = store.reason or ("" if parts.device_is_warm else WARMING_UP)
    answer |= {"reason": reason} if reason else {}
    answer["measured_by"] = parts.pipeline.measurer.form
    return JSONResponse(answer | ({"stuck": stuck} if stuck else {}), status, headers)


def _stuck_stages(parts: services.Services) -> dict[str, float]:
    """Stages whose oldest job is older than a job can become, with its age in seconds."""
    oldest = parts.pipeline.oldest_jobs()
    return {stage: round(age, 1) for stage, age in oldest.items() if age > parts.settings.max_job_age}
