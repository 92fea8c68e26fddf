"""Recorded expressions through the real promtool: literal values of series whose rates are known."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts.prometheus.recording import recordings
from tests.fixtures.promtool import check_queries

OF_RUN = 'job="m",instance="h",run="a"'
OF_GAP = f'{OF_RUN},gap="mismatch"'
AT = 'job="m",instance="h"'
POST = "/v1/runs/{run}/batches"
LN2 = "0.6931471805599453"


def histogram(family: str, labels: str, a_minute: Mapping[str, int]) -> dict[str, str]:
    """Cumulative counts by bound, so many per minute."""
    return {f'{family}_bucket{{{labels},le="{bound}"}}': f"0+{count}x60" for bound, count in a_minute.items()}


SERIES = (
    {f"offpolicy_tokens_total{{{OF_RUN}}}": "0+600x60"}
    | {f'offpolicy_tokens_total{{{AT},run="b"}}': "0+60x60"}
    | {f"offpolicy_sequences_total{{{OF_RUN}}}": "0+60x60", f"offpolicy_batches_total{{{OF_RUN}}}": "0+6x60"}
    | {f'offpolicy_excluded_tokens_total{{{OF_RUN},reason="nonfinite"}}': "0+6x60"}
    | {f'offpolicy_suspect_tokens_total{{{OF_RUN},reason="positive"}}': "0x60"}
    | histogram(
        "offpolicy_token_log_ratio_abs_nats", OF_GAP, {"0.01": 50, "0.1": 90, "1.0": 100, "10.0": 100, "+Inf": 100}
    )
    | histogram("offpolicy_token_log_ratio_nats", OF_GAP, {f"-{LN2}": 1, "0.0": 50, LN2: 97, "+Inf": 100})
    | {f'offpolicy_kl_nats{{{OF_GAP},estimator="k3"}}': "1+2x60"}
    | {f'offpolicy_kl_nats{{{AT},run="b",gap="mismatch",estimator="k3"}}': "7x60"}
    | {f'offpolicy_alert_active{{{OF_RUN},alert="{alert}",severity="warning"}}': "1x60" for alert in ("A", "B")}
    | {f'offpolicy_alert_active{{{AT},run="b",alert="A",severity="warning"}}': "1x60"}
    | {f'offpolicy_alert_breach_steps{{{AT},run="{run}",alert="A",severity="warning"}}': "0x60" for run in "abc"}
    | {f'offpolicy_effective_sample_size_ratio{{{OF_GAP},level="token"}}': "0.5x60"}
    | {f'offpolicy_effective_sample_size_ratio{{{AT},run="b",gap="mismatch",level="token"}}': "0.75x60"}
    | {f'offpolicy_last_batch_timestamp_seconds{{{AT},run="{run}"}}': "0x60" for run in "ab"}
    | {f'offpolicy_run_finished{{{AT},run="b"}}': "1x60", f"offpolicy_run_finished{{{OF_RUN}}}": "0x60"}
    | {f'offpolicy_request_seconds_count{{{AT},route="{POST}",status="200"}}': "0+45x60"}
    | {f'offpolicy_request_seconds_count{{{AT},route="{POST}",status="500"}}': "0+9x60"}
    | {f'offpolicy_request_seconds_count{{{AT},route="{POST}",status="422"}}': "0+6x60"}
    | {f'offpolicy_request_seconds_count{{{AT},route="/metrics",status="200"}}': "0+60x60"}
    | histogram("offpolicy_request_seconds", f'{AT},route="{POST}",status="200"', {"0.1": 0, "0.5": 60, "+Inf": 60})
    | {f'offpolicy_rejected_requests_total{{{AT},reason="busy"}}': "0+6x60"}
    | histogram("offpolicy_stage_seconds", f'{AT},stage="decode"', {"0.1": 60, "+Inf": 60})
    | {f'offpolicy_stage_seconds_sum{{{AT},stage="decode"}}': "0+3x60"}
    | {f'offpolicy_stage_seconds_count{{{AT},stage="decode"}}': "0+60x60"}
    | histogram("offpolicy_store_seconds", AT, {"0.1": 0, "0.5": 60, "+Inf": 60})
    | {f"offpolicy_store_seconds_sum{{{AT}}}": "0+6x60", f"offpolicy_store_seconds_count{{{AT}}}": "0+60x60"}
    | {f'offpolicy_ingest_bytes_total{{{AT},encoding="zstd"}}': "0+6000x60"}
)

REQUEST = f'{AT},route="{POST}"'
EXPECTED: tuple[tuple[str, str, float], ...] = (
    ("run:offpolicy_tokens:rate30m", OF_RUN, 10),
    ("run:offpolicy_sequences:rate30m", OF_RUN, 1),
    ("run:offpolicy_batches:rate30m", OF_RUN, 0.1),
    ("run_reason:offpolicy_excluded_tokens:ratio_rate30m", f'{OF_RUN},reason="nonfinite"', 0.01),
    ("run_reason:offpolicy_suspect_tokens:ratio_rate30m", f'{OF_RUN},reason="positive"', 0),
    ("run_gap:offpolicy_token_log_ratio_abs_nats_beyond_0_01:ratio_rate30m", OF_GAP, 0.5),
    ("run_gap:offpolicy_token_log_ratio_abs_nats_beyond_0_1:ratio_rate30m", OF_GAP, 0.1),
    ("run_gap:offpolicy_token_log_ratio_abs_nats_beyond_1:ratio_rate30m", OF_GAP, 0),
    ("run_gap:offpolicy_token_log_ratio_nats_beyond_2x:ratio_rate30m", OF_GAP, 0.04),
    ("run_severity:offpolicy_alert_active:sum", f'{OF_RUN},severity="warning"', 2),
    ("run_severity:offpolicy_alert_active:sum", f'{AT},run="c",severity="warning"', 0),
    ("instance:offpolicy_tokens:rate30m", AT, 11),
    ("instance_severity:offpolicy_alert_active:sum", f'{AT},severity="warning"', 3),
    ("instance_gap:offpolicy_kl_nats:max", f'{AT},gap="mismatch",estimator="k3"', 81),
    ("instance:offpolicy_effective_sample_size_ratio:min", f'{AT},gap="mismatch",level="token"', 0.5),
    ("instance:offpolicy_runs:count", AT, 1),
    ("instance:offpolicy_requests:rate5m", AT, 2),
    ("route:offpolicy_requests:rate5m", REQUEST, 1),
    ("route:offpolicy_request_seconds:p50_rate5m", REQUEST, 0.3),
    ("route:offpolicy_request_seconds:p95_rate5m", REQUEST, 0.48),
    ("route:offpolicy_request_seconds:p99_rate5m", REQUEST, 0.496),
    ("instance:offpolicy_requests_5xx:ratio_rate5m", AT, 0.15),
    ("instance:offpolicy_batches_refused:ratio_rate5m", AT, 0.1),
    ("instance_reason:offpolicy_rejected_requests:rate5m", f'{AT},reason="busy"', 0.1),
    ("stage:offpolicy_stage_seconds:p50_rate5m", f'{AT},stage="decode"', 0.05),
    ("stage:offpolicy_stage_seconds:p95_rate5m", f'{AT},stage="decode"', 0.095),
    ("stage:offpolicy_stage_seconds:p99_rate5m", f'{AT},stage="decode"', 0.099),
    ("stage:offpolicy_stage_seconds:mean_rate5m", f'{AT},stage="decode"', 0.05),
    ("instance:offpolicy_store_seconds:p50_rate5m", AT, 0.3),
    ("instance:offpolicy_store_seconds:p95_rate5m", AT, 0.48),
    ("instance:offpolicy_store_seconds:p99_rate5m", AT, 0.496),
    ("instance:offpolicy_store_seconds:mean_rate5m", AT, 0.1),
    ("encoding:offpolicy_ingest_bytes:rate5m", f'{AT},encoding="zstd"', 100),
)


def rounded(record: str, labels: str) -> str:
    return f"round({record}{{{labels}}}, 1e-6)"


def test_recorded_expressions_have_the_values_that_their_series_imply(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = [
        {
            "expr": rounded(record, labels),
            "eval_time": "40m",
            "exp_samples": [{"labels": f"{{{labels}}}", "value": value}],
        }
        for record, labels, value in EXPECTED
    ]
    check_queries(tmp_path, SERIES, asked)


def test_no_recorded_expression_is_left_out() -> None:
    recorded = {rule.record for rules in recordings().values() for rule in rules}
    assert {record for record, _, _ in EXPECTED} | {"run_gap:offpolicy_kl_nats:avg1h"} == recorded


def test_the_average_of_an_hour_follows_the_gauge(tmp_path: Path) -> None:
    labels = f'{OF_GAP},estimator="k3"'
    sample = {"labels": f"{{{labels}}}", "value": 41}
    asked = {"expr": rounded("run_gap:offpolicy_kl_nats:avg1h", labels), "eval_time": "40m", "exp_samples": [sample]}
    check_queries(tmp_path, SERIES, [asked])


@pytest.mark.parametrize("status", ["5xx", "refused"])
def test_a_share_is_0_where_nothing_went_wrong_and_absent_where_nothing_was_asked(status: str, tmp_path: Path) -> None:
    record = {"5xx": "instance:offpolicy_requests_5xx:ratio_rate5m"}.get(
        status, "instance:offpolicy_batches_refused:ratio_rate5m"
    )
    series = {
        f'offpolicy_request_seconds_count{{job="m",instance="busy",route="{POST}",status="200"}}': "0+60x60",
        f'offpolicy_request_seconds_count{{job="m",instance="idle",route="{POST}",status="200"}}': "60x60",
    }
    sample = {"labels": f'{record}{{job="m",instance="busy"}}', "value": 0}
    check_queries(tmp_path, series, [{"expr": record, "eval_time": "40m", "exp_samples": [sample]}])
