"""The tables, described once with SQLAlchemy Core: statements are compiled from them, a test holds the migrations
against them.

All times are integers, ms since the epoch. An entry's id is the position: AUTOINCREMENT, so a position is never used
again. The state of an ordered entry is derived from its sequence (``cursor``, ``limit``, ``owner``), never rewritten
row by row.
"""

from __future__ import annotations

from typing import Any, Final, cast

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

from wsrm_mq.sequence.outbound_states import OutboundState

__all__ = [
    "ANSWERED_WITH_FAULT",
    "archive",
    "archived",
    "channel",
    "connection_message",
    "counter",
    "entry",
    "epoch",
    "identity",
    "instance",
    "ledger",
    "message",
    "metadata",
    "outgoing",
    "plan",
    "queue",
    "range_",
    "refusal",
    "reply",
    "sequence",
    "sequence_entry",
    "watermark",
]

metadata: Final = MetaData()

QUEUE_KINDS: Final = ("app", "dead_letter", "outgoing")
OUTCOMES: Final = ("delivered", "dead", "discarded", "purged")
SEQUENCE_KINDS: Final = ("rm", "connection", "replay", "outgoing")
SEQUENCE_STATES: Final = ("created", "closed", "ended")
OUTGOING_STATES: Final = tuple(OutboundState)
PLAN_STATES: Final = ("planned", "running", "done", "cancelled")
LATE: Final = ("accept", "refuse")
ANSWERED_WITH_FAULT: Final = "answered_with_fault"
"""The service took a one-way message and answered a fault, which the source does not read: an event of the ledger, the
reason of an entry, and the kind of a failure where ``on_fault`` puts the message aside."""


def _one_of(column: str, words: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_is_a_word")


def _table(name: str, *parts: Column[Any] | CheckConstraint, **options: bool) -> Table:
    return Table(name, metadata, *parts, sqlite_strict=True, **cast(Any, options))


queue: Final = _table(
    "queue",
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    # A dead-letter queue knows its parent, and is found by that: any name may be a path.
    Column("parent", Integer, ForeignKey("queue.id")),
    Column("created_at", Integer, nullable=False),
    # Whose messages these are, where the application has a name; see ``views.applications``.
    Column("application", Text),
    _one_of("kind", QUEUE_KINDS),
    sqlite_autoincrement=True,
)
Index("queue_dead_letters", queue.c.parent, unique=True, sqlite_where=text("kind = 'dead_letter'"))

message: Final = _table(
    "message",
    # The position of the entry that it came with: given once, without a counter of its own.
    Column("id", Integer, primary_key=True),
    Column("message_id", Text),
    Column("action", Text),
    # The part of the request that a replay needs; never Authorization or Cookie.
    Column("environ", Text, nullable=False),
    Column("principal", Text),
    Column("connection", Text),
    Column("received_at", Integer, nullable=False),
    Column("body_size", Integer, nullable=False),
    # Last, so that reading the other columns touches none of its pages. NULL once retention has freed it.
    Column("body", LargeBinary),
)

# Two indexes that are filled later, each up to the watermark of its name: which messages came on a connection, and
# which entries a sequence has. Each connection and each sequence has a leaf of its own in them: kept with every
# message, they would be two pages more for each that is stored. See ``late_index``.
connection_message: Final = _table(
    "connection_message",
    Column("connection", Text, primary_key=True),
    Column("message", Integer, ForeignKey("message.id"), primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

sequence_entry: Final = _table(
    "sequence_entry",
    Column("sequence", Integer, ForeignKey("sequence.id"), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("entry", Integer, ForeignKey("entry.id"), nullable=False),
    sqlite_with_rowid=False,
)

# Up to which key of what it indexes, that one included, a table that is filled later has all it is to have.
watermark: Final = _table(
    "watermark",
    Column("name", Text, primary_key=True),
    Column("upto", Integer, nullable=False),
    sqlite_with_rowid=False,
)

entry: Final = _table(
    "entry",
    Column("id", Integer, primary_key=True),
    Column("queue", Integer, ForeignKey("queue.id"), nullable=False),
    Column("message", Integer, ForeignKey("message.id"), nullable=False),
    Column("sequence", Integer, ForeignKey("sequence.id")),
    Column("number", Integer),
    # The application's answer is kept and sent back.
    Column("wants_reply", Integer, nullable=False, server_default="0"),
    # An acknowledgement may name it.
    Column("named", Integer, nullable=False, server_default="1"),
    Column("outcome", Text),
    Column("reason", Text),
    Column("settled_at", Integer),
    Column("deliveries", Integer, nullable=False, server_default="0"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("cancels", Integer, nullable=False, server_default="0"),
    # How often in a row its holder died with it at the head.
    Column("deaths", Integer, nullable=False, server_default="0"),
    # A wait has a beginning and an end: one that begins in the future is over, the clock was stepped back.
    Column("retry_from", Integer),
    Column("retry_at", Integer),
    Column("last_error", Text),
    # Name of the instance where a request waits for the reply.
    Column("waiter", Text),
    Column("origin", Integer, ForeignKey("queue.id")),
    Column("replay_of", Integer, ForeignKey("entry.id")),
    # When an operator confirmed what became of it: it alarms no more.
    Column("confirmed_at", Integer),
    # It filled a gap that an operator had forced the sequence past.
    Column("late", Integer, nullable=False, server_default="0"),
    _one_of("outcome", OUTCOMES),
    CheckConstraint("(outcome IS NULL) = (settled_at IS NULL)", name="settled_has_outcome"),
    sqlite_autoincrement=True,
)
# What is not settled, by number: small, so that what a commit writes of it is one page, or few.
Index(
    "entry_live",
    entry.c.sequence,
    entry.c.number,
    unique=True,
    sqlite_where=text("outcome IS NULL AND sequence IS NOT NULL"),
)
Index("entry_unnamed", entry.c.sequence, entry.c.number, sqlite_where=text("named = 0"))
Index("entry_dead", entry.c.queue, entry.c.id, entry.c.confirmed_at, sqlite_where=text("outcome = 'dead'"))
Index("entry_by_message", entry.c.message)
# What was answered with a fault, by time: clean messages are not in it.
Index(
    "entry_faulted",
    entry.c.settled_at,
    entry.c.outcome,
    entry.c.confirmed_at,
    sqlite_where=text(f"reason = '{ANSWERED_WITH_FAULT}'"),
)

sequence: Final = _table(
    "sequence",
    Column("id", Integer, primary_key=True),
    Column("queue", Integer, ForeignKey("queue.id"), nullable=False),
    Column("identifier", Text, nullable=False, unique=True),
    # The CreateSequence it answered: a repeated one gets the same identifier.
    Column("create_id", Text),
    Column("principal", Text),
    Column("peer", Text),
    # The partner section that fits the source; its policy rules retries.
    Column("partner", Text),
    # What was agreed.
    Column("rm", Text, nullable=False),
    Column("soap", Text, nullable=False),
    Column("addressing", Text, nullable=False),
    Column("behavior", Text, nullable=False),
    Column("assurance", Text, nullable=False),
    Column("ordered", Integer, nullable=False),
    # What dead letters of an incomplete end are marked with, where the behavior discards.
    Column("incomplete_reason", Text, nullable=False),
    Column("created_at", Integer, nullable=False),
    Column("expires_at", Integer),
    Column("inactivity", Integer),
    # Protocol state.
    Column("state", Text, nullable=False),
    Column("ended", Text),
    Column("ended_at", Integer),
    Column("active_at", Integer, nullable=False),
    # When to look whether the clock ends it: not later than expires_at or the inactivity limit.
    Column("due_at", Integer),
    Column("last_number", Integer),
    # Delivery state.
    Column("expected", Integer, nullable=False),
    Column("cursor", Integer, nullable=False),
    Column("limit", Integer, nullable=False),
    Column("discard_from", Integer),
    Column("discard_reason", Text),
    # Entries at or above discard_from are still being moved to the dead letters.
    Column("discarding", Integer, nullable=False, server_default="0"),
    Column("owner", Integer, ForeignKey("instance.id")),
    Column("fence", Integer, nullable=False),
    # Since when the head runs, for `explain`.
    Column("running_since", Integer),
    Column("retry_from", Integer),
    Column("retry_at", Integer),
    # Position of the entry that stopped it; an operator resumes or skips.
    Column("blocked", Integer),
    # Deliveries below this number may be repeated: an owner died while it ran them.
    Column("redelivery_below", Integer, nullable=False, server_default="0"),
    Column("duplicates", Integer, nullable=False, server_default="0"),
    # connection: its messages came without WS-RM, we number them in order of receipt. replay: they are delivered again.
    # outgoing: they are this side's own, and are sent (see ``channel``).
    Column("kind", Text, nullable=False, server_default="rm"),
    # Whose messages it has, where it is of that kind and the connection has a name.
    Column("connection", Text),
    # Accepted numbers at or above the limit, and at most so many bytes of theirs.
    Column("held", Integer, nullable=False, server_default="0"),
    Column("held_bytes", Integer, nullable=False, server_default="0"),
    # So many of its entries were deleted by retention; the ranges still know their numbers.
    Column("pruned", Integer, nullable=False, server_default="0"),
    # Since when an operator holds it: nothing of it is delivered.
    Column("on_hold_since", Integer),
    # What becomes of a missing number that arrives after an operator has forced the sequence past its gap.
    Column("late", Text),
    # Of a replay: the sequence whose messages are delivered again, and the plan that says which, where there is one.
    Column("replay_of", Integer, ForeignKey("sequence.id")),
    Column("plan", Text, ForeignKey("plan.id")),
    # Where its acknowledgements are sent, as a JSON list of address and parameters; NULL: on the responses.
    Column("acks_to", Text),
    # When the next one is to be sent there.
    Column("ack_due_at", Integer),
    # The address of WS-MakeConnection where they may be fetched too, and whether one waits there.
    Column("acks_fetched_by", Text),
    Column("ack_waits", Integer, nullable=False, server_default="0"),
    _one_of("state", SEQUENCE_STATES),
    _one_of("kind", SEQUENCE_KINDS),
    _one_of("late", LATE),
    CheckConstraint('cursor <= "limit"', name="cursor_within_limit"),
)
Index("sequence_create_id", sequence.c.create_id, sqlite_where=text("create_id IS NOT NULL"))
Index("sequence_owned", sequence.c.owner, sqlite_where=text("owner IS NOT NULL"))
# What an instance looks for at start and in every poll: deliverable, and not run.
Index(
    "sequence_runnable",
    sequence.c.retry_at,
    sqlite_where=text(
        'on_hold_since IS NULL AND owner IS NULL AND blocked IS NULL AND cursor < "limit" '
        "AND (discard_from IS NULL OR cursor < discard_from)"
    ),
)
Index("sequence_discarding", sequence.c.id, sqlite_where=text("discarding = 1"))
Index(
    "sequence_by_connection",
    sequence.c.connection,
    sequence.c.queue,
    sqlite_where=text("connection IS NOT NULL AND ended_at IS NULL"),
)
# How many a peer has open.
Index("sequence_open", sequence.c.principal, sequence.c.peer, sqlite_where=text("state = 'created' AND kind = 'rm'"))
Index("sequence_holding", sequence.c.held, sequence.c.held_bytes, sqlite_where=text("held > 0"))
Index("sequence_replays", sequence.c.replay_of, sqlite_where=text("replay_of IS NOT NULL"))
Index("sequence_by_plan", sequence.c.plan, sqlite_where=text("plan IS NOT NULL"))
Index("sequence_due", sequence.c.due_at, sqlite_where=text("due_at IS NOT NULL"))
Index("sequence_ack_due", sequence.c.ack_due_at, sqlite_where=text("ack_due_at IS NOT NULL"))
Index("sequence_ack_waits", sequence.c.acks_fetched_by, sqlite_where=text("ack_waits = 1"))
# What retention looks for. Written once in a sequence's life.
Index("sequence_ended", sequence.c.ended_at, sequence.c.id, sqlite_where=text("ended_at IS NOT NULL"))

range_: Final = _table(
    "range",
    Column("sequence", Integer, ForeignKey("sequence.id"), primary_key=True, autoincrement=False),
    Column("lower", Integer, primary_key=True, autoincrement=False),
    Column("upper", Integer, nullable=False),
    CheckConstraint("lower <= upper", name="range_is_not_empty"),
    sqlite_with_rowid=False,
)

reply: Final = _table(
    "reply",
    Column("entry", Integer, ForeignKey("entry.id"), primary_key=True, autoincrement=False),
    Column("status", Text, nullable=False),
    Column("headers", Text, nullable=False),
    Column("stored_at", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    # Its place in the offered sequence, where it has one: that of the inbound sequence with this key.
    Column("sequence", Integer),
    Column("number", Integer),
    # The entry of the same reply that waits to be fetched, where it does not leave on a response.
    Column("letter", Integer),
)
Index("reply_numbered", reply.c.sequence, reply.c.number, unique=True, sqlite_where=text("number IS NOT NULL"))

# The sequence that the source of an inbound one has offered with it: the replies to that one go out in it.
outgoing: Final = _table(
    "outgoing",
    Column("sequence", Integer, ForeignKey("sequence.id"), primary_key=True, autoincrement=False),
    Column("identifier", Text, nullable=False, unique=True),
    Column("expires_at", Integer),
    Column("state", Text, nullable=False),
    # The highest number that was given; the acknowledged ones, as 1-5,7, and how many are not.
    Column("given", Integer, nullable=False),
    Column("acknowledged", Text, nullable=False),
    Column("unacknowledged", Integer, nullable=False),
    # No number above it is given.
    Column("last_number", Integer),
    # The source has said that what it acknowledges will not change.
    Column("is_final", Integer, nullable=False),
    # Since when replies wait for an acknowledgement, and none has come.
    Column("waiting_since", Integer),
    _one_of("state", OUTGOING_STATES),
)
# Those that may still get a reply.
Index("outgoing_created", outgoing.c.sequence, sqlite_where=text("state = 'created'"))

# A sequence of kind outgoing: what leaves for one endpoint about one inbound sequence, in requests of this side's own.
channel: Final = _table(
    "channel",
    Column("sequence", Integer, ForeignKey("sequence.id"), primary_key=True, autoincrement=False),
    # The inbound sequence that it is about.
    Column("answers", Integer, ForeignKey("sequence.id"), nullable=False),
    Column("address", Text, nullable=False),
    # The endpoint's reference parameters, as a JSON list of stand-alone XML.
    Column("parameters", Text, nullable=False),
    # Its numbers are those of the offered sequence: each is sent again until it is acknowledged.
    Column("is_numbered", Integer, nullable=False),
)
_endpoint: Final = (channel.c.answers, channel.c.address, channel.c.parameters, channel.c.is_numbered)
Index("channel_by_endpoint", *_endpoint, unique=True)
Index("channel_by_address", channel.c.address)

instance: Final = _table(
    "instance",
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", Integer, nullable=False),
    Column("ended_at", Integer),
    # The application that it serves, where that has a name, and on which paths: a JSON list, NULL for all.
    Column("application", Text),
    Column("paths", Text),
    sqlite_autoincrement=True,
)
Index("instance_live", instance.c.id, sqlite_where=text("ended_at IS NULL"))

# What was counted of a queue (0: of none; -1: of those that are gone): rows that are pruned go without it.
counter: Final = _table(
    "counter",
    Column("name", Text, primary_key=True),
    Column("queue", Integer, primary_key=True, autoincrement=False),
    Column("label", Text, primary_key=True),
    Column("value", Integer, nullable=False),
    sqlite_with_rowid=False,
)

# What was refused, by reason and partner ('' where none is known): nothing else is kept of it.
refusal: Final = _table(
    "refusal",
    Column("reason", Text, primary_key=True),
    Column("partner", Text, primary_key=True),
    Column("times", Integer, nullable=False),
    Column("last_at", Integer, nullable=False),
    sqlite_with_rowid=False,
)

# One row: which store this is, see ``identity``.
identity: Final = _table(
    "identity",
    Column("id", Text, primary_key=True),
    # Grows now and then, never falls: a file with less than the witness has is an older one.
    Column("mark", Integer, nullable=False),
    # This file is a copy of that time, and was not adopted since.
    Column("copied_at", Integer),
)

# From this mark on one run of the service wrote, after a time in which no process had the store: of two futures of a
# store that was put back from a copy, each has another token.
epoch: Final = _table(
    "epoch",
    Column("mark", Integer, primary_key=True),
    Column("token", Text, nullable=False),
    sqlite_with_rowid=False,
)

ledger: Final = _table(
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
ATTEMPTS: Final = ("failed", "holder_died", "broke_off", ANSWERED_WITH_FAULT)
Index("ledger_attempts", ledger.c.at, sqlite_where=text(f"event IN {ATTEMPTS}"))
# A row goes with what it is about: an entry, else a sequence; what is about neither goes when it is old.
Index("ledger_by_position", ledger.c.position, sqlite_where=text("position IS NOT NULL"))
# What operators did.
Index("ledger_acts", ledger.c.id, sqlite_where=text("actor IS NOT NULL"))
Index("ledger_rest", ledger.c.at, ledger.c.id, sqlite_where=text("sequence IS NULL AND position IS NULL"))

# A replay that was planned, and how far it has come. Its messages are in a file; the digest says which.
plan: Final = _table(
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
    _one_of("state", PLAN_STATES),
    sqlite_with_rowid=False,
)

# An archive that was found to hold what this store has, and by which of its manifests.
archive: Final = _table(
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
archived: Final = _table(
    "archived",
    Column("archive", Text, ForeignKey("archive.id"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("lower", Integer, primary_key=True, autoincrement=False),
    Column("upper", Integer, nullable=False),
    CheckConstraint("kind IN ('messages', 'sequences')", name="archived_is_a_word"),
    CheckConstraint("lower <= upper", name="archived_is_not_empty"),
    sqlite_with_rowid=False,
)
