"""Lanes: ordered groups of entries that one thread at a time runs, and which numbers each has; and inbound sequences:
what the protocol knows of the lane that each rules."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Column, ForeignKey, Text

from wsrm_mq.store.tables.table import Number, columns, given_key, index, one_of, table
from wsrm_mq.store.tables.words import LANE_KINDS, LATE, OPEN_STATES

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
