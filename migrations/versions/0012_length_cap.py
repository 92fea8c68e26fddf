"""Runs may say how many tokens an answer has at most. Revision 0012."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("length_cap", sa.BigInteger()))


def downgrade() -> None:
    op.drop_column("runs", "length_cap")
