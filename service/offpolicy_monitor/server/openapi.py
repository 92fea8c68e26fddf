"""The written part of the OpenAPI document: bodies with examples that work as they stand, and the problems they meet.

Knows the contract's words; no route and no computation. The safetensors example is base64 of the bytes to send.
"""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel

from offpolicy_monitor.server import models
from offpolicy_monitor.wire import frame

DESCRIPTION = (
    "Watches the gap between the policy that sampled a rollout and the policy being trained. Post per-token log-probs "
    "of each gradient step; read divergences, importance ratios and what each known correction would mask."
)
ENVELOPE: dict[str, Any] = {"step": 0}
ARRAYS: dict[str, list[Any]] = {
    "lengths": [3, 2],
    "sampling_logprobs": [-0.51, -1.2, -0.05, -2.3, -0.7],
    "old_logprobs": [-0.5, -1.25, -0.05, -2.2, -0.71],
    "logprobs": [-0.45, -1.3, -0.04, -2.25, -0.7],
    "advantages": [1.0, -1.0],
}
METHODS = [{"name": "tight", "method": "opsm", "delta": 0.001}]
PROBLEMS: Mapping[int, str] = {
    400: "The body cannot be parsed.",
    401: "A token is asked for, and none came, or one that is unknown, revoked or expired.",
    403: "The token has no such scope, or is not for this run; or a page of others sends a change.",
    404: "No such run, step or path.",
    408: "The body did not arrive in time.",
    409: "The same shard came with other content, under an older attempt, or with another number of shards; or it was "
    "reduced by other method rows than the run's.",
    410: "What is asked for is not kept any more: the first half of a rollout (send the whole shard), or an old step.",
    413: "The body is larger than a limit, compressed or not.",
    415: "Media type or content encoding that is not read here.",
    422: "Understood, but wrong: a field's shape, dtype or range, or a name that is not known.",
    429: "The run sends more than it may, or too many runs have begun: send it again after Retry-After seconds.",
    503: "Busy, or the database is away: send it again after Retry-After seconds.",
    507: "The database's disk is full.",
}


def json_example(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON form of the example: envelope and arrays in one object."""
    return {**envelope, **ARRAYS}


def safetensors_example(envelope: Mapping[str, Any]) -> bytes:
    """The same batch as a safetensors body."""
    arrays = {name: np.array(values, np.int64 if name == "lengths" else np.float32) for name, values in ARRAYS.items()}
    return b"".join(bytes(part) for part in frame.encode(envelope, arrays))


def _body(envelope: dict[str, Any], description: str) -> dict[str, Any]:
    encoded = base64.b64encode(safetensors_example(envelope)).decode()
    tensors = {
        "schema": {"type": "string", "format": "binary"},
        "examples": {
            "packed": {
                "summary": "base64 of the body; decode it before sending",
                "description": "Arrays as tensors; the envelope as JSON under `batch` of `__metadata__`.",
                "value": encoded,
            }
        },
    }
    text = {"schema": {"type": "object"}, "examples": {"packed": {"value": json_example(envelope)}}}
    content = {"application/json": text, frame.MEDIA_TYPE: tensors}
    return {"requestBody": {"required": True, "description": description, "content": content}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` entries for these statuses, as problem documents."""
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        status: {
            "description": PROBLEMS[status],
            "content": {"application/problem+json": {"schema": schema}},
        }
        for status in statuses
    }


def answers(model: Any, description: str, *others: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that asks the store: its answer, 422, 503, and other problems that it may have."""
    return {200: {"model": model, "description": description}, **problems(*sorted({422, 503, *others}))}


def problem_schemas() -> dict[str, Any]:
    """The components that problem responses refer to, which no route's return type brings in."""
    schema = models.ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs"), "ProblemDocument": schema}


def changes_body(model: type[BaseModel]) -> dict[str, Any]:
    """The `requestBody` of a small JSON document that the route reads itself."""
    schema = model.model_json_schema()
    inlined = _inlined(schema, schema.pop("$defs", {}))
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": inlined}}}}


def _inlined(node: Any, definitions: dict[str, Any]) -> Any:
    """A schema without references: what they lead to stands in their place."""
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(definitions[node["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(item, definitions) for name, item in node.items()}


_BODY_HELP = (
    "Envelope and arrays; packed `[T]` with `lengths`, padded `[S, L]` with `mask`, or in JSON a list of S lists. "
    "`Content-Encoding: zstd` or `gzip` may wrap either media type."
)
_SUMMARY_HELP = (
    " A safetensors body may hold the one array `summary` instead, uint8 [N]: a shard that its trainer reduced."
)
BATCH_BODY = _body(ENVELOPE, _BODY_HELP + _SUMMARY_HELP)
EVALUATE_BODY = _body({"methods": METHODS}, _BODY_HELP + " `step` may be left out; `methods` lists rows to try.")
BATCH_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": models.BatchAnswer | models.BatchReceipt,
        "description": "Durable and counted exactly once. With `detail=none`, the receipt alone.",
    },
    **problems(400, 408, 409, 410, 413, 415, 422, 429, 503, 507),
}
EVALUATE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": models.EvaluateAnswer, "description": "The figures."},
    **problems(400, 408, 413, 415, 422, 503),
}
