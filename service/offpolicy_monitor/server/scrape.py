"""GET /metrics: Prometheus text or OpenMetrics, as the scraper's Accept header asks."""

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import choose_encoder

from offpolicy_monitor.exposition.lines import END
from offpolicy_monitor.server import services

router = APIRouter(tags=["operation"])


@router.get("/metrics", summary="Metrics of the runs and of the service", response_class=Response)
def metrics(request: Request) -> Response:
    """Runs in a thread of its own pool: a scrape reads the database and must not hold bodies up."""
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    parts = services.of(request)
    of_process = encode(parts.registry)
    end = END if of_process.endswith(END) else b""
    body = of_process.removesuffix(END) + parts.runs.render(encode) + end
    return Response(body, headers={"Content-Type": content_type})
