"""The inbound path: messages, entries, sequences, their ranges, replies, instances and the ledger.

Written out as SQL: what a store of this revision looks like must not change when the tables do.
"""

from alembic import op

revision = "0001"
down_revision = None

STATEMENTS = (
    """
    CREATE TABLE instance (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        started_at INTEGER NOT NULL,
        ended_at INTEGER,
        UNIQUE (name)
    ) STRICT
    """,
    """
    CREATE INDEX instance_live ON instance (id) WHERE ended_at IS NULL
    """,
    """
    CREATE TABLE ledger (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        event TEXT NOT NULL,
        queue INTEGER,
        sequence INTEGER,
        number INTEGER,
        position INTEGER,
        instance TEXT,
        attempt INTEGER,
        reason TEXT,
        actor TEXT
    ) STRICT
    """,
    """
    CREATE INDEX ledger_by_sequence ON ledger (sequence, id)
    """,
    """
    CREATE TABLE message (
        id INTEGER NOT NULL,
        message_id TEXT,
        action TEXT,
        environ TEXT NOT NULL,
        principal TEXT,
        connection TEXT,
        received_at INTEGER NOT NULL,
        body_size INTEGER NOT NULL,
        body BLOB,
        PRIMARY KEY (id)
    ) STRICT
    """,
    """
    CREATE INDEX message_by_connection ON message (connection, id) WHERE connection IS NOT NULL
    """,
    """
    CREATE TABLE queue (
        id INTEGER NOT NULL,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        parent INTEGER,
        created_at INTEGER NOT NULL,
        PRIMARY KEY (id),
        CONSTRAINT kind_is_a_word CHECK (kind IN ('app', 'dead_letter')),
        UNIQUE (name),
        FOREIGN KEY(parent) REFERENCES queue (id)
    ) STRICT
    """,
    """
    CREATE TABLE sequence (
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
        PRIMARY KEY (id),
        CONSTRAINT state_is_a_word CHECK (state IN ('created', 'closed', 'ended')),
        CONSTRAINT cursor_within_limit CHECK (cursor <= "limit"),
        FOREIGN KEY(queue) REFERENCES queue (id),
        UNIQUE (identifier),
        FOREIGN KEY(owner) REFERENCES instance (id)
    ) STRICT
    """,
    """
    CREATE INDEX sequence_create_id ON sequence (create_id) WHERE create_id IS NOT NULL
    """,
    """
    CREATE INDEX sequence_discarding ON sequence (id) WHERE discarding = 1
    """,
    """
    CREATE INDEX sequence_due ON sequence (due_at) WHERE due_at IS NOT NULL
    """,
    """
    CREATE INDEX sequence_owned ON sequence (owner) WHERE owner IS NOT NULL
    """,
    """
    CREATE INDEX sequence_runnable ON sequence (retry_at) WHERE owner IS NULL AND blocked IS NULL AND cursor < "limit" AND (discard_from IS NULL OR cursor < discard_from)
    """,
    """
    CREATE TABLE entry (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        queue INTEGER NOT NULL,
        message INTEGER NOT NULL,
        sequence INTEGER,
        number INTEGER,
        wants_reply INTEGER DEFAULT '0' NOT NULL,
        named INTEGER DEFAULT '1' NOT NULL,
        outcome TEXT,
        reason TEXT,
        settled_at INTEGER,
        deliveries INTEGER DEFAULT '0' NOT NULL,
        failures INTEGER DEFAULT '0' NOT NULL,
        cancels INTEGER DEFAULT '0' NOT NULL,
        deaths INTEGER DEFAULT '0' NOT NULL,
        retry_from INTEGER,
        retry_at INTEGER,
        last_error TEXT,
        waiter TEXT,
        origin INTEGER,
        replay_of INTEGER,
        CONSTRAINT outcome_is_a_word CHECK (outcome IN ('delivered', 'dead', 'discarded', 'purged')),
        CONSTRAINT settled_has_outcome CHECK ((outcome IS NULL) = (settled_at IS NULL)),
        FOREIGN KEY(queue) REFERENCES queue (id),
        FOREIGN KEY(message) REFERENCES message (id),
        FOREIGN KEY(sequence) REFERENCES sequence (id),
        FOREIGN KEY(origin) REFERENCES queue (id),
        FOREIGN KEY(replay_of) REFERENCES entry (id)
    ) STRICT
    """,
    """
    CREATE INDEX entry_by_message ON entry (message)
    """,
    """
    CREATE UNIQUE INDEX entry_by_number ON entry (sequence, number) WHERE sequence IS NOT NULL
    """,
    """
    CREATE INDEX entry_dead ON entry (queue, id) WHERE outcome = 'dead'
    """,
    """
    CREATE INDEX entry_unnamed ON entry (sequence, number) WHERE named = 0
    """,
    """
    CREATE TABLE range (
        sequence INTEGER NOT NULL,
        lower INTEGER NOT NULL,
        upper INTEGER NOT NULL,
        PRIMARY KEY (sequence, lower),
        CONSTRAINT range_is_not_empty CHECK (lower <= upper),
        FOREIGN KEY(sequence) REFERENCES sequence (id)
    )
     WITHOUT ROWID,
     STRICT
    """,
    """
    CREATE TABLE reply (
        entry INTEGER NOT NULL,
        status TEXT NOT NULL,
        headers TEXT NOT NULL,
        stored_at INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (entry),
        FOREIGN KEY(entry) REFERENCES entry (id)
    ) STRICT
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
