"""Alembic's entry: run the versions on the connection that `store.migrate` hands in."""

from alembic import context

from campana.store import schema

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=schema.metadata,
    version_table="campana_schema",
    version_table_pk=False,
    transaction_per_migration=False,
)
context.run_migrations()
