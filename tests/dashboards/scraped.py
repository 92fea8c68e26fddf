"""What a real Prometheus answers to the queries of a dashboard, run as Grafana runs them."""

import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

JOB = "offpolicy-monitor"
Series = list[Mapping[str, Any]]


def ask(prometheus: str, path: str, **parameters: object) -> Any:
    """The `data` of an answer of Prometheus' API; what it says of a query it refuses fails the test."""
    url = f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return json.load(response)["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{parameters}: {error.read().decode()}") from error


def instant(prometheus: str, expression: str) -> Series:
    """Series of an instant query, each with its labels and a list of one value."""
    result = ask(prometheus, "query", query=expression)["result"]
    return [{"metric": row["metric"], "values": [float(row["value"][1])]} for row in result]


def over_a_minute(prometheus: str, expression: str) -> Series:
    """Series of a range query over the last minute, each with its labels and values."""
    now = time.time()
    result = ask(prometheus, "query_range", query=expression, start=now - 60, end=now, step=1)["result"]
    return [{"metric": row["metric"], "values": [float(value) for _, value in row["values"]]} for row in result]


def has_figures(series: Series) -> bool:
    """Whether there is a series with a value that can be drawn."""
    return any(math.isfinite(value) for row in series for value in row["values"])
