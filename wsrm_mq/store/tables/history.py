"""What has become of messages: the ledger, the plans to replay them, the archives that hold them for good."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, Text, text

from wsrm_mq.store.tables.table import one_of, table
from wsrm_mq.store.tables.words import ATTEMPTS, PLAN_STATES

ledger: Final = table(
    "ledger",
    Column("id", Integer, primary_key=True),
    Column("at", Integer, nullable=False),
    Column("event", Text, nullable=False),
    Column("queue", Integer),
    Column("sequence", Integer),
    Column("number", Integer),
    Column("position", Integer),
    Column("instance", Text),
    Column("attempt", Integer),
    Column("reason", Text),
    Column("actor", Text),
    # Of an attempt that failed: the fault's code, the exception's type, and where in the application it was raised.
    Column("fault", Text),
    Column("exception", Text),
    Column("place", Text),
    sqlite_autoincrement=True,
)
Index("ledger_by_sequence", ledger.c.sequence, ledger.c.id)
# Attempts that did not go well, by time: few beside what else is written down.
Index("ledger_attempts", ledger.c.at, sqlite_where=text(f"event IN {ATTEMPTS}"))
# A row goes with what it is about: an entry, else a sequence; what is about neither goes when it is old.
Index("ledger_by_position", ledger.c.position, sqlite_where=text("position IS NOT NULL"))
# What operators did.
Index("ledger_acts", ledger.c.id, sqlite_where=text("actor IS NOT NULL"))
Index("ledger_rest", ledger.c.at, ledger.c.id, sqlite_where=text("sequence IS NULL AND position IS NULL"))

# A replay that was planned, and how far it has come. Its messages are in a file; the digest says which.
plan: Final = table(
    "plan",
    Column("id", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    # Where the file was written.
    Column("file", Text, nullable=False),
    Column("made_at", Integer, nullable=False),
    Column("actor", Text),
    Column("reason", Text),
    Column("query", Text, nullable=False),
    Column("target", Text, nullable=False),
    # The service is given its id as replay id: what was done is done again.
    Column("as_new", Integer, nullable=False),
    Column("messages", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("owner", Integer, ForeignKey("instance.id")),
    # The last line of messages that was read; of these lines so many were delivered since the plan was made, and of so
    # many there is no body any more.
    Column("line", Integer, nullable=False, server_default="0"),
    Column("skipped", Integer, nullable=False, server_default="0"),
    Column("missing", Integer, nullable=False, server_default="0"),
    Column("begun_at", Integer),
    Column("ended_at", Integer),
    one_of("state", PLAN_STATES),
    sqlite_with_rowid=False,
)

# An archive that was found to hold what this store has, and by which of its manifests.
archive: Final = table(
    "archive",
    Column("id", Text, primary_key=True),
    # Where it was when it was confirmed.
    Column("place", Text, nullable=False),
    Column("number", Integer, nullable=False),
    # It holds the ledger up to this key: what the ledger says behind it, the archive does not know.
    Column("ledger", Integer, nullable=False),
    # What was settled by then it holds.
    Column("read_at", Integer, nullable=False),
    Column("confirmed_at", Integer, nullable=False),
    Column("actor", Text, nullable=False),
    sqlite_with_rowid=False,
)

# Keys of what it holds: positions of settled messages, keys of sequences that are over.
archived: Final = table(
    "archived",
    Column("archive", Text, ForeignKey("archive.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("lower", Integer, primary_key=True, autoincrement=False),
    Column("upper", Integer, nullable=False),
    CheckConstraint("kind IN ('messages', 'sequences')", name="archived_is_a_word"),
    CheckConstraint("lower <= upper", name="archived_is_not_empty"),
    sqlite_with_rowid=False,
)
