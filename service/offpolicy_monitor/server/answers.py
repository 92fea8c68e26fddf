"""Turns values into JSON answers. NaN and infinity become null whatever made them; floats keep full precision."""

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from offpolicy_monitor.pipeline.values import Outcome

OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def render(value: Any) -> bytes:
    """JSON bytes of a value."""
    return orjson.dumps(value, option=OPTIONS)


def json_response(value: Any) -> Response:
    """A 200 with this value as JSON."""
    return Response(render(value), media_type="application/json")


def batch_answer(run: str, outcome: Outcome) -> dict[str, Any]:
    """The answer to a batch, as protocol.md lists it: where it stands, then the figures of this shard alone.

    The first half of a two-phase post is measured and answered alike, with `stored` false: it is kept in memory only,
    counts as no received shard, and its step is not complete by it.
    """
    envelope, receipt = outcome.message.envelope, outcome.receipt
    return {
        "run": run,
        "step": envelope.step,
        "minibatch": envelope.minibatch,
        "shard": envelope.shard,
        "stored": receipt is not None,
        "duplicate": receipt is not None and receipt.duplicate,
        "received_shards": receipt.received_shards if receipt else 0,
        "shards": receipt.shards if receipt else envelope.shards,
        "complete": receipt is not None and receipt.complete,
        **_figures(outcome.figures),
        "verdict": "accept",
        "alerts": [],
    }


def _figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Absent figures are left out, so that a reader need not tell null from missing."""
    return {name: value for name, value in figures.items() if value is not None}
