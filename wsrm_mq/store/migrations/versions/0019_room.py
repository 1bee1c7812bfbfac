"""A destination says how many messages more it has room for (WCF's BufferRemaining)."""

from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.execute("ALTER TABLE outbound_sequence ADD COLUMN takes_below INTEGER")


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
