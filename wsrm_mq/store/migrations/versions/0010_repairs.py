"""What an operator does and sees: sequences held and forced, alarms confirmed, where an attempt failed, frozen plans.

``sequence`` and ``queue`` are made anew, as their words have become more. A store has few of both.
"""

from alembic import op

revision = "0010"
down_revision = "0009"

QUEUES = (
    """
    CREATE TABLE queue_renewed (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        parent INTEGER,
        created_at INTEGER NOT NULL,
        application TEXT,
        CONSTRAINT kind_is_a_word CHECK (kind IN ('app', 'dead_letter', 'outgoing')),
        UNIQUE (name),
        FOREIGN KEY(parent) REFERENCES queue (id)
    ) STRICT
    """,
    """
    INSERT INTO queue_renewed (id, name, kind, parent, created_at, application)
        SELECT id, name, kind, parent, created_at, application FROM queue
    """,
    """
    UPDATE sqlite_sequence SET seq = (SELECT seq FROM sqlite_sequence WHERE name = 'queue')
        WHERE name = 'queue_renewed' AND EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'queue')
    """,
    "DROP TABLE queue",
    "ALTER TABLE queue_renewed RENAME TO queue",
    "CREATE UNIQUE INDEX queue_dead_letters ON queue (parent) WHERE kind = 'dead_letter'",
)

COLUMNS = (
    "id, queue, identifier, create_id, principal, peer, partner, rm, soap, addressing, behavior, assurance, ordered, "
    "incomplete_reason, created_at, expires_at, inactivity, state, ended, ended_at, active_at, due_at, last_number, "
    'expected, cursor, "limit", discard_from, discard_reason, discarding, owner, fence, running_since, retry_from, '
    "retry_at, blocked, redelivery_below, duplicates, kind, connection, held, held_bytes, pruned"
)

SEQUENCES = (
    """
    CREATE TABLE sequence_renewed (
        id INTEGER NOT NULL,
        queue INTEGER NOT NULL,
        identifier TEXT NOT NULL,
        create_id TEXT,
        principal TEXT,
        peer TEXT,
        partner TEXT,
        rm TEXT NOT NULL,
        soap TEXT NOT NULL,
        addressing TEXT NOT NULL,
        behavior TEXT NOT NULL,
        assurance TEXT NOT NULL,
        ordered INTEGER NOT NULL,
        incomplete_reason TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        inactivity INTEGER,
        state TEXT NOT NULL,
        ended TEXT,
        ended_at INTEGER,
        active_at INTEGER NOT NULL,
        due_at INTEGER,
        last_number INTEGER,
        expected INTEGER NOT NULL,
        cursor INTEGER NOT NULL,
        "limit" INTEGER NOT NULL,
        discard_from INTEGER,
        discard_reason TEXT,
        discarding INTEGER DEFAULT '0' NOT NULL,
        owner INTEGER,
        fence INTEGER NOT NULL,
        running_since INTEGER,
        retry_from INTEGER,
        retry_at INTEGER,
        blocked INTEGER,
        redelivery_below INTEGER DEFAULT '0' NOT NULL,
        duplicates INTEGER DEFAULT '0' NOT NULL,
        kind TEXT DEFAULT 'rm' NOT NULL,
        connection TEXT,
        held INTEGER DEFAULT '0' NOT NULL,
        held_bytes INTEGER DEFAULT '0' NOT NULL,
        pruned INTEGER DEFAULT '0' NOT NULL,
        on_hold_since INTEGER,
        late TEXT,
        replay_of INTEGER,
        plan TEXT,
        PRIMARY KEY (id),
        CONSTRAINT state_is_a_word CHECK (state IN ('created', 'closed', 'ended')),
        CONSTRAINT kind_is_a_word CHECK (kind IN ('rm', 'connection', 'replay', 'outgoing')),
        CONSTRAINT late_is_a_word CHECK (late IN ('accept', 'refuse')),
        CONSTRAINT cursor_within_limit CHECK (cursor <= "limit"),
        FOREIGN KEY(queue) REFERENCES queue (id),
        UNIQUE (identifier),
        FOREIGN KEY(owner) REFERENCES instance (id),
        FOREIGN KEY(replay_of) REFERENCES sequence (id),
        FOREIGN KEY(plan) REFERENCES plan (id)
    ) STRICT
    """,
    f"INSERT INTO sequence_renewed ({COLUMNS}) SELECT {COLUMNS} FROM sequence",
    "DROP TABLE sequence",
    "ALTER TABLE sequence_renewed RENAME TO sequence",
    "CREATE INDEX sequence_create_id ON sequence (create_id) WHERE create_id IS NOT NULL",
    "CREATE INDEX sequence_owned ON sequence (owner) WHERE owner IS NOT NULL",
    """
    CREATE INDEX sequence_runnable ON sequence (retry_at)
        WHERE on_hold_since IS NULL AND owner IS NULL AND blocked IS NULL AND cursor < "limit"
            AND (discard_from IS NULL OR cursor < discard_from)
    """,
    "CREATE INDEX sequence_discarding ON sequence (id) WHERE discarding = 1",
    """
    CREATE INDEX sequence_by_connection ON sequence (connection, queue)
        WHERE connection IS NOT NULL AND ended_at IS NULL
    """,
    "CREATE INDEX sequence_open ON sequence (principal, peer) WHERE state = 'created' AND kind = 'rm'",
    "CREATE INDEX sequence_holding ON sequence (held, held_bytes) WHERE held > 0",
    "CREATE INDEX sequence_replays ON sequence (replay_of) WHERE replay_of IS NOT NULL",
    "CREATE INDEX sequence_by_plan ON sequence (plan) WHERE plan IS NOT NULL",
    "CREATE INDEX sequence_due ON sequence (due_at) WHERE due_at IS NOT NULL",
    "CREATE INDEX sequence_ended ON sequence (ended_at, id) WHERE ended_at IS NOT NULL",
)

ADDED = (
    "ALTER TABLE entry ADD COLUMN confirmed_at INTEGER",
    "ALTER TABLE entry ADD COLUMN late INTEGER DEFAULT '0' NOT NULL",
    "DROP INDEX entry_dead",
    "CREATE INDEX entry_dead ON entry (queue, id, confirmed_at) WHERE outcome = 'dead'",
    "DROP INDEX entry_faulted",
    """
    CREATE INDEX entry_faulted ON entry (settled_at, outcome, confirmed_at) WHERE reason = 'answered_with_fault'
    """,
    "ALTER TABLE ledger ADD COLUMN fault TEXT",
    "ALTER TABLE ledger ADD COLUMN exception TEXT",
    "ALTER TABLE ledger ADD COLUMN place TEXT",
    "CREATE INDEX ledger_acts ON ledger (id) WHERE actor IS NOT NULL",
    """
    CREATE INDEX ledger_attempts ON ledger (at)
        WHERE event IN ('failed', 'holder_died', 'broke_off', 'answered_with_fault')
    """,
    """
    CREATE TABLE plan (
        id TEXT NOT NULL,
        digest TEXT NOT NULL,
        file TEXT NOT NULL,
        made_at INTEGER NOT NULL,
        actor TEXT,
        reason TEXT,
        query TEXT NOT NULL,
        target TEXT NOT NULL,
        as_new INTEGER NOT NULL,
        messages INTEGER NOT NULL,
        state TEXT NOT NULL,
        owner INTEGER,
        line INTEGER DEFAULT '0' NOT NULL,
        skipped INTEGER DEFAULT '0' NOT NULL,
        missing INTEGER DEFAULT '0' NOT NULL,
        begun_at INTEGER,
        ended_at INTEGER,
        PRIMARY KEY (id),
        CONSTRAINT state_is_a_word CHECK (state IN ('planned', 'running', 'done', 'cancelled')),
        FOREIGN KEY(owner) REFERENCES instance (id)
    ) WITHOUT ROWID, STRICT
    """,
)


def upgrade() -> None:
    for statement in (*QUEUES, *SEQUENCES, *ADDED):
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
