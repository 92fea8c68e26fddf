"""Every query of every dashboard returns figures from a real Prometheus that scraped a real run."""

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.dashboards.boards import FILES, panels, read
from tests.dashboards.scraped import JOB, ask, has_figures, instant, over_a_minute
from tests.fixtures.prometheus import running_prometheus, wait_for
from tests.fixtures.service import running_service

RUN = "run-1"
STEPS = 30  # baselines need 25
VALUES = {"job": JOB, "run": RUN, "method": ".*", "window": "30m", "__range": "60s"}
NO_ALERTMANAGER = "127.0.0.1:9"  # the discard port: nothing listens, and nothing is sent
WITHIN = 60.0  # seconds; rates need two scrapes, and recorded series an evaluation after those


@dataclass(frozen=True)
class Asked:
    """A query of a dashboard, where it stands and how Grafana runs it."""

    where: str
    expression: str
    instant: bool = False


def substituted(text: str) -> str:
    """The text with the variables' values in place; fails where a variable has none."""
    return re.sub(r"\$(\w+)", lambda found: VALUES[found[1]], text)


def queries() -> Iterator[Asked]:
    for board in map(read, FILES):
        for panel in panels(board):
            for target in panel["targets"]:
                where = f"{board['uid']}: {panel['title']} {target['refId']}"
                yield Asked(where, target["expr"], bool(target.get("instant")))
        for annotation in board["annotations"]["list"]:
            yield Asked(f"{board['uid']}: annotation {annotation['name']}", annotation["expr"])


def variables() -> Iterator[tuple[str, str]]:
    for board in map(read, FILES):
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                yield f"{board['uid']}: ${variable['name']}", variable["query"]["query"]


def step(number: int, **changes: Any) -> dict[str, Any]:
    """A step with every column, each token's log-probs a little apart, and data 20 versions old."""
    source = np.random.default_rng(number)
    sampling = -source.exponential(1.0, 64)
    old, current = sampling + source.normal(0, 0.02, 64), sampling + source.normal(0, 0.2, 64)
    experts = [[[0, 1], [2, 3]]] * 63
    columns = {"sampling_logprobs": sampling, "old_logprobs": old, "logprobs": current, "entropy": -current}
    columns |= {"engine_logprobs": sampling, "old_logprobs_repeat": old}
    body = {name: np.minimum(column, -1e-4).tolist() for name, column in columns.items()}
    body["entropy"] = np.abs(current).tolist()
    return {
        "step": number, "lengths": [16] * 4, **body, "advantages": [1.0, -1.0, 0.5, -0.5],
        "policy_version": number + 20, "policy_versions": [number] * 4,
        "sampling_experts": [*experts, [[0, 1], [2, 3]]], "old_experts": [*experts, [[0, 9], [2, 3]]], **changes,
    }  # fmt: skip


def post(url: str, body: Mapping[str, Any] | bytes) -> int:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    target = f"{url}/v1/runs/{RUN}/batches"
    request = urllib.request.Request(target, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def watch_closely(url: str, *rules: str) -> None:
    """Give the run its own terms for rules, so that what they compare is shown though they are quiet."""
    body = json.dumps({"alerts": {rule: {"warning": 1e9} for rule in rules}}).encode()
    target = f"{url}/v1/runs/{RUN}"
    request = urllib.request.Request(target, body, {"Content-Type": "application/json"}, method="PATCH")
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.status == 200


@dataclass(frozen=True)
class Scraped:
    """Where the service and its Prometheus are, and when at the latest every rule has seen what was posted."""

    service: str
    prometheus: str
    complete_at: float


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("scraped")
    with running_service(folder) as url:
        assert [post(url, step(0)), post(url, step(0)), post(url, b"{")] == [200, 200, 400]
        watch_closely(url, "MismatchDrift", "PerplexityGap")
        with running_prometheus(folder, url.removeprefix("http://"), NO_ALERTMANAGER) as prometheus:
            wait_for(lambda: instant(prometheus, f'offpolicy_step{{run="{RUN}"}} == 0'), WITHIN)
            assert {post(url, step(number)) for number in range(1, STEPS)} == {200}
            assert [post(url, step(STEPS - 1)), post(url, b"{")] == [200, 400]
            assert post(url, step(STEPS, shards=2)) == 200  # stays open
            wait_for(lambda: instant(prometheus, f'offpolicy_step{{run="{RUN}"}} == {STEPS - 1}'), WITHIN)
            yield Scraped(url, prometheus, time.monotonic() + WITHIN)


@pytest.mark.parametrize("asked", list(queries()), ids=lambda asked: asked.where)
def test_a_query_returns_figures(scraped: Scraped, asked: Asked) -> None:
    expression = substituted(asked.expression)
    run = instant if asked.instant else over_a_minute
    while not has_figures(run(scraped.prometheus, expression)):
        assert time.monotonic() < scraped.complete_at, f"no figures from {expression}"
        time.sleep(0.5)


@pytest.mark.parametrize(("where", "query"), list(variables()))
def test_a_variable_has_values(scraped: Scraped, where: str, query: str) -> None:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert found, f"{where} is no label_values"
    values = ask(scraped.prometheus, f"label/{found[2]}/values", **{"match[]": substituted(found[1])})
    assert values, where
    assert found[2] not in VALUES or found[2] == "method" or values == [VALUES[found[2]]]


def test_a_panel_shows_the_figure_that_the_api_gives(scraped: Scraped) -> None:
    board = read(next(file for file in FILES if file.stem == "offpolicy-run"))
    panel = next(panel for panel in panels(board) if panel["title"] == "How far are the policies apart?")
    shown = instant(scraped.prometheus, substituted(panel["targets"][0]["expr"]))
    with urllib.request.urlopen(f"{scraped.service}/v1/runs/{RUN}/steps/{STEPS - 1}", timeout=30) as response:
        gaps = json.load(response)["gaps"]
    assert {row["metric"]["gap"]: row["values"][0] for row in shown} == {
        gap: figures["k3"] for gap, figures in gaps.items()
    }


@pytest.mark.parametrize(
    ("title", "alert", "lines"),
    [
        ("How far are the policies apart?", "MismatchKL", {"warning": 0.01, "critical": 0.03}),
        ("How far are whole sequences apart?", "PerplexityGap", {"warning": 1e9, "critical": 0.05}),
    ],
)
def test_lines_are_the_thresholds_in_force_whether_the_rule_is_breached_or_not(
    scraped: Scraped, title: str, alert: str, lines: dict[str, float]
) -> None:
    board = read(next(file for file in FILES if file.stem == "offpolicy-run"))
    panel = next(panel for panel in panels(board) if panel["title"] == title)
    drawn = instant(scraped.prometheus, substituted(panel["targets"][-1]["expr"]))
    assert {row["metric"]["severity"]: row["values"][0] for row in drawn} == lines


def test_a_query_of_nothing_would_be_found(scraped: Scraped) -> None:
    assert not has_figures(instant(scraped.prometheus, "offpolicy_no_such_family"))
