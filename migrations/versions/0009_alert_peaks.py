"""Alerts say how bad they were, and at which steps they became active and ended. Revision 0009."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("alerts", sa.Column("peak", sa.Double()))
    op.add_column("alerts", sa.Column("active_step", sa.BigInteger()))
    op.add_column("alerts", sa.Column("resolved_step", sa.BigInteger()))


def downgrade() -> None:
    for column in ("resolved_step", "active_step", "peak"):
        op.drop_column("alerts", column)
