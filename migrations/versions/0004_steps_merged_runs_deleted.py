"""Steps know how many shards their merge is of; runs can be deleted in portions.

Revision 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

UNMERGED = sa.text("NOT superseded AND (merged IS NULL OR merged < received)")


def upgrade() -> None:
    op.add_column("runs", sa.Column("deleted", sa.Boolean()))
    op.add_column("steps", sa.Column("merged", sa.BigInteger()))
    op.execute("UPDATE steps SET merged = received WHERE state <> 'open'")
    op.drop_index("ix_steps_state_first_received_at", "steps")
    op.create_index(
        "ix_steps_unmerged", "steps", ["first_received_at"], sqlite_where=UNMERGED, postgresql_where=UNMERGED
    )


def downgrade() -> None:
    op.drop_index("ix_steps_unmerged", "steps")
    op.create_index("ix_steps_state_first_received_at", "steps", ["state", "first_received_at"])
    op.drop_column("steps", "merged")
    op.drop_column("runs", "deleted")
