"""The tables, described once with SQLAlchemy Core: statements are compiled from them, a test holds the migrations
against them.

All times are integers, ms since the epoch. An entry's id is the position: AUTOINCREMENT, so a position is never used
again. The state of an entry in a lane is derived from that (``cursor``, ``limit``, ``owner``), never rewritten
row by row.
"""

from __future__ import annotations

from typing import Any, Final, cast

from sqlalchemy import REAL, CheckConstraint, Column, ForeignKey, LargeBinary, MetaData, Table, Text

from wsrm_mq.store.words import (
    ANSWERED_WITH_FAULT,
    ATTEMPTS,
    LANE_KINDS,
    LATE,
    OPEN_STATES,
    OUTBOUND_STATES,
    OUTCOMES,
    PLAN_STATES,
    QUEUE_KINDS,
    QUEUE_MODES,
    Number,
    columns,
    given_key,
    index,
    one_of,
)

metadata: Final = MetaData()


def table(name: str, *parts: Column[Any] | CheckConstraint, **options: bool) -> Table:
    return Table(name, metadata, *parts, sqlite_strict=True, **cast(Any, options))


# the store itself: which one it is, the processes that serve it, what they have counted and refused

# One row: which store this is, see ``identity``.
identity: Final = table(
    "identity",
    Column("id", Text, primary_key=True),
    # Grows now and then, never falls: a file with less than the witness has is an older one.
    Column("mark", Number, nullable=False),
    # This file is a copy of that time, and was not adopted since.
    Column("copied_at", Number),
    # The difference between the time of day and the clock that is never set, when the first process of the store began:
    # by it the processes agree when a lease ends.
    Column("clock_offset", Number),
    # The name of this node among others; NULL: it has been given none.
    Column("node", Text),
)

# From this mark on one run of the service wrote, after a time in which no process had the store: of two futures of a
# store that was put back from a copy, each has another token.
epoch: Final = table(
    "epoch",
    Column("mark", Number, primary_key=True, autoincrement=False),
    Column("token", Text, nullable=False),
    sqlite_with_rowid=False,
)

instance: Final = table(
    "instance",
    given_key(),
    Column("name", Text, nullable=False, unique=True),
    Column("host", Text, nullable=False),
    *columns("pid, started_at", Number, nullable=False),
    Column("ended_at", Number),
    # The application that it serves, where that has a name, and on which paths: a JSON list, NULL for all.
    *columns("application, paths", Text),
    sqlite_autoincrement=True,
)
index("instance_live", instance.c.id, where="ended_at IS NULL")

# Counters of a queue (0: of no queue; -1: of queues that are gone): they stay when rows are pruned.
counter: Final = table(
    "counter",
    Column("name", Text, primary_key=True),
    Column("queue", Number, primary_key=True, autoincrement=False),
    Column("label", Text, primary_key=True),
    Column("value", Number, nullable=False),
    sqlite_with_rowid=False,
)

# Refusals by reason and partner ('' for an unknown one): their number, and the sentence of the last one.
refusal: Final = table(
    "refusal",
    Column("reason", Text, primary_key=True),
    Column("partner", Text, primary_key=True),
    *columns("times, last_at", Number, nullable=False),
    # The answer to the last one.
    Column("said", Text, nullable=False, server_default=""),
    sqlite_with_rowid=False,
)


# queues, the messages in them, and the replies to these

queue: Final = table(
    "queue",
    given_key(),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    # A dead-letter queue knows its parent, and is found by that: any name may be a path.
    Column("parent", Number, ForeignKey("queue.id")),
    Column("created_at", Number, nullable=False),
    # The application whose messages these are, if it has a name; see ``store.applications``.
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


# lanes: ordered groups of entries that one thread at a time runs, and which numbers each has; and inbound sequences:
# what the protocol knows of the lane that each rules

_DELIVERABLE: Final = (
    'on_hold_since IS NULL AND owner IS NULL AND blocked IS NULL AND cursor < "limit" '
    "AND (discard_from IS NULL OR cursor < discard_from)"
)

lane: Final = table(
    "lane",
    given_key(),
    Column("queue", Number, ForeignKey("queue.id"), nullable=False),
    # rm: a sequence rules it (see ``sequence``). connection: messages without WS-RM, in order of receipt.
    # replay: stored messages are delivered again. outgoing: this side's own messages are sent (see ``channel``).
    # group: messages that were put, to be consumed in order.
    Column("kind", Text, nullable=False, server_default="rm"),
    # The sequence's identifier; of any other lane one that was made here.
    Column("identifier", Text, nullable=False, unique=True),
    *columns("principal, peer", Text),
    # The partner section that fits the source; its policy rules retries.
    Column("partner", Text),
    # Versions of the envelopes in it.
    *columns("soap, addressing", Text, nullable=False),
    # How it is delivered.
    Column("assurance", Text, nullable=False),
    Column("ordered", Number, nullable=False),
    # Its life.
    *columns("created_at, active_at", Number, nullable=False),
    # It ends after so many ms without traffic.
    Column("inactivity", Number),
    # When to look whether the clock ends it: not later than its time is over.
    Column("due_at", Number),
    # How it has ended, and when: nothing new comes into it from outside.
    Column("ended", Text),
    Column("ended_at", Number),
    # How far delivery has come.
    *columns("cursor, limit", Number, nullable=False),
    Column("discard_from", Number),
    Column("discard_reason", Text),
    # Entries at or above discard_from are still being moved to the dead letters.
    Column("discarding", Number, nullable=False, server_default="0"),
    Column("owner", Number, ForeignKey("instance.id")),
    Column("fence", Number, nullable=False),
    # Since when the head runs, for `explain`.
    *columns("running_since, retry_from, retry_at", Number),
    # Position of the entry that stopped it; an operator resumes or skips.
    Column("blocked", Number),
    # Deliveries below this number may be repeated: an owner died while it ran them.
    Column("redelivery_below", Number, nullable=False, server_default="0"),
    # Accepted numbers at or above the limit, and at most so many bytes of theirs.
    *columns("held, held_bytes", Number, nullable=False, server_default="0"),
    # The number of its entries that retention has deleted; the ranges still know their numbers.
    Column("pruned", Number, nullable=False, server_default="0"),
    # Since when an operator holds it: nothing of it is delivered.
    Column("on_hold_since", Number),
    # The connection whose messages a lane of that kind has.
    Column("connection", Text),
    # A replay has the lane whose messages are delivered again, and its plan if there is one.
    Column("replay_of", Number, ForeignKey("lane.id")),
    Column("plan", Text, ForeignKey("plan.id")),
    # Consumers lease it, and no application is called with what it has but for two-way messages: when that was done
    # last, 0: not yet.
    Column("served_at", Number),
    # Numbers below this one are leased, until that time, by the clock that is never set, and by which subscription.
    *columns("leased_below, leased_until, lessee", Number),
    one_of("kind", LANE_KINDS),
    CheckConstraint('cursor <= "limit"', name="cursor_within_limit"),
)
index("lane_owned", lane.c.owner, where="owner IS NOT NULL")
# Lanes that an instance looks for at start and in every poll: deliverable, and not run.
index("lane_runnable", lane.c.retry_at, where=f"served_at IS NULL AND {_DELIVERABLE}")
# Lanes that a consumer may lease, and lanes that are leased.
index("lane_leasable", lane.c.queue, lane.c.served_at, where=f"served_at IS NOT NULL AND {_DELIVERABLE}")
index("lane_leased", lane.c.owner, lane.c.leased_until, where="leased_until IS NOT NULL")
index("lane_discarding", lane.c.id, where="discarding = 1")
index("lane_by_connection", lane.c.connection, lane.c.queue, where="connection IS NOT NULL AND ended_at IS NULL")
# How many a peer has open.
index("lane_open", lane.c.principal, lane.c.peer, where="ended_at IS NULL AND kind = 'rm'")
index("lane_holding", lane.c.held, lane.c.held_bytes, where="held > 0")
index("lane_replays", lane.c.replay_of, where="replay_of IS NOT NULL")
index("lane_by_plan", lane.c.plan, where="plan IS NOT NULL")
index("lane_due", lane.c.due_at, where="due_at IS NOT NULL")
# Lanes that retention looks for. Written once in a lane's life.
index("lane_ended", lane.c.ended_at, lane.c.id, where="ended_at IS NOT NULL")

range_: Final = table(
    "range",
    Column("lane", Number, ForeignKey("lane.id"), primary_key=True, autoincrement=False),
    Column("lower", Number, primary_key=True, autoincrement=False),
    Column("upper", Number, nullable=False),
    CheckConstraint("lower <= upper", name="range_is_not_empty"),
    sqlite_with_rowid=False,
)


sequence: Final = table(
    "sequence",
    Column("lane", Number, ForeignKey("lane.id"), primary_key=True, autoincrement=False),
    # The CreateSequence it answered: a repeated one gets the same identifier.
    Column("create_id", Text),
    # The terms that were agreed.
    *columns("rm, behavior", Text, nullable=False),
    # The reason of dead letters of an incomplete end, where the behavior discards.
    Column("incomplete_reason", Text, nullable=False),
    Column("expires_at", Number),
    # Protocol state.
    Column("state", Text, nullable=False),
    Column("last_number", Number),
    Column("duplicates", Number, nullable=False, server_default="0"),
    # The treatment of a missing number that arrives after an operator has forced the sequence past its gap.
    Column("late", Text),
    # The endpoint for its acknowledgements, a JSON list of address and parameters; NULL: the responses.
    Column("acks_to", Text),
    # When the next one is to be sent there.
    Column("ack_due_at", Number),
    # The address of WS-MakeConnection where they may be fetched too, and whether one waits there.
    Column("acks_fetched_by", Text),
    Column("ack_waits", Number, nullable=False, server_default="0"),
    one_of("state", OPEN_STATES),
    one_of("late", LATE),
)
index("sequence_create_id", sequence.c.create_id, where="create_id IS NOT NULL")
index("sequence_ack_due", sequence.c.ack_due_at, where="ack_due_at IS NOT NULL")
index("sequence_ack_waits", sequence.c.acks_fetched_by, where="ack_waits = 1")


# tables of messages that leave: the sequences that number them, and the endpoints that they are sent to

# A sequence whose RM Source is this side.
outbound_sequence: Final = table(
    "outbound_sequence",
    given_key(),
    # The inbound sequence whose replies go out in it: the source of that one has offered it. NULL: requests do.
    Column("answers", Number, ForeignKey("sequence.lane"), unique=True),
    Column("identifier", Text, nullable=False, unique=True),
    # The receiver, and who may speak of it.
    Column("queue", Number, ForeignKey("queue.id"), nullable=False),
    *columns("principal, peer, partner", Text),
    # The terms that were agreed.
    *columns("rm, soap, addressing", Text, nullable=False),
    Column("expires_at", Number),
    Column("state", Text, nullable=False),
    # The highest number that was given; the acknowledged ones, as 1-5,7, and how many are not.
    Column("given", Number, nullable=False),
    Column("acknowledged", Text, nullable=False),
    Column("unacknowledged", Number, nullable=False),
    # No number above it is given.
    Column("last_number", Number),
    # The destination has said that what it acknowledges will not change.
    Column("is_final", Number, nullable=False),
    # Since when something waits for an acknowledgement, and none has come.
    Column("waiting_since", Number),
    # The endpoint for messages about it, a JSON list of address and parameters; NULL: they leave on responses.
    Column("endpoint", Text),
    # The number of a request is told with its reply alone, until that is acknowledged.
    Column("acks_with_reply", Number, nullable=False, server_default="0"),
    # The lowest number for which the destination has no room, as it said last; NULL: it has said nothing.
    Column("takes_below", Number),
    # The sequence that is offered for the replies to the requests in it, and the numbers that have come there.
    Column("offered", Text),
    Column("replied", Text, nullable=False, server_default=""),
    one_of("state", OUTBOUND_STATES),
    sqlite_autoincrement=True,
)

ACKNOWLEDGED: Final = "state = 'created' AND unacknowledged = 0 AND endpoint IS NOT NULL"
index("outbound_acknowledged", outbound_sequence.c.answers, where=ACKNOWLEDGED)
# The sequences of requests, in the order in which they follow each other to one destination.
index("outbound_own", outbound_sequence.c.queue, outbound_sequence.c.id, where="answers IS NULL")

# A lane of kind outgoing: what leaves for one endpoint about one sequence, in requests of this side's own.
channel: Final = table(
    "channel",
    Column("lane", Number, ForeignKey("lane.id"), primary_key=True, autoincrement=False),
    # The inbound sequence that it is about, and the outbound one that it has its numbers in, or is about alone.
    Column("answers", Number, ForeignKey("sequence.lane")),
    Column("outbound", Number, ForeignKey("outbound_sequence.id")),
    Column("address", Text, nullable=False),
    # The endpoint's reference parameters, as a JSON list of stand-alone XML.
    Column("parameters", Text, nullable=False),
    # Its numbers are those of the outbound sequence: each is sent again until it is acknowledged.
    Column("is_numbered", Number, nullable=False),
    CheckConstraint(
        "outbound IS NOT NULL OR (answers IS NOT NULL AND is_numbered = 0)", name="channel_is_about_a_sequence"
    ),
)
_endpoint: Final = (channel.c.address, channel.c.parameters, channel.c.is_numbered)
index("channel_by_endpoint", channel.c.answers, *_endpoint)
index("channel_by_outbound", channel.c.outbound, *_endpoint)
index("channel_by_address", channel.c.address)


# tables of the history of messages: the ledger, plans to replay them, archives that hold them for good

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


# who consumes: clients, their subscriptions, and what leads messages of a topic into queues; who may do so from other
# machines, and what the outboxes there have sent

client: Final = table(
    "client",
    given_key(),
    Column("name", Text, nullable=False),
    *columns("instance, started_at, seen_at", Number, nullable=False),
    Column("ended_at", Number),
    sqlite_autoincrement=True,
)
index("client_live", client.c.instance, where="ended_at IS NULL")

# A consumer's standing request. Its key is never used again: leases are known by it.
subscription: Final = table(
    "subscription",
    given_key(),
    # The name of a durable one, which names its queue too.
    Column("name", Text),
    Column("client", Number, ForeignKey("client.id")),
    Column("queue", Number, ForeignKey("queue.id"), nullable=False),
    *columns("pattern, filter", Text),
    # Messages that it may have leased at a time: as asked for, and as granted.
    *columns("asked, granted", Number, nullable=False),
    # How long a lease of it is, ms; NULL: until it ends.
    Column("lease", Number),
    Column("acknowledges", Text, nullable=False),
    # The position of the last barrier that it had.
    Column("barrier", Number),
    *columns("created_at, seen_at", Number, nullable=False),
    Column("ended_at", Number),
    # JSON list of the keys of the other queues, where it is to several.
    Column("beside", Text),
    sqlite_autoincrement=True,
)
index("subscription_by_queue", subscription.c.queue, where="ended_at IS NULL")
index("subscription_by_client", subscription.c.client, where="ended_at IS NULL")

binding: Final = table(
    "binding",
    given_key(),
    Column("pattern", Text, nullable=False),
    Column("filter", Text),
    Column("queue", Number, ForeignKey("queue.id"), nullable=False),
    Column("created_at", Number, nullable=False),
    sqlite_autoincrement=True,
)
index("binding_by_queue", binding.c.queue)


# A principal is known by what it shows: a secret, of which only a digest is here, or the certificate of a TLS client.
token: Final = table(
    "token",
    Column("name", Text, primary_key=True),
    # SHA-256 of the secret, as hexadecimal digits. The secret is random and long: nothing makes it up from its digest.
    Column("digest", Text, unique=True),
    # The subject's distinguished name, as the proxy in front reports it.
    Column("certificate", Text, unique=True),
    # A JSON list of [right, pattern].
    Column("grants", Text, nullable=False),
    Column("created_at", Number, nullable=False),
    # NULL: it does not expire.
    Column("expires_at", Number),
    # Written now and then, not by each request.
    Column("used_at", Number),
    CheckConstraint("(digest IS NULL) <> (certificate IS NULL)", name="it_is_known_by_one_thing"),
    sqlite_with_rowid=False,
)

# The outbox of a client: the highest number of its lane that this store has. It is never deleted: however long a server
# was away, what it has is not taken again.
outbox: Final = table(
    "outbox",
    Column("principal", Text, primary_key=True),
    Column("lane", Text, primary_key=True),
    *columns("last, seen_at", Number, nullable=False),
    sqlite_with_rowid=False,
)


# tables of routes: which node is next for a message, what is known of it, and where a message comes from

route: Final = table(
    "route",
    given_key(),
    # The names of queues that it is for: * stands for any characters.
    Column("pattern", Text, nullable=False),
    # The URL of the next node.
    Column("next_hop", Text, nullable=False),
    # Of several that are for a name the cheapest is taken whose next node answers.
    Column("cost", Number, nullable=False),
    # What stands before the first * is left out of the name that a message arrives under.
    *columns("strip, created_at", Number, nullable=False),
    sqlite_autoincrement=True,
)
index("route_by_pattern", route.c.pattern, route.c.next_hop, unique=True)

# What is known of a next node.
hop: Final = table(
    "hop",
    Column("address", Text, primary_key=True),
    # NULL: it answers.
    Column("away_since", Number),
    # When it is tried next, and the number of attempts in vain.
    Column("tried_next_at", Number),
    Column("attempts", Number, nullable=False, server_default="0"),
    Column("last_error", Text),
    # The name of the node, as its last answer said it; NULL: it has not answered yet.
    Column("node", Text),
    # The numbers that it had acknowledged and lacks since it was put back from a copy, and when that was seen last.
    Column("forgot", Text),
    Column("forgot_at", Number),
    sqlite_with_rowid=False,
)

# What waits for a next node, and may have to go another way since routes have changed: the nodes that have had it, a
# JSON list of names, the queue that it is for, and the name of that there. What is put for the same queue follows.
moving: Final = table(
    "moving",
    Column("via", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("address", Text, primary_key=True),
    Column("sent_as", Text, primary_key=True),
    # Where a first part of it has gone, and under which name: the rest follows, however routes change meanwhile.
    Column("leads_to", Text),
    Column("leads_as", Text),
    sqlite_with_rowid=False,
)

# Facts of a message that waits for a next node, or has come from another one.
routed: Final = table(
    "routed",
    Column("message", Number, ForeignKey("message.id"), primary_key=True, autoincrement=False),
    # The queue that it is for, as it was named to this node, and as it is named to the next one.
    Column("target", Text, nullable=False),
    Column("sent_as", Text),
    # The node that it was put at, that one's incarnation, and its position there.
    *columns("node, incarnation", Text, nullable=False),
    Column("position", Number, nullable=False),
    # The nodes that have had it, a JSON list of names, and how many may.
    Column("via", Text, nullable=False),
    Column("max_hops", Number, nullable=False),
    # The wishes of its sender for the queue that it is for.
    Column("priority", Number, nullable=False),
    Column("lane_group", Text),
    Column("asks", Number, nullable=False),
    Column("deliver_at", Number),
    # When it is a dead letter, wherever it is; and when, unless it has reached its queue.
    *columns("expires_at, reach_by", Number),
)
# Few of one position: as many as nodes have put a message there.
index("routed_by_origin", routed.c.position)

# Messages that have come from other nodes into queues of this one: each comes once into a queue, on whatever ways.
arrived: Final = table(
    "arrived",
    Column("queue", Number, primary_key=True, autoincrement=False),
    Column("node", Text, primary_key=True),
    Column("incarnation", Text, primary_key=True),
    Column("position", Number, primary_key=True, autoincrement=False),
    Column("at", Number, nullable=False),
    sqlite_with_rowid=False,
)
index("arrived_at", arrived.c.at)
