"""The method rows that are chosen for a run; NULL where the default ones run.

Revision 0002.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("methods", sa.JSON()))


def downgrade() -> None:
    op.drop_column("runs", "methods")
