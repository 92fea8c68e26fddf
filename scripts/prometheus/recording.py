"""Recorded expressions: the queries that dashboards and alerts ask again and again, each computed once.

Names are `level:metric:operation`; the level says which labels are left beside job and instance. Windows are as long
as a slow training step for what runs post, and short for the service's own requests.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Final

from scripts.prometheus.alert import Recording

OF_RUNS: Final = "30m"
OF_REQUESTS: Final = "5m"
UPPER: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
BEYOND: Final = {"0_01": "0.01", "0_1": "0.1", "1": "1.0"}
ABSOLUTE: Final = "offpolicy_token_log_ratio_abs_nats"
SIGNED: Final = "offpolicy_token_log_ratio_nats"
REQUESTS: Final = "offpolicy_request_seconds_count"
TOKENS: Final = f"rate(offpolicy_tokens_total[{OF_RUNS}])"
K3: Final = 'offpolicy_kl_nats{estimator="k3"}'
#: 0 where a rule is quiet: the service shows what it counts alone.
ACTIVE: Final = "offpolicy_alert_active or 0 * offpolicy_alert_breach_steps"


def recordings() -> Mapping[str, list[Recording]]:
    """Group -> its rules."""
    return {"runs": [*_of_runs()], "fleet": [*_of_the_fleet()], "service": [*_of_the_service()]}


def _of_runs() -> Iterator[Recording]:
    for counted in ("tokens", "sequences", "batches"):
        yield Recording(f"run:offpolicy_{counted}:rate30m", f"rate(offpolicy_{counted}_total[{OF_RUNS}])")
    for kind in ("excluded", "suspect"):
        of_kind = f"rate(offpolicy_{kind}_tokens_total[{OF_RUNS}])"
        share = f"{of_kind} / ignoring (reason) group_left () ({TOKENS} > 0)"
        yield Recording(f"run_reason:offpolicy_{kind}_tokens:ratio_rate30m", share)
    for name, bound in BEYOND.items():
        within = _up_to(ABSOLUTE, bound)
        shares = _share_beyond(ABSOLUTE, within), _native_share_beyond(ABSOLUTE, "0", bound)
        yield Recording(f"run_gap:{ABSOLUTE}_beyond_{name}:ratio_rate30m", "\nor ".join(shares))
    twice = math.log(2)
    within = f"({_up_to(SIGNED, repr(twice))} - ignoring (le) {_up_to(SIGNED, repr(-twice))})"
    shares = _share_beyond(SIGNED, within), _native_share_beyond(SIGNED, repr(-twice), repr(twice))
    yield Recording(f"run_gap:{SIGNED}_beyond_2x:ratio_rate30m", "\nor ".join(shares))
    yield Recording("run_gap:offpolicy_kl_nats:avg1h", f"avg_over_time({K3}[1h])")
    yield Recording("run_severity:offpolicy_alert_active:sum", f"sum without (alert) ({ACTIVE})")


def _of_the_fleet() -> Iterator[Recording]:
    yield Recording("instance:offpolicy_tokens:rate30m", f"sum without (run) ({TOKENS})")
    yield Recording("instance_severity:offpolicy_alert_active:sum", f"sum without (run, alert) ({ACTIVE})")
    yield Recording("instance_gap:offpolicy_kl_nats:max", f"max without (run) ({K3})")
    ess = "offpolicy_effective_sample_size_ratio"
    yield Recording(f"instance:{ess}:min", f"min without (run) ({ess})")
    running = "offpolicy_last_batch_timestamp_seconds unless on (job, instance, run) offpolicy_run_finished == 1"
    yield Recording("instance:offpolicy_runs:count", f"count without (run) ({running})")


def _of_the_service() -> Iterator[Recording]:
    yield Recording("instance:offpolicy_requests:rate5m", _requests())
    by_route = f"sum without (status) ({_rate(REQUESTS, OF_REQUESTS)})"
    yield Recording("route:offpolicy_requests:rate5m", by_route)
    buckets = f"sum without (status) ({_rate('offpolicy_request_seconds_bucket', OF_REQUESTS)})"
    yield from _quantiles("route", "offpolicy_request_seconds", buckets, UPPER, OF_REQUESTS)
    yield Recording("instance:offpolicy_requests_5xx:ratio_rate5m", _share_answered("5..", "/v1/.*"))
    yield Recording("instance:offpolicy_batches_refused:ratio_rate5m", _share_answered("4..", "/v1/runs/[^/]+/batches"))
    refused = _rate("offpolicy_rejected_requests_total", OF_REQUESTS)
    yield Recording("instance_reason:offpolicy_rejected_requests:rate5m", refused)
    for level, family in (("stage", "offpolicy_stage_seconds"), ("instance", "offpolicy_store_seconds")):
        yield from _quantiles(level, family, _rate(f"{family}_bucket", OF_REQUESTS), UPPER, OF_REQUESTS)
        mean = f"{_rate(f'{family}_sum', OF_REQUESTS)} / ({_rate(f'{family}_count', OF_REQUESTS)} > 0)"
        yield Recording(f"{level}:{family}:mean_rate5m", mean)
    received = _rate("offpolicy_ingest_bytes_total", OF_REQUESTS)
    yield Recording("encoding:offpolicy_ingest_bytes:rate5m", received)


def _rate(series: str, window: str) -> str:
    return f"rate({series}[{window}])"


def _quantiles(level: str, family: str, buckets: str, wanted: Mapping[str, float], window: str) -> Iterator[Recording]:
    for name, share in wanted.items():
        yield Recording(f"{level}:{family}:{name}_rate{window}", f"histogram_quantile({share}, {buckets})")


def _up_to(family: str, bound: str) -> str:
    return _rate(f'{family}_bucket{{le="{bound}"}}', OF_RUNS)


def _share_beyond(family: str, within: str) -> str:
    """Bounds are exact, so this share is too. What a run did not post lately has no share."""
    return f"1 - {within} / ignoring (le) ({_up_to(family, '+Inf')} > 0)"


def _native_share_beyond(family: str, lower: str, upper: str) -> str:
    """The same where Prometheus takes native histograms, and with them no buckets: interpolated within a bucket."""
    return f"1 - histogram_fraction({lower}, {upper}, {_rate(family, OF_RUNS)})"


def _requests(**matchers: str) -> str:
    chosen = ",".join(f'{label}=~"{pattern}"' for label, pattern in matchers.items())
    series = f"{REQUESTS}{{{chosen}}}" if chosen else REQUESTS
    return f"sum without (route, status) ({_rate(series, OF_REQUESTS)})"


def _share_answered(status: str, route: str) -> str:
    """0 where there are requests and none was answered so; nothing where there are none."""
    all_of_them = _requests(route=route)
    return f"({_requests(route=route, status=status)} or 0 * {all_of_them}) / ({all_of_them} > 0)"
