"""Which messages of a sequence were settled and not delivered is asked with every verdict on it; what a refusal said is
kept.
"""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.execute("CREATE INDEX entry_undelivered ON entry (sequence, number) WHERE outcome IN ('dead', 'discarded')")
    op.execute("ALTER TABLE refusal ADD COLUMN said TEXT DEFAULT '' NOT NULL")


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
