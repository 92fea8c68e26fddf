"""The service itself: does it answer, how fast, what does it refuse, and what does it wait for.

Quantiles and shares of requests come from the recording rules (dashboards/prometheus/recording.rules.yaml).
"""

from scripts.dashboards.model import JOB, Board, Line, Query, Question, Section

QUANTILES = ("p50", "p95", "p99")
BATCHES = f'{JOB},route=~".*/batches"'


def recorded(name: str, legend: str = "") -> Query:
    """A recorded series of the service."""
    return Query(f"{name}{{{JOB}}}", legend)


def quantiles(prefix: str, label: str = "") -> tuple[Query, ...]:
    """p50, p95 and p99 as recorded."""
    return tuple(recorded(f"{prefix}:{p}_rate5m", f"{{{{{label}}}}} {p}" if label else p) for p in QUANTILES)


ANSWERS = (
    Question(
        1, "Is the service up?",
        "1 while Prometheus reaches /metrics. 0: see whether the process runs, and on which port.",
        (Query(f"min(up{{{JOB}}})"),), "stat", width=4, height=5, alert="ServiceDown", base="red",
        lines=(Line(1, "green"),),
    ),
    Question(
        2, "Which version computes on what?", "The version of the service, of torch, and the device in use.",
        (Query(f"max by (version, torch, device) (offpolicy_build_info{{{JOB}}})", "build"),), "table", width=8,
        height=5,
    ),
    Question(
        3, "What share of requests fails?",
        "Answers with a 5xx status over five minutes. Anything above 0: read the log; trainers get no figures "
        "meanwhile.",
        (recorded("instance:offpolicy_requests_5xx:ratio_rate5m", "5xx"),), unit="percentunit", width=6, height=5,
        alert="ServerErrors", minimum=0, lines=(Line(0.01, "orange"), Line(0.1, "red")),
    ),
    Question(
        4, "What share of batches is refused?",
        "Posts answered with a 4xx status over five minutes: the client sends what cannot be understood, or too much "
        "at once. The next panel names the reason.",
        (recorded("instance:offpolicy_batches_refused:ratio_rate5m", "4xx"),), unit="percentunit", width=6, height=5,
        alert="BatchesRefused", minimum=0, lines=(Line(0.01, "orange"), Line(0.5, "red")),
    ),
    Question(
        5, "What is refused, and why?",
        "Problem documents over the window, by kind. The answer's `detail` names the field or the limit at fault.",
        (Query(f"sum by (reason) (increase(offpolicy_rejected_requests_total{{{JOB}}}[$window])) > 0", "{{reason}}"),),
        width=12, alert="BatchesRefused", minimum=0,
    ),
    Question(
        6, "What is asked, and what is answered?", "Requests per second over the window, by status.",
        (Query(f"sum by (status) (rate(offpolicy_request_seconds_count{{{JOB}}}[$window]))", "{{status}}"),),
        unit="reqps", width=12, stacked=True, minimum=0,
    ),
)  # fmt: skip

SPEED = (
    Question(
        21, "How long does a trainer wait for its answer?",
        "Time to answer a post of a batch, over five minutes. The stages beside say where it goes.",
        tuple(
            Query(f'route:offpolicy_request_seconds:{p}_rate5m{{{BATCHES}}}', f"{p} {{{{route}}}}") for p in QUANTILES
        ),
        unit="s", log=True,
    ),
    Question(
        22, "Which stage takes the time?",
        "Mean seconds a batch spends in decoding, measuring and storing. Measuring: a GPU or more threads. Storing: "
        "the database's disk.",
        (recorded("stage:offpolicy_stage_seconds:mean_rate5m", "{{stage}}"),), unit="s", stacked=True, minimum=0,
    ),
    Question(
        23, "How long does a transaction of the database take?",
        "However many shards it holds. Slow: the disk's fsync, or a database far away.",
        quantiles("instance:offpolicy_store_seconds"), unit="s", log=True, alert="StoreSlow",
        lines=(Line(1, "orange"), Line(10, "red")),
    ),
    Question(
        24, "How fast do the stages get at their worst?", "99th percentile of each stage, over five minutes.",
        (recorded("stage:offpolicy_stage_seconds:p99_rate5m", "{{stage}}"),), unit="s", log=True,
    ),
    Question(
        25, "How much of the admission budget is in use?",
        "Bytes of bodies being worked on. At the budget (OFFPOLICY_INFLIGHT_BYTES) posts wait, then are told to "
        "retry.",
        (Query(f"max by (instance) (offpolicy_inflight_bytes{{{JOB}}})", "{{instance}}"),), unit="bytes",
        alert="AdmissionFull", minimum=0,
    ),
    Question(
        26, "Did the device fail?",
        "Measurements done again on the CPU over the window. Above 0: the GPU's memory, or its driver.",
        (Query(f"sum(increase(offpolicy_device_fallbacks_total{{{JOB}}}[$window]))", "fallbacks"),),
        alert="DeviceFallback", minimum=0, lines=(Line(1, "orange"),),
    ),
)  # fmt: skip

LOAD = (
    Question(
        41, "How many bytes per second arrive?", "Bodies as received, by encoding. zstd halves what log-probs weigh.",
        (Query(f"sum by (encoding) (rate(offpolicy_ingest_bytes_total{{{JOB}}}[$window]))", "{{encoding}}"),),
        unit="Bps", stacked=True, minimum=0,
    ),
    Question(
        42, "How many tokens per second are measured?", "Tokens under the mask of all runs, over the window.",
        (Query(f"sum(rate(offpolicy_tokens_total{{{JOB}}}[$window]))", "tokens per second"),), minimum=0,
    ),
    Question(
        43, "How many shards are stored, and how many came twice?",
        "Shards over the window. A duplicate costs a look-up.",
        (Query(f"sum(increase(offpolicy_batches_total{{{JOB}}}[$window]))", "stored"),
         Query(f"sum(increase(offpolicy_duplicate_batches_total{{{JOB}}}[$window]))", "duplicates")), minimum=0,
    ),
)  # fmt: skip

WELL = (
    Question(
        61, "Could the compiled pass not be made?",
        "1: torch measures instead until the next start, right, but with some ten times the work. The log says why.",
        (Query(f"max by (instance) (offpolicy_compilation_failed{{{JOB}}})", "{{instance}}"),),
        alert="CompilationFailed", minimum=0, maximum=1, lines=(Line(1, "orange"),),
    ),
    Question(
        62, "How old is the oldest job of a stage?",
        "Seconds since it began, 0 where nothing is under way. One that only grows is stuck: /readyz says so past "
        "OFFPOLICY_MAX_JOB_AGE.",
        (Query(f"max by (stage) (offpolicy_oldest_job_seconds{{{JOB}}})", "{{stage}}"),), unit="s",
        alert="StageStuck", minimum=0,
    ),
    Question(
        63, "Is there one process that leads?",
        "1 where one of all that share a database tells alerts, closes overdue steps and shows the gauges of runs.",
        (Query(f"sum by (job) (offpolicy_leader{{{JOB}}})", "{{job}}"),), alert="NoLeader", minimum=0,
    ),
    Question(
        64, "How much room has a SQLite database?", "Bytes left on its disk. Where none is, posts are answered 507.",
        (Query(f"min by (instance) (offpolicy_database_free_bytes{{{JOB}}})", "{{instance}}"),), unit="bytes",
        alert="StorageFull", minimum=0,
    ),
    Question(
        65, "Which steps could not be merged?",
        "Times that a step was set aside over the window: its shards are stored, its figures are missing. The log "
        "has the traceback.",
        (Query(f"sum(increase(offpolicy_step_failures_total{{{JOB}}}[$window]))", "set aside"),),
        alert="StepsFailing", minimum=0, lines=(Line(1, "orange"),),
    ),
    Question(
        66, "Which alerts could not be told?",
        "Posts to webhooks and Alertmanagers that failed or were refused over the window.",
        (Query(f'sum(increase(offpolicy_notifications_total{{{JOB},outcome=~"failed|refused"}}[$window])) or vector(0)',
               "not told"),), alert="NotificationsFailing", minimum=0, lines=(Line(1, "orange"),),
    ),
)  # fmt: skip

INGEST = Board(
    "offpolicy-ingest", "Off-policy: the service",
    "The service itself: does it answer, how fast, what does it refuse.",
    (Section(100, "Does it answer?", ANSWERS), Section(101, "Is it fast?", SPEED),
     Section(102, "What does it carry?", LOAD), Section(103, "Is all of it at work?", WELL)),
    ("window",),
)  # fmt: skip
