"""Runs, shards, steps, metrics: what the service needs to store each shard once and merge each step.

Revision 0001, the first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _run_id() -> sa.Column[int]:
    return sa.Column("run_id", ROW_ID, nullable=False)


def _to_run(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=f"fk_{table}_run_id_runs", ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("profile", sa.String(64), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("last_batch_at", sa.Double()),
        sa.Column("finished_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("name", name="uq_runs_name"),
    )
    op.create_index("ix_runs_last_batch_at", "runs", ["last_batch_at"])
    op.create_table(
        "shards",
        _run_id(),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("minibatch", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("shard", sa.BigInteger(), nullable=False),
        sa.Column("shards", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("sequences", sa.BigInteger(), nullable=False),
        sa.Column("policy_version", sa.BigInteger()),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("dtypes", sa.JSON(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("summary", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "step", "minibatch", "attempt", "shard", name="pk_shards"),
        _to_run("shards"),
    )
    op.create_table(
        "steps",
        sa.Column("id", ROW_ID, nullable=False),
        _run_id(),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("minibatch", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("superseded", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("shards", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("minibatches", sa.BigInteger()),
        sa.Column("policy_version", sa.BigInteger()),
        sa.Column("first_received_at", sa.Double(), nullable=False),
        sa.Column("last_received_at", sa.Double(), nullable=False),
        sa.Column("summary", sa.LargeBinary()),
        sa.Column("figures", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("id", name="pk_steps"),
        sa.UniqueConstraint("run_id", "step", "minibatch", "attempt", name="uq_steps_run_id_step_minibatch_attempt"),
        _to_run("steps"),
    )
    op.create_index("ix_steps_run_id_attempt_step_minibatch", "steps", ["run_id", "attempt", "step", "minibatch"])
    op.create_index(
        "ix_steps_run_id_step_minibatch_superseded_state",
        "steps",
        ["run_id", "step", "minibatch", "superseded", "state"],
    )
    op.create_index("ix_steps_state_first_received_at", "steps", ["state", "first_received_at"])
    op.create_table(
        "metrics",
        sa.Column("step_id", ROW_ID, nullable=False),
        sa.Column("metric", sa.String(128), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("step_id", "metric", name="pk_metrics"),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name="fk_metrics_step_id_steps", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for table in ("metrics", "steps", "shards", "runs"):
        op.drop_table(table)
