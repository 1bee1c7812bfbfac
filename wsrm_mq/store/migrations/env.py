"""Alembic's entry: the caller brings an open transaction, which all steps of an upgrade share."""

from alembic import context

from wsrm_mq.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    transaction_per_migration=False,
)
context.run_migrations()
