"""GET /metrics: Prometheus text, OpenMetrics or protobuf, as the scraper's Accept header asks."""

from fastapi import APIRouter, Request, Response

from offpolicy_monitor.exposition.formats import asked_for
from offpolicy_monitor.server import services
from offpolicy_monitor.server.http.documents import DocumentResponse
from offpolicy_monitor.server.http.queries import CHECKED

router = APIRouter(tags=["operation"], dependencies=CHECKED)


@router.get("/metrics", summary="Metrics of the runs and of the service", response_class=Response)
async def metrics(request: Request) -> Response:
    """Rendered in a thread of its own: a scrape reads the database and must not hold bodies up."""
    format = asked_for(request.headers.get("accept", ""))
    return DocumentResponse(await services.of(request).scrapes.get(format))
