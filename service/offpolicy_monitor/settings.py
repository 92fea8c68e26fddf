"""All settings of the service, read once from the environment (prefix `OFFPOLICY_`).

A setting is a field here and nowhere else: `offpolicy-monitor settings` and docs/settings.md list this class.
Refusals name the variable that raises a limit; `Settings.variable` makes that name.
"""

import os
import re
import sys
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from offpolicy_monitor.addresses import LOCAL, parts_of

MEBIBYTE = 1 << 20
#: A batch is an eighth of it at a time for each.
MOST_MEASURE_THREADS = 8
#: One thread stores what they measure, and has no time for more.
MEASURE_PROCESSES = 2


def user_data_dir() -> Path:
    """The directory for this program's data by the XDG base directory rules."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "offpolicy-monitor"


def default_database_url() -> str:
    """The embedded database: one SQLite file under the user's data directory."""
    return f"sqlite:///{user_data_dir() / 'offpolicy.db'}"


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_measure_threads() -> int:
    """One for each core, as far as more of them help."""
    return min(cores(), MOST_MEASURE_THREADS)


def default_measure_processes() -> int:
    """As many as pay where there is a second core."""
    return MEASURE_PROCESSES if cores() > 1 and sys.platform == "linux" else 0


def http_url(text: str) -> str:
    """The URL without a slash at its end; ValueError where it is no address that this service could post to or show."""
    parts = parts_of(text)
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or a password: OFFPOLICY_..._AUTHORIZATION has those of who is told")
    return text.rstrip("/")


def host_pattern(text: str) -> str:
    """A host name or address in lower case, `*.` and a name, or `*`; ValueError for anything else, such as a URL."""
    name = text.lower().strip("[]").removesuffix(".")
    if (name != "*" and re.fullmatch(r"(\*\.)?[0-9a-z_:.-]+", name) is None) or re.search(r"^[^:]+:[0-9]*$", name):
        raise ValueError(f"{text!r} is no host: names or addresses without scheme and port, *.NAME, or *")
    return name


def authorization(text: str) -> str:
    """The value of the header: of `Basic USER:PASSWORD` with the latter encoded. ValueError for anything else."""
    scheme, _, credentials = text.strip().partition(" ")
    if scheme.lower() == "basic" and ":" in credentials:
        return f"Basic {b64encode(credentials.encode()).decode()}"
    if scheme.lower() in ("basic", "bearer") and re.fullmatch(r"[!-~]+", credentials):
        return f"{scheme} {credentials}"
    raise ValueError("must be Basic USER:PASSWORD or Bearer TOKEN")


class Settings(BaseSettings):
    """Every setting with its type, default and meaning. Immutable once read."""

    model_config = SettingsConfigDict(env_prefix="OFFPOLICY_", frozen=True, extra="ignore")

    host: str = Field("127.0.0.1", description="Address the service binds.")
    port: int = Field(8900, ge=0, le=65535, description="Port the service binds; 0 takes a free one.")
    workers: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that serve, on Linux with PostgreSQL; they share evenly what other settings allow.",
    )
    ssl_certfile: Path | None = Field(
        None, description="Certificate in PEM, its chain behind it: the service then speaks https, and nothing else."
    )
    ssl_keyfile: Path | None = Field(None, description="The certificate's key, where it is not in the same file.")
    ssl_keyfile_password: SecretStr | None = Field(None, description="Opens the key, where it is encrypted.")
    database_url: str = Field(
        default_factory=default_database_url, description="SQLAlchemy URL: sqlite:///FILE or postgresql+psycopg://..."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe log line shown.")
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="json writes one object per line; auto is console on a terminal and json elsewhere."
    )

    device: str = Field("auto", description="Where torch computes: auto (CUDA if present), cpu, cuda, cuda:1 ...")
    torch_threads: int = Field(1, ge=1, description="Intra-op threads of torch; more than one hurts on small machines.")
    measure_threads: int = Field(
        default_factory=default_measure_threads,
        ge=1,
        description="Threads among which the compiled pass on the CPU shares a batch, and of which two, or one for "
        "each process beside the service, see to small shards; figures do not depend on it.",
    )
    measure_processes: int = Field(
        default_factory=default_measure_processes,
        ge=0,
        le=64,
        description="Processes beside the service that measure small shards by the compiled pass, while many come side "
        "by side; several workers, and replicas of Ray, have none.",
    )
    torch_compile: bool = Field(
        True,
        description="Measure by the compiled pass over the tokens, with a GPU what is not large. Where it is not "
        "cached, a process of the lowest priority makes it after start.",
    )

    max_head_bytes: int = Field(
        65_536,
        ge=4096,
        description="Largest request line with its headers, bytes; a URL of more than 65,535 is never read.",
    )
    max_body_bytes: int = Field(256 * MEBIBYTE, ge=1, description="Largest request body as received, bytes.")
    max_decoded_bytes: int = Field(512 * MEBIBYTE, ge=1, description="Largest body after Content-Encoding, bytes.")
    max_decoded_ratio: int = Field(64, ge=1, description="Largest decoded over received size of a compressed body.")
    max_json_bytes: int = Field(64 * MEBIBYTE, ge=1, description="Largest JSON body after Content-Encoding, bytes.")
    max_json_lists: int = Field(1_000_000, ge=1, description="Most lists and objects in a JSON body.")
    max_frame_header_bytes: int = Field(MEBIBYTE, ge=1, description="Largest JSON header of a safetensors body, bytes.")
    max_tensors: int = Field(32, ge=1, description="Most arrays in one body.")
    max_tokens: int = Field(64_000_000, ge=1, description="Most token positions in one body, padding included.")
    max_sequences: int = Field(1_000_000, ge=1, description="Most sequences in one body.")
    max_sequence_length: int = Field(4_000_000, ge=1, description="Most positions in one sequence.")
    max_label_length: int = Field(64, ge=1, description="Longest label key or value, characters.")
    max_sequence_id_length: int = Field(256, ge=1, description="Longest entry of sequence_ids, characters.")
    max_methods: int = Field(4096, ge=1, description="Most method rows in one /v1/evaluate request.")
    max_evaluate_row_tokens: int = Field(
        600_000_000, ge=1, description="Most method rows times tokens in one /v1/evaluate request."
    )
    max_run_methods: int = Field(100, ge=0, description="Most method rows that a run can have on every batch.")

    max_change_bytes: int = Field(65_536, ge=1, description="Largest body of a change of a run (PATCH), bytes.")
    max_whatif_points: int = Field(50_000, ge=1, description="Most steps times thresholds in one /whatif request.")

    max_summary_bytes: int = Field(MEBIBYTE, ge=1, description="Largest posted summary, decompressed, bytes.")
    max_summary_tables: int = Field(4096, ge=1, description="Most tables in a posted summary.")

    keep_worst: int = Field(
        0, ge=0, le=5, description="How many sequences of each ranking of a step's worst keep their raw log-probs."
    )

    inflight_bytes: int = Field(
        1024 * MEBIBYTE,
        ge=1,
        description="Bytes of request bodies held at once, an eighth for small ones; later ones wait unread.",
    )
    decoding_bytes: int = Field(
        1024 * MEBIBYTE,
        ge=1,
        description="Bytes that decoding bodies may take at once; others wait, JSON that takes more is 413.",
    )
    evaluate_bytes: int = Field(
        512 * MEBIBYTE,
        ge=1,
        description="Bytes that evaluations may take at once; others wait, and one that needs more is refused.",
    )
    admission_timeout: float = Field(30.0, gt=0, description="Longest wait for admission before 503, seconds.")
    max_queue_wait: float = Field(
        5.0, gt=0, description="Longest time a batch is expected to wait for the device before 503, seconds."
    )
    head_timeout: float = Field(
        20.0, gt=0, description="Longest time for the head of a request to arrive before its connection ends, seconds."
    )
    body_timeout: float = Field(60.0, gt=0, description="Longest time for a body to arrive before 408, seconds.")
    body_idle_timeout: float = Field(
        10.0, gt=0, description="Longest time for the next bytes of a body to arrive before 408, seconds."
    )
    store_timeout: float = Field(
        8.0, gt=0, description="Longest wait for the database to store a shard before 503, seconds."
    )
    max_job_age: float = Field(
        120.0, gt=0, description="Age of the oldest job of a stage above which /readyz answers 503, seconds."
    )
    keep_alive: int = Field(
        75, ge=1, description="Longest time for a connection to wait for its next request, seconds."
    )
    max_connections: int = Field(
        900, ge=1, description="Most connections at once; of more, those that are idle are closed, the longest first."
    )
    run_requests_per_second: float = Field(
        0.0, ge=0, description="Most batches per second of one run before 429, whatever came of them; 0 bounds nothing."
    )
    run_bytes_per_second: float = Field(
        0.0, ge=0, description="Most bytes per second of one run's batches, as received, before 429; 0 bounds nothing."
    )
    run_burst: float = Field(
        60.0, gt=0, description="What a run may send at once: so many seconds' worth of its batches and bytes."
    )
    new_runs_per_hour: int = Field(
        1000, ge=1, description="Most runs that begin in an hour; the batches of further ones are 429."
    )
    max_listeners: int = Field(64, ge=1, description="Most streams of /v1/events at once; further ones are 503.")
    answer_bytes: int = Field(
        64 * MEBIBYTE, ge=1, description="Bytes of answers to reads held at once, unread ones too; later reads wait."
    )
    write_timeout: float = Field(
        20.0, gt=0, description="Longest time for a client to take the next 64 KiB of its answer, seconds."
    )
    step_timeout: float = Field(
        600.0, gt=0, description="Age at which a step that lacks shards or gradient steps counts as it is, seconds."
    )
    rollout_ttl: float = Field(3600.0, gt=0, description="How long a two-phase post's first half is kept, seconds.")
    rollout_bytes: int = Field(256 * MEBIBYTE, ge=0, description="Bytes of first halves kept; the oldest go first.")

    recent_bytes: int = Field(
        128 * MEBIBYTE,
        ge=0,
        description="Bytes of shards' summaries kept until their steps are complete; those of more are read back.",
    )
    settle_after: float = Field(
        86_400.0,
        gt=0,
        description="Age at which a step takes no more late shards and drops the summaries of its shards, seconds.",
    )
    block_steps: int = Field(
        10,
        ge=1,
        description="How many settled steps share one summary, but for a run's newest 50; 1 keeps each its own.",
    )
    thin_after: float = Field(
        2_592_000.0,
        gt=0,
        description="Age at which steps that share a summary keep of their figures the headline ones, and of their "
        "shards nothing, seconds.",
    )
    max_exported_runs: int = Field(200, ge=1, description="Most runs in /metrics, the most recently active first.")
    run_expiry: float = Field(86_400.0, gt=0, description="Silence after which a run leaves /metrics, seconds.")
    histogram_buckets: Literal["thresholds", "full"] = Field(
        "thresholds",
        description="Buckets of a run's classic histograms: at default thresholds of methods and what dashboards use, "
        "48 series per run; full adds 1-2-5 steps of every decade, 297 series.",
    )
    alert_gauges: Literal["breached", "all"] = Field(
        "breached",
        description="Alerts whose value, threshold and active are in /metrics: those pending, active or with terms of "
        "the run's own, the worst of them first up to 120 series per run; all adds the quiet ones, up to 196.",
    )

    public_url: str = Field(
        LOCAL,
        description="Where people reach the service: links of alerts begin with it. Unset, it is the port on this "
        "machine that the service listens on.",
    )
    trusted_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Hosts that are answered beside loopback's and the one of OFFPOLICY_PUBLIC_URL, by commas "
        "(*.example.org, * for any); where none is given, a service that does not bind loopback answers any.",
    )
    auth: Literal["auto", "required", "off"] = Field(
        "auto",
        description="Whether access tokens are asked for: auto, from the first one on that `offpolicy-monitor token "
        "create` makes, and for good; required, from the start; off, never, since a proxy does it.",
    )
    open_metrics: bool = Field(
        False, description="Answer /metrics without a token; with one it needs scope read and all runs."
    )
    webhook_url: str | None = Field(None, description="Told once when an alert becomes active and once when it ends.")
    webhook_secret: SecretStr | None = Field(None, description="Signs what the webhook is told (HMAC-SHA256).")
    webhook_authorization: SecretStr | None = Field(
        None, description="How the webhook is told who asks: Basic USER:PASSWORD, or Bearer TOKEN."
    )
    alertmanager_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Alertmanagers to tell of alerts: base URLs, separated by commas."
    )
    alertmanager_authorization: SecretStr | None = Field(
        None, description="How each Alertmanager is told who asks: Basic USER:PASSWORD, or Bearer TOKEN."
    )
    notify_interval: float = Field(60.0, gt=0, description="How often Alertmanagers are told what is active, seconds.")

    @field_validator(
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_keyfile_password",
        "webhook_url",
        "webhook_secret",
        "webhook_authorization",
        "alertmanager_authorization",
        mode="before",
    )
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        """An empty variable is how compose files and units leave one out."""
        return value or None

    @model_validator(mode="after")
    def _own_url(self) -> Self:
        """Where this machine reaches the service, unless it is told; a free port is not known before it is taken."""
        if "public_url" not in self.model_fields_set and self.port:
            object.__setattr__(self, "public_url", f"http{'s' * bool(self.ssl_certfile)}://127.0.0.1:{self.port}")
        return self

    @field_validator("alertmanager_urls", "trusted_hosts", mode="before")
    @classmethod
    def _separated(cls, value: object) -> object:
        return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value

    @field_validator("public_url", "webhook_url")
    @classmethod
    def _one_url(cls, value: str | None) -> str | None:
        return value if value is None else http_url(value)

    @field_validator("alertmanager_urls")
    @classmethod
    def _urls(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(http_url, value))

    @field_validator("webhook_authorization", "alertmanager_authorization")
    @classmethod
    def _credentials(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value is None else SecretStr(authorization(value.get_secret_value()))

    @field_validator("trusted_hosts")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(host_pattern, value))

    @classmethod
    def variable(cls, field: str) -> str:
        """The environment variable of a field: `max_tokens` -> `OFFPOLICY_MAX_TOKENS`."""
        if field not in cls.model_fields:
            raise KeyError(field)
        return f"OFFPOLICY_{field.upper()}"
