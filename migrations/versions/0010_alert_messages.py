"""Alerts keep what they say to people. Revision 0010."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("alerts", sa.Column("message", sa.Text()))


def downgrade() -> None:
    op.drop_column("alerts", "message")
