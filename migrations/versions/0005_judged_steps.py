"""Training steps as they were judged, and those that are not over yet; rules see what they saw of steps stored before.

Revision 0005.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import orjson
import sqlalchemy as sa
import zstandard
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
#: The steps of a run that rules look back on.
FIRST, NEWEST = 26, 300

steps = sa.table(
    "steps",
    sa.column("id", ROW_ID),
    sa.column("run_id", ROW_ID),
    sa.column("step", sa.BigInteger()),
    sa.column("minibatch", sa.BigInteger()),
    sa.column("attempt", sa.BigInteger()),
    sa.column("superseded", sa.Boolean()),
    sa.column("state", sa.String(8)),
    sa.column("policy_version", sa.BigInteger()),
)
metrics = sa.table(
    "metrics", sa.column("step_id", ROW_ID), sa.column("metric", sa.String(128)), sa.column("value", sa.Double())
)


def upgrade() -> None:
    op.create_table(
        "waiting_steps",
        sa.Column("run_id", ROW_ID, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("minibatches", sa.BigInteger()),
        sa.Column("since", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "step", name="pk_waiting_steps"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_waiting_steps_run_id_runs", ondelete="CASCADE"),
    )
    op.create_index("ix_waiting_steps_since", "waiting_steps", ["since"])
    judged = op.create_table(
        "judged_steps",
        sa.Column("run_id", ROW_ID, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("minibatches", sa.BigInteger(), nullable=False),
        sa.Column("checksum", sa.BigInteger(), nullable=False),
        sa.Column("figures", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "step", name="pk_judged_steps"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_judged_steps_run_id_runs", ondelete="CASCADE"),
    )
    op.create_index("ix_judged_steps_run_id_attempt_step", "judged_steps", ["run_id", "attempt", "step"])
    connection = op.get_bind()
    for run in connection.execute(sa.text("SELECT id FROM runs ORDER BY id")).scalars().all():
        rows = _looked_back_on(connection, run)
        if rows:
            connection.execute(sa.insert(judged), _judged(connection, run, rows))


def downgrade() -> None:
    op.drop_table("judged_steps")
    op.drop_table("waiting_steps")


def _looked_back_on(connection: sa.Connection, run: int) -> Sequence[Any]:
    """The last gradient step of each training step, up to the newest one of the newest attempt."""
    counting = (steps.c.run_id == run, ~steps.c.superseded, steps.c.state != "open")
    columns = (steps.c.id, steps.c.step, steps.c.minibatch, steps.c.attempt, steps.c.policy_version)
    rows = connection.execute(sa.select(*columns).where(*counting).order_by(steps.c.step, steps.c.minibatch))
    last = {row.step: row for row in rows}
    if not last:
        return []
    newest = max(last.values(), key=lambda row: (row.attempt, row.step)).step
    standing = [row for row in last.values() if row.step <= newest]
    return standing[:FIRST] + standing[FIRST:][-NEWEST:]


def _judged(connection: sa.Connection, run: int, rows: Sequence[Any]) -> list[dict[str, Any]]:
    figures: dict[int, dict[str, float]] = {row.id: {} for row in rows}
    columns = (metrics.c.step_id, metrics.c.metric, metrics.c.value)
    for step, metric, value in connection.execute(sa.select(*columns).where(metrics.c.step_id.in_(figures))):
        figures[step][metric] = value
    found = []
    for row in rows:
        if row.policy_version is not None:
            figures[row.id]["policy_version"] = row.policy_version
        packed = zstandard.compress(orjson.dumps(figures[row.id]), 3)
        of_step = {"run_id": run, "step": row.step, "attempt": row.attempt, "minibatches": row.minibatch + 1}
        found.append({**of_step, "checksum": zlib.crc32(packed), "figures": packed})
    return found
