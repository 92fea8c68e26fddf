"""Alerts: what the rules say of each run, their episodes, and what a run has of its own.

Revision 0003.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("runs", sa.Column("correction", sa.String(64)))
    op.add_column("runs", sa.Column("overrides", sa.JSON()))
    op.create_table(
        "judgements",
        sa.Column("run_id", ROW_ID, nullable=False),
        sa.Column("step", sa.BigInteger()),
        sa.Column("step_seconds", sa.Double()),
        sa.Column("states", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_judgements"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_judgements_run_id_runs", ondelete="CASCADE"),
    )
    op.create_table(
        "alerts",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("run_id", ROW_ID, nullable=False),
        sa.Column("alert", sa.String(64), nullable=False),
        sa.Column("severity", sa.String(8), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("since_step", sa.BigInteger()),
        sa.Column("last_step", sa.BigInteger()),
        sa.Column("breach_steps", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.Double()),
        sa.Column("threshold", sa.Double()),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("active_at", sa.Double()),
        sa.Column("resolved_at", sa.Double()),
        sa.Column("told", sa.String(8)),
        sa.PrimaryKeyConstraint("id", name="pk_alerts"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_alerts_run_id_runs", ondelete="CASCADE"),
    )
    op.create_index("ix_alerts_run_id_state", "alerts", ["run_id", "state"])
    op.create_index("ix_alerts_state_told", "alerts", ["state", "told"])


def downgrade() -> None:
    op.drop_table("alerts")
    op.drop_table("judgements")
    op.drop_column("runs", "overrides")
    op.drop_column("runs", "correction")
