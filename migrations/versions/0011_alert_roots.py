"""Alerts know which one speaks for them. Revision 0011."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("alerts", sa.Column("inhibited_by", sa.String(64)))
    op.add_column("alerts", sa.Column("told_from", sa.BigInteger()))


def downgrade() -> None:
    op.drop_column("alerts", "told_from")
    op.drop_column("alerts", "inhibited_by")
