"""Alembic's entry: runs the migrations on the connection that `offpolicy_monitor.store.migrate` hands over.

The caller owns the transaction, so that a whole upgrade happens or does not, on SQLite as on PostgreSQL.
"""

from alembic import context
from offpolicy_monitor.store.rows.tables import metadata

connection = context.config.attributes["connection"]
if not connection.in_transaction():
    connection.begin()  # the caller's, of which Alembic would end one that SQLAlchemy does not know of
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
    compare_type=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
