"""Keys that are used once, queues that know their application, what was refused, and a ledger that ends.

A message's key is from now on the position of its entry, so the positions go on behind both.

A stranger could have named a queue as the dead letters of another: what lies in the wrong one is moved. Names of
wrapped endpoints have no ``#`` any more.
"""

from alembic import op

revision = "0008"
down_revision = "0007"

QUEUES = (
    """
    CREATE TABLE queue_renewed (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        parent INTEGER,
        created_at INTEGER NOT NULL,
        application TEXT,
        CONSTRAINT kind_is_a_word CHECK (kind IN ('app', 'dead_letter')),
        UNIQUE (name),
        FOREIGN KEY(parent) REFERENCES queue (id)
    ) STRICT
    """,
    """
    INSERT INTO queue_renewed (id, name, kind, parent, created_at)
        SELECT id, CASE
            WHEN kind <> 'app' OR instr(name, '#') = 0 THEN name
            WHEN EXISTS (SELECT 1 FROM queue other WHERE other.name = replace(queue.name, '#', '%23'))
                THEN replace(name, '#', '%23') || '%23' || id
            ELSE replace(name, '#', '%23')
        END, kind, parent, created_at FROM queue ORDER BY id
    """,
    "DROP TABLE queue",
    "ALTER TABLE queue_renewed RENAME TO queue",
)

# Dead letters of one queue in another that a path had made before.
STRAY_LETTERS = """
    SELECT EXISTS (
        SELECT 1 FROM entry e JOIN queue q ON q.id = e.queue
        WHERE e.outcome = 'dead' AND e.origin IS NOT NULL AND q.kind = 'app'
    )
"""
MOVE_LETTERS = (
    """
    INSERT INTO queue (name, kind, parent, created_at)
        SELECT name || '#dead', 'dead_letter', id, created_at FROM queue AS home
        WHERE id IN (
            SELECT e.origin FROM entry e JOIN queue q ON q.id = e.queue WHERE e.outcome = 'dead' AND q.kind = 'app'
        ) AND NOT EXISTS (SELECT 1 FROM queue WHERE kind = 'dead_letter' AND parent = home.id)
    """,
    """
    UPDATE entry SET queue = (SELECT id FROM queue WHERE kind = 'dead_letter' AND parent = entry.origin)
        WHERE outcome = 'dead' AND origin IS NOT NULL AND queue IN (SELECT id FROM queue WHERE kind = 'app')
    """,
)

# Sequences of a path in what had been the dead letters of another queue before.
STRAY_SEQUENCES = """
    SELECT EXISTS (SELECT 1 FROM sequence s JOIN queue q ON q.id = s.queue WHERE q.kind = 'dead_letter')
"""
MOVE_SEQUENCES = (
    """
    CREATE TEMPORARY TABLE moved AS SELECT id AS was, replace(name, '#', '%23') AS name, NULL AS now FROM queue
        WHERE kind = 'dead_letter' AND id IN (SELECT queue FROM sequence)
    """,
    """
    INSERT OR IGNORE INTO queue (name, kind, created_at)
        SELECT moved.name, 'app', created_at FROM moved JOIN queue ON queue.id = moved.was
    """,
    "UPDATE moved SET now = (SELECT id FROM queue WHERE queue.name = moved.name)",
    """
    UPDATE entry SET queue = (SELECT now FROM moved WHERE was = entry.queue)
        WHERE queue IN (SELECT was FROM moved) AND outcome IS NOT 'dead'
    """,
    "UPDATE entry SET origin = (SELECT now FROM moved WHERE was = entry.origin) WHERE origin IN (SELECT was FROM moved)",
    """
    UPDATE queue SET parent = (SELECT now FROM moved WHERE was = queue.parent)
        WHERE kind = 'dead_letter' AND parent IN (SELECT was FROM moved)
    """,
    "UPDATE sequence SET queue = (SELECT now FROM moved WHERE was = sequence.queue) WHERE queue IN (SELECT was FROM moved)",
    "DROP TABLE moved",
)

STATEMENTS = (
    "CREATE UNIQUE INDEX queue_dead_letters ON queue (parent) WHERE kind = 'dead_letter'",
    "ALTER TABLE instance ADD COLUMN application TEXT",
    "ALTER TABLE instance ADD COLUMN paths TEXT",
    """
    INSERT INTO sqlite_sequence (name, seq) SELECT 'entry', 0
        WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'entry')
    """,
    """
    UPDATE sqlite_sequence SET seq = max(
        seq,
        (SELECT coalesce(max(id), 0) FROM message),
        (SELECT upto FROM watermark WHERE name = 'connection_message')
    ) WHERE name = 'entry'
    """,
    """
    CREATE TABLE refusal (
        reason TEXT NOT NULL,
        partner TEXT NOT NULL,
        times INTEGER NOT NULL,
        last_at INTEGER NOT NULL,
        PRIMARY KEY (reason, partner)
    ) WITHOUT ROWID, STRICT
    """,
    "CREATE INDEX entry_faulted ON entry (settled_at) WHERE reason = 'answered_with_fault'",
    """
    DELETE FROM ledger
        WHERE (position IS NOT NULL AND position NOT IN (SELECT id FROM entry))
        OR (sequence IS NOT NULL AND sequence NOT IN (SELECT id FROM sequence))
    """,
    "CREATE INDEX ledger_by_position ON ledger (position) WHERE position IS NOT NULL",
    # What was stored of requests and should not have been goes afterwards, in small pieces: see ``scrub``.
    "INSERT INTO watermark (name, upto) SELECT 'scrubbed', 0 WHERE EXISTS (SELECT 1 FROM message)",
    "CREATE INDEX ledger_rest ON ledger (at, id) WHERE sequence IS NULL AND position IS NULL",
)


def upgrade() -> None:
    for statement in QUEUES:
        op.execute(statement)
    for question, moves in ((STRAY_LETTERS, MOVE_LETTERS), (STRAY_SEQUENCES, MOVE_SEQUENCES)):
        if op.get_bind().exec_driver_sql(question).scalar():
            for statement in moves:
                op.execute(statement)
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("a store goes forward only; restore a backup instead")
