"""What is known of an offered sequence beside its numbers: where it leads, and what acknowledgements tell its source."""

from alembic import op

revision = "0014"
down_revision = "0013"

STATEMENTS = (
    "ALTER TABLE outgoing ADD COLUMN endpoint TEXT",
    "ALTER TABLE outgoing ADD COLUMN acks_with_reply INTEGER DEFAULT '0' NOT NULL",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
