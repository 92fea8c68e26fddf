"""A step takes less room: headline figures in one row, a shard that is its step not stored twice, blocks of old steps.

Revision 0006.
"""

import hashlib
import json
import struct
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UNSETTLED, ALONE = sa.text("block IS NULL AND state <> 'open'"), sa.text("block = 0")
#: Steps whose figures are moved at once.
CHUNK = 500


def upgrade() -> None:
    op.add_column("steps", sa.Column("block", sa.BigInteger()))
    op.create_index(
        "ix_steps_unsettled", "steps", ["last_received_at"], sqlite_where=UNSETTLED, postgresql_where=UNSETTLED
    )
    op.create_index("ix_steps_alone", "steps", ["run_id", "step"], sqlite_where=ALONE, postgresql_where=ALONE)
    op.create_table(
        "blocks",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("run_id", ROW_ID, nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("summary", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_blocks"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_blocks_run_id_runs", ondelete="CASCADE"),
    )
    op.create_index("ix_blocks_run_id_step", "blocks", ["run_id", "step"])
    _pack_metrics()
    op.execute(_ALONE_IN_ITS_STEP)


def downgrade() -> None:
    op.execute(_AS_IN_ITS_STEP)
    _unpack_metrics()
    op.drop_table("blocks")
    op.drop_index("ix_steps_alone", "steps")
    op.drop_index("ix_steps_unsettled", "steps")
    op.drop_column("steps", "block")


_OF_STEP = """
    SELECT {what} FROM steps WHERE steps.run_id = shards.run_id AND steps.step = shards.step
    AND steps.minibatch = shards.minibatch AND steps.attempt = shards.attempt AND steps.summary IS NOT NULL
"""
_ALONE_IN_ITS_STEP = sa.text(
    f"UPDATE shards SET summary = :nothing WHERE shards = 1 AND EXISTS ({_OF_STEP.format(what='1')})"
).bindparams(sa.bindparam("nothing", b"", sa.LargeBinary()))
_AS_IN_ITS_STEP = sa.text(
    f"UPDATE shards SET summary = ({_OF_STEP.format(what='steps.summary')})"
    f" WHERE shards = 1 AND EXISTS ({_OF_STEP.format(what='1')})"
)


def _pack_metrics() -> None:
    """From a row per figure to a row per step."""
    connection = op.get_bind()
    _set_aside("metrics_by_name")
    names = op.create_table(
        "metric_names",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("digest", sa.String(32), nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_metric_names"),
        sa.UniqueConstraint("digest", name="uq_metric_names_digest"),
    )
    packed = op.create_table(
        "metrics",
        sa.Column("step_id", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("names_id", ROW_ID, nullable=False),
        sa.Column("figures", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("step_id", name="pk_metrics"),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name="fk_metrics_step_id_steps", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["names_id"], ["metric_names.id"], name="fk_metrics_names_id_metric_names"),
    )
    ids: dict[str, int] = {}
    for figures in _by_step(connection, "SELECT step_id, metric, value FROM metrics_by_name WHERE {of_steps}"):
        rows = []
        for step, of_step in figures.items():
            text = json.dumps(list(of_step), separators=(",", ":"))
            digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
            if digest not in ids:
                ids[digest] = len(ids) + 1
                connection.execute(sa.insert(names).values(digest=digest, names=text))
                found = connection.execute(sa.select(names.c.id).where(names.c.digest == digest))
                ids[digest] = found.scalar_one()
            values = struct.pack(f"<{len(of_step)}d", *of_step.values())
            rows.append({"step_id": step, "names_id": ids[digest], "figures": values})
        connection.execute(sa.insert(packed), rows)
    op.drop_table("metrics_by_name")


def _unpack_metrics() -> None:
    connection = op.get_bind()
    _set_aside("metrics_packed")
    by_name = op.create_table(
        "metrics",
        sa.Column("step_id", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("metric", sa.String(128), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("step_id", "metric", name="pk_metrics"),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name="fk_metrics_step_id_steps", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    names = {row.id: json.loads(row.names) for row in connection.execute(sa.text("SELECT id, names FROM metric_names"))}
    query = "SELECT step_id, names_id, figures FROM metrics_packed WHERE step_id > :last ORDER BY step_id LIMIT :chunk"
    last = 0
    while found := connection.execute(sa.text(query), {"last": last, "chunk": CHUNK}).all():
        last = found[-1].step_id
        rows = [
            {"step_id": row.step_id, "metric": name, "value": value}
            for row in found
            for name, (value,) in zip(names[row.names_id], struct.iter_unpack("<d", row.figures), strict=True)
        ]
        connection.execute(sa.insert(by_name), rows)
    op.drop_table("metrics_packed")
    op.drop_table("metric_names")


def _set_aside(name: str) -> None:
    """Rename `metrics`, and on PostgreSQL the name of its key, which a schema has only once."""
    op.rename_table("metrics", name)
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER INDEX pk_metrics RENAME TO pk_{name}")


def _by_step(connection: sa.Connection, query: str) -> Iterator[dict[int, dict[str, float]]]:
    """Step -> name -> value, of some hundred steps at a time."""
    statement = sa.text(query.format(of_steps="step_id BETWEEN :first AND :last ORDER BY step_id, metric"))
    ids = sa.text("SELECT id FROM steps WHERE id > :last ORDER BY id LIMIT :chunk")
    last = 0
    while steps := connection.execute(ids, {"last": last, "chunk": CHUNK}).scalars().all():
        last = steps[-1]
        figures: dict[int, dict[str, float]] = {}
        for step, metric, value in connection.execute(statement, {"first": steps[0], "last": last}):
            figures.setdefault(step, {})[metric] = value
        if figures:
            yield figures
