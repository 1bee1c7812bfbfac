"""Queues that are consumed: what was put, leases, deadlines and waits of entries, groups, and who consumes.

What applications are called with has none of it, and lies in other indexes.
"""

from alembic import op

revision = "0016"
down_revision = "0015"

_LANE = (
    "id, queue, kind, identifier, principal, peer, partner, soap, addressing, assurance, ordered, created_at, "
    'active_at, inactivity, due_at, ended, ended_at, cursor, "limit", discard_from, discard_reason, discarding, '
    "owner, fence, running_since, retry_from, retry_at, blocked, redelivery_below, held, held_bytes, pruned, "
    'on_hold_since, connection, replay_of, "plan"'
)

STATEMENTS = (
    """
CREATE TABLE new_queue (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, kind TEXT NOT NULL,
    parent INTEGER, created_at INTEGER NOT NULL, application TEXT, policy TEXT, mode TEXT, messages INTEGER DEFAULT '0' NOT
    NULL, bytes INTEGER DEFAULT '0' NOT NULL, last_position INTEGER, last_put_at INTEGER, counted_at INTEGER
    DEFAULT '0' NOT NULL, came REAL DEFAULT '0' NOT NULL, went REAL DEFAULT '0' NOT NULL, owner INTEGER, holder TEXT,
    keeper INTEGER, CONSTRAINT kind_is_a_word CHECK (kind IN
    ('app', 'dead_letter', 'outgoing', 'subscription', 'topic', 'journal', 'report')), CONSTRAINT mode_is_a_word CHECK
    (mode IN ('dispatch', 'pull')), UNIQUE (name), FOREIGN KEY(parent)
    REFERENCES queue (id) ) STRICT
""",
    "INSERT INTO new_queue (id, name, kind, parent, created_at, application) "
    "SELECT id, name, kind, parent, created_at, application FROM queue",
    # Keys are given once.
    "DELETE FROM sqlite_sequence WHERE name = 'new_queue'",
    "INSERT INTO sqlite_sequence (name, seq) SELECT 'new_queue', seq FROM sqlite_sequence WHERE name = 'queue'",
    "DROP TABLE queue",
    "ALTER TABLE new_queue RENAME TO queue",
    "CREATE INDEX queue_held ON queue (owner) WHERE owner IS NOT NULL",
    "CREATE INDEX queue_kept ON queue (keeper) WHERE keeper IS NOT NULL",
    "CREATE UNIQUE INDEX queue_dead_letters ON queue (parent) WHERE kind = 'dead_letter'",
    """
CREATE TABLE new_lane (id INTEGER NOT NULL, queue INTEGER NOT NULL, kind TEXT DEFAULT 'rm' NOT NULL, identifier
    TEXT NOT NULL, principal TEXT, peer TEXT, partner TEXT, soap TEXT NOT NULL, addressing TEXT NOT NULL, assurance
    TEXT NOT NULL, ordered INTEGER NOT NULL, created_at INTEGER NOT NULL, active_at INTEGER NOT NULL, inactivity
    INTEGER, due_at INTEGER, ended TEXT, ended_at INTEGER, cursor INTEGER NOT NULL, "limit" INTEGER NOT NULL,
    discard_from INTEGER, discard_reason TEXT, discarding INTEGER DEFAULT '0' NOT NULL, owner INTEGER, fence INTEGER
    NOT NULL, running_since INTEGER, retry_from INTEGER, retry_at INTEGER, blocked INTEGER, redelivery_below INTEGER
    DEFAULT '0' NOT NULL, held INTEGER DEFAULT '0' NOT NULL, held_bytes INTEGER DEFAULT '0' NOT NULL, pruned INTEGER
    DEFAULT '0' NOT NULL, on_hold_since INTEGER, connection TEXT, replay_of INTEGER, "plan" TEXT, served_at INTEGER,
    leased_below INTEGER, leased_until INTEGER, lessee INTEGER, PRIMARY KEY (id), CONSTRAINT kind_is_a_word CHECK
    (kind IN ('rm', 'connection', 'replay', 'outgoing', 'group')), CONSTRAINT cursor_within_limit CHECK (cursor <=
    "limit"), FOREIGN KEY(queue) REFERENCES queue (id), UNIQUE (identifier), FOREIGN KEY(owner) REFERENCES instance
    (id), FOREIGN KEY(replay_of) REFERENCES lane (id), FOREIGN KEY("plan") REFERENCES "plan" (id) ) STRICT
""",
    f"INSERT INTO new_lane ({_LANE}) SELECT {_LANE} FROM lane",
    "DROP TABLE lane",
    "ALTER TABLE new_lane RENAME TO lane",
    "CREATE INDEX lane_by_connection ON lane (connection, queue) WHERE connection IS NOT NULL AND ended_at IS NULL",
    'CREATE INDEX lane_by_plan ON lane ("plan") WHERE plan IS NOT NULL',
    "CREATE INDEX lane_discarding ON lane (id) WHERE discarding = 1",
    "CREATE INDEX lane_due ON lane (due_at) WHERE due_at IS NOT NULL",
    "CREATE INDEX lane_ended ON lane (ended_at, id) WHERE ended_at IS NOT NULL",
    "CREATE INDEX lane_holding ON lane (held, held_bytes) WHERE held > 0",
    "CREATE INDEX lane_leasable ON lane (queue, served_at) "
    "WHERE served_at IS NOT NULL AND on_hold_since IS NULL AND owner IS NULL "
    'AND blocked IS NULL AND cursor < "limit" AND (discard_from IS NULL OR cursor < discard_from)',
    "CREATE INDEX lane_leased ON lane (owner, leased_until) WHERE leased_until IS NOT NULL",
    "CREATE INDEX lane_open ON lane (principal, peer) WHERE ended_at IS NULL AND kind = 'rm'",
    "CREATE INDEX lane_owned ON lane (owner) WHERE owner IS NOT NULL",
    "CREATE INDEX lane_replays ON lane (replay_of) WHERE replay_of IS NOT NULL",
    "CREATE INDEX lane_runnable ON lane (retry_at) "
    "WHERE served_at IS NULL AND on_hold_since IS NULL AND owner IS NULL "
    'AND blocked IS NULL AND cursor < "limit" AND (discard_from IS NULL OR cursor < discard_from)',
    "ALTER TABLE entry ADD COLUMN priority INTEGER",
    "ALTER TABLE entry ADD COLUMN leased_until INTEGER",
    "ALTER TABLE entry ADD COLUMN lessee INTEGER",
    "ALTER TABLE entry ADD COLUMN expires_at INTEGER",
    "ALTER TABLE entry ADD COLUMN hold TEXT",
    "ALTER TABLE entry ADD COLUMN journal_of INTEGER",
    "ALTER TABLE entry ADD COLUMN asks INTEGER",
    "DROP INDEX entry_live",
    "DROP INDEX entry_loose",
    "DROP INDEX entry_owned",
    "CREATE UNIQUE INDEX entry_live ON entry (lane, number) WHERE lane IS NOT NULL AND outcome IS NULL",
    "CREATE INDEX entry_loose ON entry (retry_at) WHERE priority IS NULL AND lane IS NULL AND outcome IS NULL",
    "CREATE INDEX entry_owned ON entry (owner) WHERE owner IS NOT NULL AND leased_until IS NULL",
    "CREATE INDEX entry_ready ON entry (queue, priority DESC, id) "
    "WHERE priority IS NOT NULL AND lane IS NULL AND outcome IS NULL AND owner IS NULL AND hold IS NULL",
    "CREATE INDEX entry_consumed ON entry (queue, id) WHERE priority IS NOT NULL AND outcome IS NULL",
    "CREATE INDEX entry_leased ON entry (owner, leased_until) WHERE leased_until IS NOT NULL",
    "CREATE INDEX entry_expiring ON entry (expires_at) "
    "WHERE expires_at IS NOT NULL AND outcome IS NULL AND owner IS NULL",
    "CREATE INDEX entry_waiting ON entry (hold, retry_at) WHERE hold IS NOT NULL AND outcome IS NULL",
    "DROP INDEX ledger_attempts",
    "CREATE INDEX ledger_attempts ON ledger (at) "
    "WHERE event IN ('failed', 'holder_died', 'broke_off', 'lease_ended', 'answered_with_fault')",
    "ALTER TABLE identity ADD COLUMN clock_offset INTEGER",
    """
CREATE TABLE header (message INTEGER NOT NULL, topic TEXT, properties TEXT, content_type TEXT,
    receive_by INTEGER, client TEXT, report_to TEXT, PRIMARY KEY (message), FOREIGN
    KEY(message) REFERENCES message (id) ) STRICT
""",
    """
CREATE TABLE dedupe (queue INTEGER NOT NULL, message_id TEXT NOT NULL, message INTEGER NOT NULL, until INTEGER
    NOT NULL, PRIMARY KEY (queue, message_id), FOREIGN KEY(queue) REFERENCES queue (id) ) WITHOUT ROWID, STRICT
""",
    "CREATE INDEX dedupe_until ON dedupe (until)",
    """
CREATE TABLE client (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, instance INTEGER NOT
    NULL, started_at INTEGER NOT NULL, seen_at INTEGER NOT NULL, ended_at INTEGER ) STRICT
""",
    "CREATE INDEX client_live ON client (instance) WHERE ended_at IS NULL",
    """
CREATE TABLE subscription (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name TEXT, client INTEGER, queue
    INTEGER NOT NULL, pattern TEXT, filter TEXT, asked INTEGER NOT NULL, granted INTEGER NOT NULL, lease INTEGER,
    acknowledges TEXT NOT NULL, barrier INTEGER, created_at INTEGER NOT NULL, seen_at INTEGER NOT NULL, ended_at INTEGER, FOREIGN
    KEY(client) REFERENCES client (id), FOREIGN KEY(queue) REFERENCES queue (id) ) STRICT
""",
    "CREATE INDEX subscription_by_client ON subscription (client) WHERE ended_at IS NULL",
    "CREATE INDEX subscription_by_queue ON subscription (queue) WHERE ended_at IS NULL",
    """
CREATE TABLE binding (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, pattern TEXT NOT NULL, filter TEXT, queue INTEGER NOT NULL,
    created_at INTEGER NOT NULL, FOREIGN KEY(queue) REFERENCES queue (id) ) STRICT
""",
    "CREATE INDEX binding_by_queue ON binding (queue)",
    "CREATE INDEX outbound_acknowledged ON outbound_sequence (answers) "
    "WHERE state = 'created' AND unacknowledged = 0 AND endpoint IS NOT NULL",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
