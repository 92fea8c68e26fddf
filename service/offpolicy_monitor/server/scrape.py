"""GET /metrics: Prometheus text or OpenMetrics, as the scraper's Accept header asks."""

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import choose_encoder

from offpolicy_monitor.server import services

router = APIRouter(tags=["operation"])


@router.get("/metrics", summary="Metrics of the runs and of the service", response_class=Response)
def metrics(request: Request) -> Response:
    """Runs in a thread of its own pool: a scrape reads the database and must not hold bodies up."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(services.of(request).registry), headers={"Content-Type": content_type})
