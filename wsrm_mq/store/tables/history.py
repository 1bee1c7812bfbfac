"""Tables of the history of messages: the ledger, plans to replay them, archives that hold them for good."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Column, ForeignKey, Text

from wsrm_mq.store.tables.table import Number, columns, given_key, index, one_of, table
from wsrm_mq.store.tables.words import ATTEMPTS, PLAN_STATES

ledger: Final = table(
    "ledger",
    given_key(),
    Column("at", Number, nullable=False),
    Column("event", Text, nullable=False),
    *columns("queue, sequence, number, position", Number),
    Column("instance", Text),
    Column("attempt", Number),
    *columns("reason, actor", Text),
    # An attempt that failed: the fault's code, the exception's type, and the place in the application that raised it.
    *columns("fault, exception, place", Text),
    sqlite_autoincrement=True,
)
index("ledger_by_sequence", ledger.c.sequence, ledger.c.id)
# Attempts that did not go well, by time: few beside what else is written down.
index("ledger_attempts", ledger.c.at, where=f"event IN {ATTEMPTS}")
# A row goes with what it is about: an entry, else a sequence; what is about neither goes when it is old.
index("ledger_by_position", ledger.c.position, where="position IS NOT NULL")
# Acts of operators.
index("ledger_acts", ledger.c.id, where="actor IS NOT NULL")
index("ledger_rest", ledger.c.at, ledger.c.id, where="sequence IS NULL AND position IS NULL")

# A replay that was planned, and how far it has come. Its messages are in a file; the digest says which.
plan: Final = table(
    "plan",
    Column("id", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    # The path at which the file was written.
    Column("file", Text, nullable=False),
    Column("made_at", Number, nullable=False),
    *columns("actor, reason", Text),
    *columns("query, target", Text, nullable=False),
    # The service is given its id as replay id: what was done is done again.
    *columns("as_new, messages", Number, nullable=False),
    Column("state", Text, nullable=False),
    Column("owner", Number, ForeignKey("instance.id")),
    # The last line of messages that was read; of these lines so many were delivered since the plan was made, and of so
    # many there is no body any more.
    *columns("line, skipped, missing", Number, nullable=False, server_default="0"),
    *columns("begun_at, ended_at", Number),
    one_of("state", PLAN_STATES),
    sqlite_with_rowid=False,
)

# An archive that was found to hold what this store has, and by which of its manifests.
archive: Final = table(
    "archive",
    Column("id", Text, primary_key=True),
    # Its place when it was confirmed.
    Column("place", Text, nullable=False),
    Column("number", Number, nullable=False),
    # It holds the ledger up to this key: what the ledger says behind it, the archive does not know.
    Column("ledger", Number, nullable=False),
    # It holds the messages that were settled by then.
    *columns("read_at, confirmed_at", Number, nullable=False),
    Column("actor", Text, nullable=False),
    sqlite_with_rowid=False,
)

# Keys of what it holds: positions of settled messages, keys of sequences that are over.
archived: Final = table(
    "archived",
    Column("archive", Text, ForeignKey("archive.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("lower", Number, primary_key=True, autoincrement=False),
    Column("upper", Number, nullable=False),
    CheckConstraint("kind IN ('messages', 'sequences')", name="archived_is_a_word"),
    CheckConstraint("lower <= upper", name="archived_is_not_empty"),
    sqlite_with_rowid=False,
)
