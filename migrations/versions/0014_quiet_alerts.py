"""Alerts know since when their rule has been quiet, while they may come back. Revision 0014."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("alerts", sa.Column("quiet_since", sa.BigInteger()))


def downgrade() -> None:
    op.drop_column("alerts", "quiet_since")
