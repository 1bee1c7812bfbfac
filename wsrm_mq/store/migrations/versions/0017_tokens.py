"""Tokens: who may use the queues from other machines; how far the store has what the outboxes there have sent; and all
queues of a subscription."""

from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.execute(
        """
CREATE TABLE token (name TEXT NOT NULL, digest TEXT, certificate TEXT, grants TEXT NOT NULL, created_at INTEGER NOT
    NULL, expires_at INTEGER, used_at INTEGER, PRIMARY KEY (name), CONSTRAINT it_is_known_by_one_thing CHECK ((digest
    IS NULL) <> (certificate IS NULL)), UNIQUE (digest), UNIQUE (certificate) ) WITHOUT ROWID, STRICT
"""
    )
    op.execute("ALTER TABLE subscription ADD COLUMN beside TEXT")
    op.execute(
        """
CREATE TABLE outbox (principal TEXT NOT NULL, lane TEXT NOT NULL, last INTEGER NOT NULL, seen_at INTEGER NOT NULL,
    PRIMARY KEY (principal, lane) ) WITHOUT ROWID, STRICT
"""
    )


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
