"""Alerts on the service itself, which only Prometheus can raise: one row each.

They read what the process counts (families.PROCESS), its recorded shares, and `up`. A target is known as ours by its
job's name or because it showed `offpolicy_build_info` within a week.
"""

from typing import Final

from scripts.prometheus.alert import Alert, grew

ERRORS: Final = "instance:offpolicy_requests_5xx:ratio_rate5m"
REFUSED: Final = "instance:offpolicy_batches_refused:ratio_rate5m"
STORE: Final = "instance:offpolicy_store_seconds:p99_rate5m"
OLDEST: Final = "offpolicy_oldest_job_seconds"
LEFT: Final = "offpolicy_certificate_expiry_timestamp_seconds - time()"
FREE: Final = "offpolicy_database_free_bytes"
OURS: Final = 'up{job=~"offpolicy.*"} or up and on (job, instance) last_over_time(offpolicy_build_info[1w])'
WHERE: Final = " ({{ $labels.job }}, {{ $labels.instance }})"
SHARE: Final = "{{ $value | humanizePercentage }}"


def _rejected(reasons: str, window: str) -> str:
    return grew(f'offpolicy_rejected_requests_total{{reason=~"{reasons}"}}', window)


SERVICE_ALERTS: Final = (
    Alert(
        "ServiceDown", "critical", f"({OURS}) == 0", "The monitor cannot be scraped" + WHERE,
        "Every alert on a run is blind until it answers again.", lasting="2m",
    ),
    Alert(
        "ServiceMissing", "warning", "group by (job) (last_over_time(offpolicy_build_info[1d])) unless on (job) up",
        "Prometheus has no target of the monitor any more (job {{ $labels.job }})",
        "Targets of this job were scraped within a day and none is left: see the scrape configuration or discovery.",
        lasting="15m",
    ),
    Alert(
        "ServerErrors", "warning", f"{ERRORS} > 0.01", "Requests fail" + WHERE,
        f"{SHARE} of the requests to /v1 were answered 5xx over five minutes.", lasting="5m",
    ),
    Alert(
        "ServerErrors", "critical", f"{ERRORS} > 0.1", "Many requests fail" + WHERE,
        f"{SHARE} of the requests to /v1 were answered 5xx over five minutes: steps are being lost.", lasting="5m",
    ),
    Alert(
        "BatchesRefused", "warning", f"{REFUSED} > 0.01", "Batches are refused" + WHERE,
        f"{SHARE} of the posted batches were answered 4xx over five minutes.", lasting="5m",
    ),
    Alert(
        "BatchesRefused", "critical", f"{REFUSED} > 0.5", "Most batches are refused" + WHERE,
        f"{SHARE} of the posted batches were answered 4xx over five minutes: a trainer posts what cannot be read.",
        lasting="5m",
    ),
    Alert(
        "AdmissionFull", "warning", _rejected("busy", "5m"), "Bodies wait too long for memory" + WHERE,
        "Requests were refused within five minutes because the admission budget stayed full.", lasting="2m",
    ),
    Alert(
        "StoreFailing", "critical", _rejected("store-unavailable", "5m"), "The database fails" + WHERE,
        "Batches were answered 503 within five minutes because the database could not be used.", lasting="2m",
    ),
    Alert(
        "StorageFull", "critical", _rejected("storage-full", "10m"), "The database's disk is full" + WHERE,
        "Batches were answered 507 within ten minutes: no step is stored until there is room.",
    ),
    Alert(
        "StoreSlow", "warning", f"{STORE} > 1", "Transactions are slow" + WHERE,
        "The 99th percentile of a transaction is {{ $value | humanizeDuration }}.", lasting="10m",
    ),
    Alert(
        "StoreSlow", "critical", f"{STORE} > 10", "Transactions take longer than trainers wait" + WHERE,
        "The 99th percentile of a transaction is {{ $value | humanizeDuration }}.", lasting="10m",
    ),
    Alert(
        "StageStuck", "warning", f"{OLDEST} > 30", "A stage does not get on" + WHERE,
        "The oldest job of the stage {{ $labels.stage }} has waited {{ $value | humanizeDuration }}.", lasting="2m",
    ),
    Alert(
        "StageStuck", "critical", f"{OLDEST} > 120", "A stage stands still" + WHERE,
        "The oldest job of the stage {{ $labels.stage }} has waited {{ $value | humanizeDuration }}: none passes.",
        lasting="1m",
    ),
    Alert(
        "DiskLow", "warning", f"{FREE} < 2e9 or {FREE} < 2e10 and predict_linear({FREE}[6h], 86400) < 0",
        "The database's disk fills up" + WHERE,
        "{{ $value | humanize1024 }}B are left, too few or gone within a day at the pace of the last six hours.",
        lasting="15m",
    ),
    Alert(
        "DiskLow", "critical", f"{FREE} < 2e8", "The database's disk is nearly full" + WHERE,
        "{{ $value | humanize1024 }}B are left: soon no step is stored.", lasting="1m",
    ),
    Alert(
        "CertificateEnds", "warning", f"{LEFT} < 14 * 86400", "The TLS certificate ends soon" + WHERE,
        "{{ $labels.file }} ends in {{ $value | humanizeDuration }}: whatever renews it has not.", lasting="5m",
    ),
    Alert(
        "CertificateEnds", "critical", f"{LEFT} < 2 * 86400", "The TLS certificate ends" + WHERE,
        "{{ $labels.file }} ends in {{ $value | humanizeDuration }}; then no trainer can post.", lasting="5m",
    ),
    Alert(
        "StepsFailing", "warning", grew("offpolicy_step_failures_total", "30m"), "Steps cannot be merged" + WHERE,
        "A step was set aside within half an hour: its shards are stored, its figures are missing.",
    ),
    Alert(
        "NoLeader", "critical", "sum by (job) (offpolicy_leader) == 0",
        "No process of the monitor leads (job {{ $labels.job }})",
        "Processes answer, but none tells alerts, closes overdue steps or shows the gauges of runs.", lasting="2m",
    ),
    Alert(
        "Restarting", "warning", "changes(offpolicy_start_time_seconds[1h]) > 2", "The monitor restarts often" + WHERE,
        "It began to serve {{ $value }} times more within an hour.",
    ),
    Alert(
        "ScrapeSlow", "warning",
        "scrape_duration_seconds > 5 and on (job, instance) last_over_time(offpolicy_build_info[1h])",
        "Scrapes of the monitor are slow" + WHERE,
        "A scrape took {{ $value | humanizeDuration }}; past Prometheus's time-out its alerts are blind.",
        lasting="10m",
    ),
    Alert(
        "DeviceFallback", "warning", "offpolicy_device_info unless on (job, instance, device) offpolicy_build_info",
        "The device failed and another one computes" + WHERE,
        "Measured on {{ $labels.device }} since the device that the service started with failed: right, but slower.",
        lasting="1m",
    ),
    Alert(
        "CompilationFailed", "warning", "offpolicy_compilation_failed == 1",
        "Batches are measured without the compiled pass" + WHERE,
        "It could not be made, so torch measures: right, but with some ten times the work, until the next start.",
        lasting="5m",
    ),
    Alert(
        "NotificationsFailing", "warning",
        'increase(offpolicy_notifications_total{outcome=~"failed|refused"}[10m]) > 0',
        "The monitor cannot tell of alerts by itself" + WHERE,
        "Its posts to {{ $labels.target }} ended as {{ $labels.outcome }} within ten minutes: see its log.",
        lasting="5m",
    ),
)  # fmt: skip
