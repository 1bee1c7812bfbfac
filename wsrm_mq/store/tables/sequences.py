"""Sequences, and which numbers of them have come."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, Text, text

from wsrm_mq.store.tables.table import one_of, table
from wsrm_mq.store.tables.words import LATE, SEQUENCE_KINDS, SEQUENCE_STATES

__all__ = ["range_", "sequence"]

sequence: Final = table(
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
    one_of("state", SEQUENCE_STATES),
    one_of("kind", SEQUENCE_KINDS),
    one_of("late", LATE),
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

range_: Final = table(
    "range",
    Column("sequence", Integer, ForeignKey("sequence.id"), primary_key=True, autoincrement=False),
    Column("lower", Integer, primary_key=True, autoincrement=False),
    Column("upper", Integer, nullable=False),
    CheckConstraint("lower <= upper", name="range_is_not_empty"),
    sqlite_with_rowid=False,
)
