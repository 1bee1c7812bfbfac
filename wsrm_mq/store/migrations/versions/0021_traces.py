"""The index by which a message is found again that goes over routes, wherever it was put."""

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.execute("CREATE INDEX routed_by_origin ON routed (position)")


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
