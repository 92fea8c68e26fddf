"""Runs have a revision, by which a process sees whether what it remembers of one still stands. Revision 0008."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("revision", sa.BigInteger()))


def downgrade() -> None:
    op.drop_column("runs", "revision")
