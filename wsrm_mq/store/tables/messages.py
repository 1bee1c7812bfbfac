"""Queues, the messages in them, and the replies to these."""

from __future__ import annotations

from typing import Final

from sqlalchemy import REAL, CheckConstraint, Column, ForeignKey, LargeBinary, Text

from wsrm_mq.store.tables.table import Number, columns, given_key, index, one_of, table
from wsrm_mq.store.tables.words import ANSWERED_WITH_FAULT, OUTCOMES, QUEUE_KINDS, QUEUE_MODES

queue: Final = table(
    "queue",
    given_key(),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    # A dead-letter queue knows its parent, and is found by that: any name may be a path.
    Column("parent", Number, ForeignKey("queue.id")),
    Column("created_at", Number, nullable=False),
    # The application whose messages these are, if it has a name; see ``views.applications``.
    Column("application", Text),
    # JSON of a ``queue.policies.QueuePolicy``: it was declared, and is consumed. NULL: an endpoint's, or the system's.
    Column("policy", Text),
    # Who takes what arrives at the endpoint whose queue it is: pull, programs consume it; dispatch, no program may, for
    # the application is called with it. NULL: it is no endpoint's, or was never consumed.
    Column("mode", Text),
    # A declared queue counts its unsettled messages, and their bytes.
    *columns("messages, bytes", Number, nullable=False, server_default="0"),
    # The last that was put there, and when.
    *columns("last_position, last_put_at", Number),
    # Its pace when it was counted last: how many messages came and left within the last minute, where those of long ago
    # count less and less.
    Column("counted_at", Number, nullable=False, server_default="0"),
    *columns("came, went", REAL, nullable=False, server_default="0"),
    # Who alone reads it, where its access is exclusive: an instance, and the name of its consumer.
    Column("owner", Number),
    Column("holder", Text),
    # The instance that keeps its express messages; see ``express``.
    Column("keeper", Number),
    one_of("kind", QUEUE_KINDS),
    one_of("mode", QUEUE_MODES),
    sqlite_autoincrement=True,
)
index("queue_held", queue.c.owner, where="owner IS NOT NULL")
index("queue_kept", queue.c.keeper, where="keeper IS NOT NULL")
index("queue_dead_letters", queue.c.parent, unique=True, where="kind = 'dead_letter'")

message: Final = table(
    "message",
    # The position of the entry that it came with: given once, without a counter of its own.
    Column("id", Number, primary_key=True, autoincrement=False),
    *columns("message_id, action", Text),
    # The part of the request that a replay needs; never Authorization or Cookie.
    Column("environ", Text, nullable=False),
    *columns("principal, connection", Text),
    *columns("received_at, body_size", Number, nullable=False),
    # Last, so that reading the other columns touches none of its pages. NULL once retention has freed it.
    Column("body", LargeBinary),
)

entry: Final = table(
    "entry",
    given_key(),
    Column("queue", Number, ForeignKey("queue.id"), nullable=False),
    Column("message", Number, ForeignKey("message.id"), nullable=False),
    # Its place in a lane; a loose entry has none.
    Column("lane", Number, ForeignKey("lane.id")),
    Column("number", Number),
    # The application's answer is kept and sent back.
    Column("wants_reply", Number, nullable=False, server_default="0"),
    # An acknowledgement may name it.
    Column("named", Number, nullable=False, server_default="1"),
    *columns("outcome, reason", Text),
    Column("settled_at", Number),
    *columns("deliveries, failures, cancels", Number, nullable=False, server_default="0"),
    # How often in a row its holder died with it at the head.
    Column("deaths", Number, nullable=False, server_default="0"),
    # A wait has a beginning and an end: one that begins in the future is over, the clock was stepped back.
    *columns("retry_from, retry_at", Number),
    Column("last_error", Text),
    # Name of the instance where a request waits for the reply.
    Column("waiter", Text),
    Column("origin", Number, ForeignKey("queue.id")),
    Column("replay_of", Number, ForeignKey("entry.id")),
    # When an operator confirmed what became of it: it alarms no more.
    Column("confirmed_at", Number),
    # It filled a gap that an operator had forced the sequence past.
    Column("late", Number, nullable=False, server_default="0"),
    # A loose entry has the instance that runs it, its fence, and the time since which it runs. The owner of a lane runs
    # the entries in it.
    Column("owner", Number),
    Column("fence", Number, nullable=False, server_default="0"),
    Column("running_since", Number),
    # The priority of an entry that is consumed: 0 to 9, the highest first. In a lane it says only that it is consumed.
    # NULL: an application is called with it.
    Column("priority", Number),
    # When the lease of it ends, by the clock that is never set; whose lease it is, where that is a subscription's.
    *columns("leased_until, lessee", Number),
    # It is a dead letter from then on, unless it is leased.
    Column("expires_at", Number),
    # Why it waits, until ``retry_at`` where it has that.
    Column("hold", Text),
    # An entry of a journal: the entry of the same message whose arrival and outcome it records.
    Column("journal_of", Number),
    # What is told when it leaves its queue: ``queue.reporting.Asks``; NULL: nothing.
    Column("asks", Number),
    one_of("outcome", OUTCOMES),
    CheckConstraint("(outcome IS NULL) = (settled_at IS NULL)", name="settled_has_outcome"),
    sqlite_autoincrement=True,
)
# Unsettled entries by number: a small index, so a commit writes one page of it, or few.
index("entry_live", entry.c.lane, entry.c.number, unique=True, where="lane IS NOT NULL AND outcome IS NULL")
# The loose ones that an application is called with, and which of them run.
index("entry_loose", entry.c.retry_at, where="priority IS NULL AND lane IS NULL AND outcome IS NULL")
index("entry_owned", entry.c.owner, where="owner IS NOT NULL AND leased_until IS NULL")
# Entries that are consumed: ready, leased, with a deadline, waiting.
index(
    "entry_ready",
    *(entry.c.queue, entry.c.priority.desc(), entry.c.id),
    where="priority IS NOT NULL AND lane IS NULL AND outcome IS NULL AND owner IS NULL AND hold IS NULL",
)
index("entry_consumed", entry.c.queue, entry.c.id, where="priority IS NOT NULL AND outcome IS NULL")
index("entry_leased", entry.c.owner, entry.c.leased_until, where="leased_until IS NOT NULL")
index("entry_expiring", entry.c.expires_at, where="expires_at IS NOT NULL AND outcome IS NULL AND owner IS NULL")
index("entry_waiting", entry.c.hold, entry.c.retry_at, where="hold IS NOT NULL AND outcome IS NULL")
index("entry_unnamed", entry.c.lane, entry.c.number, where="named = 0")
index("entry_dead", entry.c.queue, entry.c.id, entry.c.confirmed_at, where="outcome = 'dead'")
index("entry_by_message", entry.c.message)
# Entries that were settled and not delivered: few beside the others.
index("entry_undelivered", entry.c.lane, entry.c.number, where="outcome IN ('dead', 'discarded')")
# Entries that were answered with a fault, by time: clean ones are not in it.
index(
    "entry_faulted",
    *(entry.c.settled_at, entry.c.outcome, entry.c.confirmed_at),
    where=f"reason = '{ANSWERED_WITH_FAULT}'",
)

# Facts about the request of a loose entry. A lane knows them of its own entries.
loose: Final = table(
    "loose",
    Column("entry", Number, ForeignKey("entry.id"), primary_key=True, autoincrement=False),
    # The sequence identifier that the service is told.
    Column("identifier", Text, nullable=False),
    *columns("peer, partner", Text),
    # Versions of its envelope.
    *columns("soap, addressing", Text, nullable=False),
    # How it is delivered.
    Column("assurance", Text, nullable=False),
)

# Facts that a consumer sees beside the body, of a message that was put, or of which properties were taken.
header: Final = table(
    "header",
    Column("message", Number, ForeignKey("message.id"), primary_key=True, autoincrement=False),
    Column("topic", Text),
    # A JSON object.
    *columns("properties, content_type", Text),
    Column("receive_by", Number),
    # Who put it.
    Column("client", Text),
    # The queue that has the reports on it.
    Column("report_to", Text),
)

# Messages that were put under an id of their sender's, for a while: another one of that id is the same message.
dedupe: Final = table(
    "dedupe",
    Column("queue", Number, ForeignKey("queue.id"), primary_key=True, autoincrement=False),
    Column("message_id", Text, primary_key=True),
    *columns("message, until", Number, nullable=False),
    sqlite_with_rowid=False,
)
index("dedupe_until", dedupe.c.until)

# Two indexes that are filled later, each up to the watermark of its name: which messages came on a connection, and
# which entries a lane has. Each connection and each lane has a leaf of its own in them: kept with every
# message, they would be two pages more for each that is stored. See ``late_index``.
connection_message: Final = table(
    "connection_message",
    Column("connection", Text, primary_key=True),
    Column("message", Number, ForeignKey("message.id"), primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

lane_entry: Final = table(
    "lane_entry",
    Column("lane", Number, ForeignKey("lane.id"), primary_key=True, autoincrement=False),
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("entry", Number, ForeignKey("entry.id"), nullable=False),
    sqlite_with_rowid=False,
)

# Up to which key of what it indexes, that one included, a table that is filled later has all it is to have.
watermark: Final = table(
    "watermark", Column("name", Text, primary_key=True), Column("upto", Number, nullable=False), sqlite_with_rowid=False
)

reply: Final = table(
    "reply",
    Column("entry", Number, ForeignKey("entry.id"), primary_key=True, autoincrement=False),
    *columns("status, headers", Text, nullable=False),
    Column("stored_at", Number, nullable=False),
    Column("body", LargeBinary, nullable=False),
    # Its place in the outbound sequence with this key, where it has one.
    *columns("outbound, number", Number),
    # The entry of the same reply that waits to be fetched, where it does not leave on a response.
    Column("outgoing_entry", Number),
)
index("reply_numbered", reply.c.outbound, reply.c.number, unique=True, where="number IS NOT NULL")
