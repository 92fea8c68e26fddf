"""The tables, as SQLAlchemy metadata. The migrations are what makes them; `migrate.check` proves that both agree.

Twelve tables: runs; shards as they were acknowledged; steps, one row per gradient step and attempt, with what its
shards merged to; metrics, the headline figures of steps in a narrow form that plots read fast, and metric_names, what
they are called; spans, the same figures of settled steps in columns (rows.spans); blocks, the merges of old steps that
have none of their own any more; waiting_steps, training steps
that are not over yet; judged_steps, the figures that the others were judged by; judgements, what the rules say of each
run's newest step; alerts, one row per breach from its beginning to its end; access_tokens, who may post and read, of
whose secrets the digests are kept. Knows no query.

Times are unix seconds. `summary` is a stored StepSummary, `figures` its finalised figures as JSON; both compressed. A
step has figures where its summary is not its own any more, or where an older release stored them (store.rows.derived).
`steps.merged` says how many shards the kept summary and figures are of, NULL before the first; `received` may be ahead.
`steps.block` is NULL while late shards are taken; 0 when the summaries of its shards are dropped, which are then empty;
else the block that has its summary, which is then NULL. A shard that is its whole step has none of its own either.
`blocks.last_received_at` is when the newest shard of its steps came; NULL once these are thin: their `figures` are NULL
too then, those in `metrics` remain, and their rows in `shards` and most in `judged_steps` are gone.
`metrics.figures` are float64 in the order of the names that `names_id` names.
`runs.revision` is another number after each transaction that changed the run's steps, alerts or settings (rows.held).
`runs.deleted` marks a run that is gone for every reader; its rows go in portions, and its name is free at once.
`runs.methods` are the method rows chosen for the run, NULL for the default ones; `correction` names the one that the
trainer really uses, `overrides` are the run's own thresholds by rule. `waiting_steps.since` is when the newest
gradient step began; `judged_steps.figures` are JSON by path, compressed, which says so where `metrics` and `steps` have
all of them, of a step whose one gradient step is complete; `checksum` is of what the step was judged by. `alerts.told`
is the state that was last told; `peak`, `active_step` and `resolved_step` are NULL of what an older release wrote.
`alerts.inhibited_by` is the rule whose alert speaks for it, `told_from` and `quiet_since` as of alerts.episodes.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

PENDING, ACTIVE, RESOLVED = "pending", "active", "resolved"

#: A step whose kept merge, if there is one, lacks shards that are stored: few are at any time, and an index has them.
UNMERGED = text("NOT superseded AND (merged IS NULL OR merged < received)")

#: A step that counts and may still be revised; one that may not, whose summary is still its own.
UNSETTLED = text("block IS NULL AND state <> 'open'")
ALONE = text("block = 0")
#: A block whose steps have figures and shards still.
THICK = text("last_received_at IS NOT NULL")

OPEN = "open"
CLOSED = "closed"
COMPLETE = "complete"

DEFAULT_PROFILE = "dense_bf16"

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=NAMING_CONVENTION)

# SQLite numbers rows by itself only where the key's type is spelled INTEGER.
RowId = BigInteger().with_variant(Integer, "sqlite")


def _run_id(primary_key: bool) -> Column[int]:
    """A reference to the run; the row goes when the run goes."""
    return Column("run_id", RowId, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=primary_key, nullable=False)


runs = Table(
    "runs",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("name", String(128), nullable=False),
    Column("profile", String(64), nullable=False),
    Column("labels", JSON, nullable=False),
    Column("methods", JSON(none_as_null=True)),
    Column("correction", String(64)),
    Column("overrides", JSON(none_as_null=True)),
    Column("length_cap", BigInteger),
    Column("deleted", Boolean),
    Column("created_at", Double, nullable=False),
    Column("last_batch_at", Double),
    Column("finished_at", Double),
    Column("revision", BigInteger),
    UniqueConstraint("name"),
    Index(None, "last_batch_at"),
)

shards = Table(
    "shards",
    metadata,
    _run_id(primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("minibatch", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    Column("shard", BigInteger, primary_key=True, autoincrement=False),
    Column("shards", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("sequences", BigInteger, nullable=False),
    Column("policy_version", BigInteger),
    Column("labels", JSON, nullable=False),
    Column("dtypes", JSON, nullable=False),
    Column("received_at", Double, nullable=False),
    Column("summary", LargeBinary, nullable=False),
)

steps = Table(
    "steps",
    metadata,
    Column("id", RowId, primary_key=True),
    _run_id(primary_key=False),
    Column("step", BigInteger, nullable=False),
    Column("minibatch", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("superseded", Boolean, nullable=False),
    Column("state", String(8), nullable=False),
    Column("shards", BigInteger, nullable=False),
    Column("received", BigInteger, nullable=False),
    Column("merged", BigInteger),
    Column("minibatches", BigInteger),
    Column("policy_version", BigInteger),
    Column("first_received_at", Double, nullable=False),
    Column("last_received_at", Double, nullable=False),
    Column("summary", LargeBinary),
    Column("figures", LargeBinary),
    Column("block", BigInteger),
    UniqueConstraint("run_id", "step", "minibatch", "attempt"),
    Index(None, "run_id", "attempt", "step", "minibatch"),
    # Covers what plots and pages look for, so that they never walk over the blobs of rows they do not show.
    Index(None, "run_id", "step", "minibatch", "superseded", "state"),
    Index("ix_steps_unmerged", "first_received_at", sqlite_where=UNMERGED, postgresql_where=UNMERGED),
    Index("ix_steps_unsettled", "last_received_at", sqlite_where=UNSETTLED, postgresql_where=UNSETTLED),
    Index("ix_steps_alone", "run_id", "step", sqlite_where=ALONE, postgresql_where=ALONE),
)

metrics = Table(
    "metrics",
    metadata,
    Column("step_id", RowId, ForeignKey("steps.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("names_id", RowId, ForeignKey("metric_names.id"), nullable=False),
    Column("figures", LargeBinary, nullable=False),
)

metric_names = Table(
    "metric_names",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("digest", String(32), nullable=False),
    Column("names", Text, nullable=False),
    UniqueConstraint("digest"),
)

spans = Table(
    "spans",
    metadata,
    _run_id(primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("last_step", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("numbers", LargeBinary, nullable=False),
)

blocks = Table(
    "blocks",
    metadata,
    Column("id", RowId, primary_key=True),
    _run_id(primary_key=False),
    Column("step", BigInteger, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("last_received_at", Double),
    Column("summary", LargeBinary, nullable=False),
    Index(None, "run_id", "step"),
    Index("ix_blocks_thick", "last_received_at", "run_id", "step", sqlite_where=THICK, postgresql_where=THICK),
)

waiting_steps = Table(
    "waiting_steps",
    metadata,
    _run_id(primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("minibatches", BigInteger),
    Column("since", Double, nullable=False),
    Index(None, "since"),
)

judged_steps = Table(
    "judged_steps",
    metadata,
    _run_id(primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", BigInteger, nullable=False),
    Column("minibatches", BigInteger, nullable=False),
    Column("checksum", BigInteger, nullable=False),
    Column("figures", LargeBinary, nullable=False),
    Index(None, "run_id", "attempt", "step"),
)

judgements = Table(
    "judgements",
    metadata,
    _run_id(primary_key=True),
    Column("step", BigInteger),
    Column("step_seconds", Double),
    Column("states", LargeBinary, nullable=False),
)

alerts = Table(
    "alerts",
    metadata,
    Column("id", RowId, primary_key=True),
    _run_id(primary_key=False),
    Column("alert", String(64), nullable=False),
    Column("severity", String(8), nullable=False),
    Column("state", String(8), nullable=False),
    Column("since_step", BigInteger),
    Column("last_step", BigInteger),
    Column("breach_steps", BigInteger, nullable=False),
    Column("value", Double),
    Column("threshold", Double),
    Column("started_at", Double, nullable=False),
    Column("active_at", Double),
    Column("resolved_at", Double),
    Column("told", String(8)),
    Column("peak", Double),
    Column("active_step", BigInteger),
    Column("resolved_step", BigInteger),
    Column("message", Text),
    Column("inhibited_by", String(64)),
    Column("told_from", BigInteger),
    Column("quiet_since", BigInteger),
    Index(None, "run_id", "state"),
    Index(None, "state", "told"),
)

access_tokens = Table(
    "access_tokens",
    metadata,
    Column("token", String(16), key="id", primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("scopes", String(64), nullable=False),
    Column("runs", String(128), nullable=False),
    Column("note", String(200), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("last_used_at", Double),
)
