"""Blocks know when the newest shard of their steps came, until these go thin. Revision 0007."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

THICK = sa.text("last_received_at IS NOT NULL")
_LATEST = """
    UPDATE blocks SET last_received_at = (SELECT max(steps.last_received_at) FROM steps
    WHERE steps.run_id = blocks.run_id AND steps.step BETWEEN blocks.step AND blocks.last_step)
"""


def upgrade() -> None:
    op.add_column("blocks", sa.Column("last_received_at", sa.Double()))
    op.execute(_LATEST)
    columns = ["last_received_at", "run_id", "step"]
    op.create_index("ix_blocks_thick", "blocks", columns, sqlite_where=THICK, postgresql_where=THICK)


def downgrade() -> None:
    op.drop_index("ix_blocks_thick", "blocks")
    op.drop_column("blocks", "last_received_at")
