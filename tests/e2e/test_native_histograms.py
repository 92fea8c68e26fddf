"""Native histograms in the real Prometheus: shares and quantiles at any threshold, beside what the service says."""

import json
import math
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from offpolicy_monitor.exposition.native import BOUND_ERROR, BUCKETS_PER_POWER

from tests.dashboards.boards import FILES, panels, read
from tests.fixtures.prometheus import query, running_prometheus, wait_for
from tests.fixtures.service import running_service

RUN = "native"
TOKENS, SEQUENCES = 4096, 16
MASK = math.log(2)
#: An estimate is off by no more than a bucket and its bound are: the values of the truth within so much of it.
SLACK = 2 ** (1 / BUCKETS_PER_POWER) * (1 + BOUND_ERROR)


def log_probs(step: int) -> tuple[Any, Any]:
    """Of engine and trainer; their log-ratios are of both signs, from 1e-6 to 2 nats."""
    source = np.random.default_rng(step)
    old = (-source.exponential(2.0, TOKENS) - 4.0).astype(np.float32)
    gap = source.standard_normal(TOKENS) * 10.0 ** source.uniform(-6, 0, TOKENS)
    return old - np.clip(gap, -2, 2).astype(np.float32), old


def post(url: str, step: int) -> dict[str, Any]:
    sampling, old = log_probs(step)
    lengths = [TOKENS // SEQUENCES] * SEQUENCES
    columns = {"sampling_logprobs": sampling.tolist(), "old_logprobs": old.tolist(), "logprobs": old.tolist()}
    body = json.dumps({"step": step, "lengths": lengths, **columns}).encode()
    request = urllib.request.Request(f"{url}/v1/runs/{RUN}/batches", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@dataclass(frozen=True)
class Scraped:
    """Where Prometheus is, the log-ratios of each step, and the service's figures of the last one."""

    prometheus: str
    steps: list[Any]
    figures: dict[str, Any]

    def value(self, expression: str) -> float:
        (row,) = query(self.prometheus, expression)
        return float(row["value"][1])


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("native")
    feature = "--enable-feature=native-histograms"
    with running_service(folder) as service:
        target = service.removeprefix("http://")
        with running_prometheus(folder, target, "127.0.0.1:9", feature) as prometheus:
            for step in range(3):
                figures = post(service, step)
                wait_for(partial(query, prometheus, f'offpolicy_step{{run="{RUN}"}} == {step}'))
            steps = [old - sampling for sampling, old in map(log_probs, range(3))]
            yield Scraped(prometheus, steps, figures)


def family(name: str) -> str:
    return f'offpolicy_{name}_nats{{run="{RUN}",gap="mismatch"}}'


def test_prometheus_took_native_histograms_and_every_value_once(scraped: Scraped) -> None:
    found = {
        name: scraped.value(f"histogram_count({family(name)})")
        for name in ("token_log_ratio", "token_log_ratio_abs", "sequence_log_geometric_ratio")
    }
    assert list(found.values()) == [3 * TOKENS, 3 * TOKENS, 3 * SEQUENCES]
    assert query(scraped.prometheus, '{__name__=~"offpolicy_(token|sequence)_.*_bucket"}') == []
    total = float(np.concatenate(scraped.steps).astype(float).sum())
    assert scraped.value(f"histogram_sum({family('token_log_ratio')})") == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("threshold", [1e-5, 3e-4, 0.01, 0.07, 0.1, 0.3, MASK, 1.5])
def test_a_mask_at_any_threshold_keeps_the_share_that_prometheus_says(scraped: Scraped, threshold: float) -> None:
    values = np.abs(np.concatenate(scraped.steps))
    low, high = ((values <= threshold / SLACK).mean(), (values <= threshold * SLACK).mean())
    assert high - low < 0.2
    signed = scraped.value(f"histogram_fraction(-{threshold}, {threshold}, {family('token_log_ratio')})")
    absolute = scraped.value(f"histogram_fraction(0, {threshold}, {family('token_log_ratio_abs')})")
    assert low <= signed <= high and low <= absolute <= high


def test_shares_within_powers_of_two_are_exact(scraped: Scraped) -> None:
    values = np.concatenate(scraped.steps)
    for bound in (2.0**-10, 0.25, 1.0):
        expected = float((np.abs(values) < bound).mean())
        assert scraped.value(f"histogram_fraction(-{bound}, {bound}, {family('token_log_ratio')})") == pytest.approx(
            expected, abs=1e-9
        )


@pytest.mark.parametrize("quantile", ["0.01", "0.1", "0.9", "0.99"])
def test_quantiles_are_those_of_the_values_within_a_bucket(scraped: Scraped, quantile: str) -> None:
    exact = float(np.quantile(np.concatenate(scraped.steps), float(quantile)))
    found = scraped.value(f"histogram_quantile({quantile}, {family('token_log_ratio')})")
    assert found * exact > 0
    assert abs(exact) / SLACK <= abs(found) <= abs(exact) * SLACK


def test_the_share_beyond_2_is_the_gauge_of_the_service(scraped: Scraped) -> None:
    exact = np.mean([(np.abs(values) > MASK).mean() for values in scraped.steps])
    of_last = scraped.figures["gaps"]["mismatch"]["tail_fraction"]
    assert of_last == pytest.approx((np.abs(scraped.steps[-1]) > MASK).mean(), abs=1 / TOKENS)
    beyond = scraped.value(f"1 - histogram_fraction(-{MASK}, {MASK}, {family('token_log_ratio')})")
    assert beyond == pytest.approx(exact, abs=0.01)


def test_recorded_shares_and_panels_answer_though_there_are_no_buckets(scraped: Scraped) -> None:
    values = np.abs(np.concatenate(scraped.steps[1:]))
    selector = f'{{run="{RUN}",gap="mismatch"}}'
    recorded = {
        "abs_nats_beyond_0_1": 0.1,
        "abs_nats_beyond_0_01": 0.01,
        "abs_nats_beyond_1": 1.0,
        "nats_beyond_2x": MASK,
    }
    for name, bound in recorded.items():
        record = f"run_gap:offpolicy_token_log_ratio_{name}:ratio_rate30m{selector}"
        (row,) = wait_for(partial(query, scraped.prometheus, record))
        low, high = (values > bound * SLACK).mean(), (values > bound / SLACK).mean()
        assert low - 0.01 <= float(row["value"][1]) <= high + 0.01
    for title in ("What share of tokens lies beyond a threshold?", "How are the log-ratios distributed?"):
        expression = next(
            panel["targets"][0]["expr"]
            for board in map(read, FILES)
            for panel in panels(board)
            if panel["title"] == title
        )
        for name, value in {"job": "offpolicy-monitor", "run": RUN, "window": "30m"}.items():
            expression = expression.replace(f"${name}", value)
        rows = query(scraped.prometheus, expression)
        assert {row["metric"].get("le") for row in rows} in ({"0.01", "0.1", "1.0"}, {None})
