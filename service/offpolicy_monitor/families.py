"""The metric families as data: name, type, help, unit, labels, and the field of a run's row each sample is read from.

Read by the exposition, by docs/metrics.md and by the dashboard tests. Knows names alone, no registry and no
database. What a figure's gauge reads is said by the figure's own row (figures); `{label}` in a path stands for "each
key here, as that label". Of two sources that give the same labels, the first that has a figure counts.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from offpolicy_monitor.figures import FIGURES
from offpolicy_monitor.vocabulary import RATIO_THRESHOLDS

Type = Literal["gauge", "counter", "histogram", "unknown"]
PREFIX = "offpolicy_"


@dataclass(frozen=True)
class Source:
    """Where a sample's value lies in a run's row, labels that the path itself does not give, and a change of unit."""

    path: str
    labels: Mapping[str, str] = field(default_factory=dict)
    convert: Callable[[float], float] | None = None


@dataclass(frozen=True)
class Family:
    """One metric family. `labels` in the order shown; `sources` are empty where the process itself counts.

    A histogram has `bounds`; those of a run have `all_bounds` too, which hold them and which an operator may ask for.
    `over_workers`: what a gauge of a process is of several.
    """

    name: str
    type: Type
    help: str
    labels: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    bounds: tuple[float, ...] = ()
    all_bounds: tuple[float, ...] = ()
    over_workers: Literal["sum", "max", "min"] = "max"

    @property
    def full_name(self) -> str:
        """The family's name as Prometheus shows it, without the suffixes of its samples."""
        return PREFIX + self.name


def _gauge(name: str, help: str, labels: str, *sources: Source) -> Family:
    """Of figures: all whose gauge it is, unless sources are given."""
    return Family(name, "gauge", help, tuple(labels.split()), sources or _sources(name))


def _sources(name: str, convert: Callable[[float], float] | None = None) -> tuple[Source, ...]:
    return tuple(
        Source(figure.path, figure.gauge.labels, convert)
        for figure in FIGURES
        if figure.gauge is not None and figure.gauge.family == name
    )


def _gap(name: str, help: str) -> Family:
    return _gauge(name, help, "run gap")


def _quantiles(name: str, help: str, convert: Callable[[float], float] | None = None) -> Family:
    """A gauge by nature, of unknown type by name.

    promtool keeps the label `quantile` for summaries, and OpenMetrics forbids summaries negative quantiles.
    """
    return Family(name, "unknown", help, ("run", "gap", "quantile"), _sources(name, convert))


def _fact(name: str, help: str, path: str) -> Family:
    """Of the run's row rather than of its figures."""
    return _gauge(name, help, "run", Source(path))


def _alert(name: str, help: str) -> Family:
    return _gauge(f"alert_{name}", help, "run alert severity", Source(f"alerts.{{alert}}.{{severity}}.{name}"))


def _counter(name: str, help: str, labels: str) -> Family:
    return Family(name, "counter", help, tuple(labels.split()))


def _histogram(name: str, help: str, bounds: tuple[float, ...], all_bounds: tuple[float, ...]) -> Family:
    return Family(name, "histogram", help, ("run", "gap"), bounds=bounds, all_bounds=all_bounds)


def _seconds(name: str, help: str, labels: str = "") -> Family:
    return Family(name, "histogram", help, tuple(labels.split()), bounds=SECONDS)


def _perplexity(policy: str, *paths: str) -> tuple[Source, ...]:
    """A policy is the numerator of one gap and the denominator of another; either figure is its perplexity."""
    return tuple(Source(f"gaps.{path}", {"policy": policy}) for path in paths)


_DECADES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
ABSOLUTE = tuple(float(f"{digit * decade:.0e}") for decade in _DECADES for digit in (1, 2, 5) if digit * decade <= 10)
_SIDE = tuple(bound for bound in ABSOLUTE if 1e-4 <= bound <= 5)
# The default thresholds of the methods as logs: what lies beyond them is then exact, not interpolated.
_THRESHOLDS = tuple(map(math.log, RATIO_THRESHOLDS))
SIGNED = tuple(sorted((0.0, *_SIDE, *(-bound for bound in _SIDE), *_THRESHOLDS)))
# What a run shows unless the operator asks for all: thresholds that methods compare this quantity with by default (a
# geometric ratio is bounded within 1 % of 1, and OPSM's delta is 0.01), and what rules and dashboards ask for.
SIGNED_THRESHOLDS = tuple(sorted((0.0, *_THRESHOLDS)))
GEOMETRIC_THRESHOLDS = (-0.01, 0.0, 0.01)
ABSOLUTE_THRESHOLDS = (0.01, 0.1, 1.0)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

RUN_GAUGES: tuple[Family, ...] = (
    _fact("step", "Training step that the run's other gauges are of.", "step"),
    _fact("policy_version", "Version of the current policy, as the trainer names it.", "policy_version"),
    _fact("last_batch_timestamp_seconds", "Unix time of the run's last stored shard.", "last_batch"),
    _fact("step_complete_ratio", "Share of the step's shards that arrived.", "coverage"),
    _gauge(
        "kl_nats",
        "KL estimate, mean over valid tokens.",
        "run gap estimator",
    ),
    _gap("log_ratio_abs_mean_nats", "Mean of the absolute log-ratio over valid tokens."),
    _gap("log_ratio_abs_max_nats", "Largest absolute log-ratio of a token."),
    _gap("log_ratio_std_nats", "Population standard deviation of the log-ratio over tokens."),
    _quantiles(
        "log_ratio_quantile_nats",
        "Quantile of the log-ratio over valid tokens.",
    ),
    _gap("importance_ratio_mean", "Mean importance ratio over valid tokens."),
    _gap("importance_ratio_min", "Smallest importance ratio of a token."),
    _gap("importance_ratio_max", "Largest importance ratio of a token."),
    _gap("geometric_ratio_mean", "Mean over sequences of the geometric ratio."),
    _gap("geometric_ratio_min", "Smallest geometric ratio of a sequence."),
    _gap("geometric_ratio_max", "Largest geometric ratio of a sequence."),
    _quantiles(
        "geometric_ratio_quantile",
        "Quantile over sequences of the geometric ratio.",
        math.exp,
    ),
    _gauge(
        "effective_sample_size_ratio",
        "Effective sample size over the number of samples, by level.",
        "run gap level",
    ),
    _gauge("chi2", "Chi-squared divergence estimate, by level.", "run gap level"),
    _gap("probability_diff_mean", "Mean absolute difference of token probabilities."),
    _gap("probability_diff_max", "Largest absolute difference of token probabilities."),
    _gap("probability_correlation", "Pearson correlation of token probabilities."),
    _gap("multiplicative_error_mean", "Mean of exp(|log-ratio|) over valid tokens."),
    _gap("ratio_tail_ratio", "Share of tokens whose ratio is beyond 2 or 1/2."),
    _gap("exact_match_ratio", "Share of tokens whose two log-probs are bitwise equal."),
    _gauge(
        "perplexity",
        "Mean over sequences of the perplexity, by policy.",
        "run policy",
        *_perplexity("sampling", "mismatch.sequence.perplexity_denominator", "total.sequence.perplexity_denominator"),
        *_perplexity("old", "mismatch.sequence.perplexity_numerator", "staleness.sequence.perplexity_denominator"),
        *_perplexity("current", "total.sequence.perplexity_numerator", "staleness.sequence.perplexity_numerator"),
    ),
    _gauge(
        "masked_ratio",
        "Share of tokens or of sequences that the method would mask.",
        "run method unit",
    ),
    _gauge(
        "method_effective_sample_size_ratio",
        "Effective sample size ratio of the method's weights.",
        "run method",
    ),
    _gauge(
        "masked_advantage_ratio",
        "Share of the sum of |advantage| that the method would mask.",
        "run method",
    ),
    _gauge(
        "attribution_ratio",
        "Share of the total second moment, by component.",
        "run component",
    ),
    _gauge(
        "noise_floor_ratio",
        "Second moment of what engine or trainer differs from itself by over the mismatch's, by component.",
        "run component",
    ),
    _gauge(
        "policy_lag_versions",
        "Policy versions between sampling and training.",
        "run stat",
    ),
    _gauge(
        "routing_agreement_ratio",
        "Mean share of the top-k experts that both policies of the gap choose, over tokens and layers.",
        "run gap",
    ),
    _gauge("sequence_length_tokens_mean", "Mean tokens under the mask of a sequence.", "run"),
    _gauge(
        "length_budget_tokens",
        "Tokens at which the effective sample size of product ratios falls to about 0.3: 0.6 over k3.",
        "run",
        *(Source(f"gaps.{gap}.length_budget") for gap in ("total", "mismatch", "staleness")),
    ),
    _fact(
        "step_seconds_median",
        "Median seconds from one step's first shard to the next one's, over 32 steps.",
        "step_seconds",
    ),
    _fact(
        "open_step_timestamp_seconds",
        "Unix time of the first shard of the oldest step that still lacks some.",
        "open_since",
    ),
    _fact("run_finished", "Whether the run was said to be finished: 0 or 1.", "finished"),
    _alert(
        "breach_steps", "Breaching steps of the breach that stands, 0 without one; absent where the rule is silent."
    ),
    _alert("active", "Whether the alert is active: 0 or 1; absent where it is quiet."),
    _alert(
        "root", "Whether people are told of an alert that speaks for its half: 1, 0 while it waits; absent of others."
    ),
    _alert("value", "What the rule compares, at the newest step; absent where it is quiet."),
    _alert("threshold", "What the rule compares it with, in this run; absent where it is quiet."),
    _gauge("entropy_nats_mean", "Mean entropy the trainer sent, over tokens under the mask.", "run"),
)

RUN_INFO = Family("run_info", "gauge", "Always 1; the run's profile is the label.", ("run", "profile"))

RUN_HISTOGRAMS: tuple[Family, ...] = (
    _histogram(
        "token_log_ratio_nats",
        "Log-ratio of each valid token since the process started.",
        SIGNED_THRESHOLDS,
        SIGNED,
    ),
    _histogram(
        "sequence_log_geometric_ratio_nats",
        "Mean log-ratio of each sequence since the process started.",
        GEOMETRIC_THRESHOLDS,
        SIGNED,
    ),
    _histogram(
        "token_log_ratio_abs_nats",
        "Absolute log-ratio of each valid token since the process started.",
        ABSOLUTE_THRESHOLDS,
        ABSOLUTE,
    ),
)

RUN_COUNTERS: tuple[Family, ...] = (
    _counter("tokens_total", "Tokens under the mask in stored shards.", "run"),
    _counter("sequences_total", "Sequences in stored shards.", "run"),
    _counter("batches_total", "Stored shards, each once.", "run"),
    _counter("excluded_tokens_total", "Tokens under the mask left out of the figures, by reason.", "run reason"),
    _counter("suspect_tokens_total", "Tokens kept whose log-probs look wrong, by reason.", "run reason"),
    _counter("duplicate_batches_total", "Shards that had been stored before, with the same content.", "run"),
)

PROCESS: tuple[Family, ...] = (
    _counter("rejected_requests_total", "Requests answered with a problem document, by its kind.", "reason"),
    _seconds("request_seconds", "Time to answer a request, by route template and status.", "route status"),
    _seconds("stage_seconds", "Time a batch spends in a stage: decode, measure or store.", "stage"),
    _seconds("store_seconds", "Time of one database transaction, however many shards it holds."),
    _counter("ingest_bytes_total", "Bytes of request bodies received, by Content-Encoding.", "encoding"),
    Family("inflight_bytes", "gauge", "Bytes of the admission budget in use.", over_workers="sum"),
    Family("oldest_job_seconds", "gauge", "Age of a stage's oldest unfinished job; 0 where it has none.", ("stage",)),
    Family("database_free_bytes", "gauge", "Bytes left on the disk of a SQLite file.", ("database",)),
    Family(
        "certificate_expiry_timestamp_seconds",
        "gauge",
        "Unix time at which the certificate that is shown ends, or the first of its chain.",
        ("file",),
        over_workers="min",
    ),
    Family("start_time_seconds", "gauge", "Unix time at which the process began to serve."),
    Family("device_info", "gauge", "Always 1; the device that computes is the label.", ("device",)),
    Family(
        "compilation_failed",
        "gauge",
        "Whether the compiled pass could not be made, so that torch measures until the next start: 0 or 1.",
    ),
    _counter("device_fallbacks_total", "Measurements done again after the device failed.", ""),
    _counter("step_failures_total", "Times a step could not be merged or kept; it is tried again later.", ""),
    _counter("notifications_total", "Posts that tell of alerts, by what came of them.", "target outcome"),
    Family("leader", "gauge", "Whether this process leads, that is tells alerts and shows the gauges of runs: 0 or 1."),
    Family("build_info", "gauge", "Always 1; versions are labels.", ("version", "torch", "device")),
    _counter("missed_replicas_total", "Replicas that a scrape is without, counted by the exporter under Ray.", ""),
)

REASONS = {"excluded_tokens_total": ("nonfinite",), "suspect_tokens_total": ("positive", "exact_zero")}
FAMILIES: tuple[Family, ...] = (*RUN_GAUGES, RUN_INFO, *RUN_HISTOGRAMS, *RUN_COUNTERS, *PROCESS)
BY_NAME: Mapping[str, Family] = {family.name: family for family in FAMILIES}
