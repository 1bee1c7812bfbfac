"""A lane and the sequence that rules it are two rows: what the second loop runs, and what the protocol knows.

Lanes keep the keys that their sequences had. An outbound sequence has a key of its own, which replies and channels refer
to.
"""

from alembic import op

revision = "0015"
down_revision = "0014"

_INDEXES = (
    *("by_connection", "by_plan", "create_id", "discarding", "due", "ended", "holding", "open", "owned", "replays"),
    *("runnable", "ack_due", "ack_waits"),
)
_STAYS = (
    "id, queue, kind, identifier, principal, peer, partner, soap, addressing, assurance, ordered, created_at, "
    'active_at, inactivity, due_at, ended, ended_at, cursor, "limit", discard_from, discard_reason, discarding, '
    "owner, fence, running_since, retry_from, retry_at, blocked, redelivery_below, held, held_bytes, pruned, "
    "on_hold_since, connection, replay_of, plan"
)

STATEMENTS = (
    *(f"DROP INDEX sequence_{name}" for name in _INDEXES),
    # The references of other tables follow the name.
    "ALTER TABLE sequence RENAME TO lane",
    *(f"ALTER TABLE {table} RENAME COLUMN sequence TO lane" for table in ("entry", "range", "channel")),
    "ALTER TABLE sequence_entry RENAME TO lane_entry",
    "ALTER TABLE lane_entry RENAME COLUMN sequence TO lane",
    "UPDATE watermark SET name = 'lane_entry' WHERE name = 'sequence_entry'",
    """
CREATE TABLE sequence (
    lane INTEGER NOT NULL, create_id TEXT, rm TEXT NOT NULL, behavior TEXT NOT NULL, incomplete_reason TEXT NOT NULL,
    expires_at INTEGER, state TEXT NOT NULL, last_number INTEGER, duplicates INTEGER DEFAULT '0' NOT NULL, late TEXT,
    acks_to TEXT, ack_due_at INTEGER, acks_fetched_by TEXT, ack_waits INTEGER DEFAULT '0' NOT NULL,
    PRIMARY KEY (lane),
    CONSTRAINT state_is_a_word CHECK (state IN ('created', 'closed')),
    CONSTRAINT late_is_a_word CHECK (late IN ('accept', 'refuse')),
    FOREIGN KEY(lane) REFERENCES lane (id)
) STRICT
""",
    """
INSERT INTO sequence
SELECT id, create_id, rm, behavior, incomplete_reason, expires_at, iif(state = 'ended', 'created', state), last_number,
       duplicates, late, acks_to, ack_due_at, acks_fetched_by, ack_waits
FROM lane WHERE kind = 'rm'
""",
    # A reply to a replay was about that; it is about the sequence that is replayed. There may be two of one endpoint.
    "DROP INDEX channel_by_endpoint",
    """
UPDATE channel SET answers = (SELECT replay_of FROM lane WHERE lane.id = answers)
WHERE answers IN (SELECT id FROM lane WHERE replay_of IS NOT NULL)
""",
    """
CREATE TABLE new_lane (
    id INTEGER NOT NULL, queue INTEGER NOT NULL, kind TEXT DEFAULT 'rm' NOT NULL, identifier TEXT NOT NULL,
    principal TEXT, peer TEXT, partner TEXT, soap TEXT NOT NULL, addressing TEXT NOT NULL, assurance TEXT NOT NULL,
    ordered INTEGER NOT NULL, created_at INTEGER NOT NULL, active_at INTEGER NOT NULL, inactivity INTEGER,
    due_at INTEGER, ended TEXT, ended_at INTEGER, cursor INTEGER NOT NULL, "limit" INTEGER NOT NULL,
    discard_from INTEGER, discard_reason TEXT, discarding INTEGER DEFAULT '0' NOT NULL, owner INTEGER,
    fence INTEGER NOT NULL, running_since INTEGER, retry_from INTEGER, retry_at INTEGER, blocked INTEGER,
    redelivery_below INTEGER DEFAULT '0' NOT NULL, held INTEGER DEFAULT '0' NOT NULL,
    held_bytes INTEGER DEFAULT '0' NOT NULL, pruned INTEGER DEFAULT '0' NOT NULL, on_hold_since INTEGER,
    connection TEXT, replay_of INTEGER, "plan" TEXT,
    PRIMARY KEY (id),
    CONSTRAINT kind_is_a_word CHECK (kind IN ('rm', 'connection', 'replay', 'outgoing')),
    CONSTRAINT cursor_within_limit CHECK (cursor <= "limit"),
    FOREIGN KEY(queue) REFERENCES queue (id),
    UNIQUE (identifier),
    FOREIGN KEY(owner) REFERENCES instance (id),
    FOREIGN KEY(replay_of) REFERENCES lane (id),
    FOREIGN KEY("plan") REFERENCES "plan" (id)
) STRICT
""",
    f"INSERT INTO new_lane ({_STAYS}) SELECT {_STAYS} FROM lane",
    "DROP TABLE lane",
    "ALTER TABLE new_lane RENAME TO lane",
    """
CREATE TABLE outbound_sequence (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, answers INTEGER, identifier TEXT NOT NULL, queue INTEGER NOT NULL,
    principal TEXT, peer TEXT, partner TEXT, rm TEXT NOT NULL, soap TEXT NOT NULL, addressing TEXT NOT NULL,
    expires_at INTEGER, state TEXT NOT NULL, given INTEGER NOT NULL, acknowledged TEXT NOT NULL,
    unacknowledged INTEGER NOT NULL, last_number INTEGER, is_final INTEGER NOT NULL, waiting_since INTEGER,
    endpoint TEXT, acks_with_reply INTEGER DEFAULT '0' NOT NULL,
    CONSTRAINT state_is_a_word CHECK (state IN ('created', 'closing', 'closed', 'terminating', 'terminated',
        'expired', 'failed')),
    UNIQUE (answers),
    FOREIGN KEY(answers) REFERENCES sequence (lane),
    UNIQUE (identifier),
    FOREIGN KEY(queue) REFERENCES queue (id)
) STRICT
""",
    """
INSERT INTO outbound_sequence
SELECT NULL, o.sequence, o.identifier, l.queue, l.principal, l.peer, l.partner, s.rm, l.soap, l.addressing,
       o.expires_at, o.state, o.given, o.acknowledged, o.unacknowledged, o.last_number, o.is_final, o.waiting_since,
       o.endpoint, o.acks_with_reply
FROM outgoing o JOIN lane l ON l.id = o.sequence JOIN sequence s ON s.lane = l.id ORDER BY o.sequence
""",
    "DROP TABLE outgoing",
    """
CREATE TABLE new_channel (
    lane INTEGER NOT NULL, answers INTEGER, outbound INTEGER, address TEXT NOT NULL, parameters TEXT NOT NULL,
    is_numbered INTEGER NOT NULL,
    PRIMARY KEY (lane),
    CONSTRAINT channel_is_about_a_sequence CHECK (outbound IS NOT NULL OR (answers IS NOT NULL AND is_numbered = 0)),
    FOREIGN KEY(lane) REFERENCES lane (id),
    FOREIGN KEY(answers) REFERENCES sequence (lane),
    FOREIGN KEY(outbound) REFERENCES outbound_sequence (id)
) STRICT
""",
    """
INSERT INTO new_channel
SELECT lane, answers, iif(is_numbered, (SELECT id FROM outbound_sequence o WHERE o.answers = channel.answers), NULL),
       address, parameters, is_numbered
FROM channel
""",
    "DROP TABLE channel",
    "ALTER TABLE new_channel RENAME TO channel",
    "CREATE INDEX channel_by_endpoint ON channel (answers, address, parameters, is_numbered)",
    "CREATE INDEX channel_by_outbound ON channel (outbound, address, parameters, is_numbered)",
    "CREATE INDEX channel_by_address ON channel (address)",
    "CREATE INDEX lane_owned ON lane (owner) WHERE owner IS NOT NULL",
    "CREATE INDEX lane_runnable ON lane (retry_at) WHERE on_hold_since IS NULL AND owner IS NULL AND blocked IS NULL "
    'AND cursor < "limit" AND (discard_from IS NULL OR cursor < discard_from)',
    "CREATE INDEX lane_discarding ON lane (id) WHERE discarding = 1",
    "CREATE INDEX lane_by_connection ON lane (connection, queue) WHERE connection IS NOT NULL AND ended_at IS NULL",
    "CREATE INDEX lane_open ON lane (principal, peer) WHERE ended_at IS NULL AND kind = 'rm'",
    "CREATE INDEX lane_holding ON lane (held, held_bytes) WHERE held > 0",
    "CREATE INDEX lane_replays ON lane (replay_of) WHERE replay_of IS NOT NULL",
    'CREATE INDEX lane_by_plan ON lane ("plan") WHERE plan IS NOT NULL',
    "CREATE INDEX lane_due ON lane (due_at) WHERE due_at IS NOT NULL",
    "CREATE INDEX lane_ended ON lane (ended_at, id) WHERE ended_at IS NOT NULL",
    "CREATE INDEX sequence_create_id ON sequence (create_id) WHERE create_id IS NOT NULL",
    "CREATE INDEX sequence_ack_due ON sequence (ack_due_at) WHERE ack_due_at IS NOT NULL",
    "CREATE INDEX sequence_ack_waits ON sequence (acks_fetched_by) WHERE ack_waits = 1",
    "CREATE INDEX entry_undelivered ON entry (lane, number) WHERE outcome IN ('dead', 'discarded')",
    "DROP INDEX reply_numbered",
    "ALTER TABLE reply RENAME COLUMN sequence TO outbound",
    "UPDATE reply SET outbound = (SELECT id FROM outbound_sequence WHERE answers = outbound) WHERE outbound IS NOT NULL",
    "CREATE UNIQUE INDEX reply_numbered ON reply (outbound, number) WHERE number IS NOT NULL",
    # Entries may be loose: they are in no lane, and have what a lane would know of them.
    "ALTER TABLE entry ADD COLUMN owner INTEGER",
    "ALTER TABLE entry ADD COLUMN fence INTEGER DEFAULT '0' NOT NULL",
    "ALTER TABLE entry ADD COLUMN running_since INTEGER",
    "DROP INDEX entry_live",
    "CREATE UNIQUE INDEX entry_live ON entry (lane, number) WHERE outcome IS NULL",
    "CREATE INDEX entry_loose ON entry (retry_at) WHERE outcome IS NULL AND lane IS NULL AND owner IS NULL",
    "CREATE INDEX entry_owned ON entry (owner) WHERE owner IS NOT NULL",
    """
CREATE TABLE loose (
    entry INTEGER NOT NULL, identifier TEXT NOT NULL, peer TEXT, partner TEXT, soap TEXT NOT NULL,
    addressing TEXT NOT NULL, assurance TEXT NOT NULL,
    PRIMARY KEY (entry),
    FOREIGN KEY(entry) REFERENCES entry (id)
) STRICT
""",
    "ALTER TABLE refusal ADD COLUMN said TEXT DEFAULT '' NOT NULL",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
