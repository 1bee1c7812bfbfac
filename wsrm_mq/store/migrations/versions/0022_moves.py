"""Next nodes have two facts more: whether what waits for one may have to go another way, since routes have changed,
and what one has forgotten that was put back from a copy."""

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.execute("ALTER TABLE hop ADD COLUMN moves INTEGER DEFAULT '0' NOT NULL")
    op.execute("ALTER TABLE hop ADD COLUMN forgot TEXT")
    op.execute("ALTER TABLE hop ADD COLUMN forgot_at INTEGER")
    op.execute("UPDATE hop SET moves = 1")


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
