"""An RM Source offers sequences for replies, acknowledges what comes in them, and heeds the room that its destination says
it has (WCF's BufferRemaining)."""

from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    for column in ("takes_below INTEGER", "offered TEXT", "replied TEXT DEFAULT '' NOT NULL"):
        op.execute(f"ALTER TABLE outbound_sequence ADD COLUMN {column}")


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
