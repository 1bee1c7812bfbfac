"""What a sequence holds, in messages and bytes, and an index that counts the open sequences of a peer."""

from alembic import op

revision = "0003"
down_revision = "0002"

HELD = """
    UPDATE sequence SET held = coalesce((
        SELECT sum(r.upper - max(r.lower, sequence."limit") + 1) FROM range r
        WHERE r.sequence = sequence.id AND r.upper >= sequence."limit"
    ), 0)
    WHERE discard_from IS NULL
"""
HELD_BYTES = """
    UPDATE sequence SET held_bytes = coalesce((
        SELECT sum(m.body_size) FROM entry e JOIN message m ON m.id = e.message
        WHERE e.sequence = sequence.id AND e.number >= sequence."limit"
    ), 0)
    WHERE held > 0
"""


def upgrade() -> None:
    op.execute("ALTER TABLE sequence ADD COLUMN held INTEGER DEFAULT '0' NOT NULL")
    op.execute("ALTER TABLE sequence ADD COLUMN held_bytes INTEGER DEFAULT '0' NOT NULL")
    op.execute(HELD)
    op.execute(HELD_BYTES)
    op.execute("CREATE INDEX sequence_open ON sequence (principal, peer) WHERE state = 'created' AND kind = 'rm'")
    op.execute("CREATE INDEX sequence_holding ON sequence (held, held_bytes) WHERE held > 0")
