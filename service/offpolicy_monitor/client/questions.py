"""Reading: what the service answers to questions, as Python and numpy values.

Synchronous, each on a connection of its own, and it raises: Refusal where the question is at fault, Unavailable where
the service is. Meant for notebooks and scripts, not for the training loop.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import numpy as np

from offpolicy_monitor.client.connection import Connection
from offpolicy_monitor.client.shard import Buffers
from offpolicy_monitor.errors import ConfigurationError, FieldError, Refusal, Unavailable
from offpolicy_monitor.wire.frame import MEDIA_TYPE

PAGE = 1000


def ask(
    connection: Connection, path: str, query: Mapping[str, object] | None = None, body: Buffers = ()
) -> dict[str, Any]:
    """GET, or POST of a body. Raises Refusal for 4xx, Unavailable for 5xx, OSError where nobody answers."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    target = f"{path}?{urlencode(given)}" if given else path
    answer = connection.exchange("POST" if body else "GET", target, body, MEDIA_TYPE)
    if answer.status >= 400:
        raise _problem(answer.status, answer.document)
    return dict(answer.document)


def all_runs(connection: Connection) -> list[dict[str, Any]]:
    """Every run, newest first."""
    found: list[dict[str, Any]] = []
    cursor: object = None
    while True:
        page = ask(connection, "/v1/runs", {"limit": PAGE, "cursor": cursor})
        found += page["runs"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def columns(answer: Mapping[str, Any], pandas: bool) -> Any:
    """A series as {"step": int64 [N], "minibatch": int64 [N], "value": float64 [N], NaN where absent}, or as a frame.

    Raises ConfigurationError where a frame is asked for and pandas is not installed.
    """
    series = {
        "step": np.array(answer["step"], np.int64),
        "minibatch": np.array(answer["minibatch"], np.int64),
        "value": np.array([np.nan if value is None else value for value in answer["value"]], np.float64),
    }
    if not pandas:
        return series
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise ConfigurationError("series(pandas=True) needs pandas: pip install pandas") from error
    return DataFrame(series)


def with_arrays(answer: dict[str, Any], shape: Sequence[int]) -> dict[str, Any]:
    """An evaluation whose masks and weights are numpy arrays.

    keep_sequences [S] bool; keep_tokens bool and weights float32: [S, L] where `shape` of the log-probs was padded
    (0 beyond a length), else a list of S arrays.
    """
    for row in answer.get("methods", ()):
        if "keep_sequences" in row:
            row["keep_sequences"] = np.array(row["keep_sequences"], np.bool_)
        for name, dtype in (("keep_tokens", np.bool_), ("weights", np.float32)):
            if name in row:
                row[name] = _rows([np.array(entries, dtype) for entries in row[name]], shape)
    return answer


def _rows(rows: list[np.ndarray], shape: Sequence[int]) -> Any:
    if len(shape) != 2:
        return rows
    padded = np.zeros(tuple(shape), rows[0].dtype if rows else np.bool_)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def _problem(status: int, document: Mapping[str, Any]) -> Refusal | Unavailable:
    kind = str(document.get("type", "")).rpartition(":")[2] or "unknown"
    detail = str(document.get("detail") or f"the service answered {status}")
    if status >= 500 or status == 429:
        return Unavailable(status, kind, detail)
    errors = [FieldError(str(e.get("field")), str(e.get("message"))) for e in document.get("errors", ())]
    return Refusal(status, kind, detail, errors)
