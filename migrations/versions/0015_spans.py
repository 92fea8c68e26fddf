"""Settled steps have their headline figures in columns too: a row for each figure of some hundred steps. Revision 0015.

It only adds a table, which takes no time in a database of any size. What is in it is made afterwards, by small turns of
the process that leads, while shards are stored by it and by processes of the release before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "spans",
        sa.Column("run_id", ROW_ID, nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("numbers", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "name", "step", name="pk_spans"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_spans_run_id_runs", ondelete="CASCADE"),
    )
    if op.get_bind().dialect.name == "postgresql":
        # Numbers of 480 steps stay in their row, two to a page: aside, each would be looked for on its own.
        op.execute("ALTER TABLE spans SET (toast_tuple_target = 8160)")


def downgrade() -> None:
    op.drop_table("spans")
