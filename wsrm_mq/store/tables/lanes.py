"""Lanes: ordered groups of entries that one thread at a time runs, and which numbers each has."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, Text, text

from wsrm_mq.store.tables.table import one_of, table
from wsrm_mq.store.tables.words import LANE_KINDS

lane: Final = table(
    "lane",
    Column("id", Integer, primary_key=True),
    Column("queue", Integer, ForeignKey("queue.id"), nullable=False),
    # rm: a sequence rules it (see ``sequence``). connection: messages without WS-RM, in order of receipt.
    # replay: stored messages are delivered again. outgoing: this side's own messages are sent (see ``channel``).
    Column("kind", Text, nullable=False, server_default="rm"),
    # The sequence's identifier; of any other lane one that was made here.
    Column("identifier", Text, nullable=False, unique=True),
    Column("principal", Text),
    Column("peer", Text),
    # The partner section that fits the source; its policy rules retries.
    Column("partner", Text),
    # Versions of the envelopes in it.
    Column("soap", Text, nullable=False),
    Column("addressing", Text, nullable=False),
    # How it is delivered.
    Column("assurance", Text, nullable=False),
    Column("ordered", Integer, nullable=False),
    # Its life.
    Column("created_at", Integer, nullable=False),
    Column("active_at", Integer, nullable=False),
    # It ends after so many ms without traffic.
    Column("inactivity", Integer),
    # When to look whether the clock ends it: not later than its time is over.
    Column("due_at", Integer),
    # How it has ended, and when: nothing new comes into it from outside.
    Column("ended", Text),
    Column("ended_at", Integer),
    # How far delivery has come.
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
    # Accepted numbers at or above the limit, and at most so many bytes of theirs.
    Column("held", Integer, nullable=False, server_default="0"),
    Column("held_bytes", Integer, nullable=False, server_default="0"),
    # So many of its entries were deleted by retention; the ranges still know their numbers.
    Column("pruned", Integer, nullable=False, server_default="0"),
    # Since when an operator holds it: nothing of it is delivered.
    Column("on_hold_since", Integer),
    # Whose messages it has, where it is of that kind and the connection has a name.
    Column("connection", Text),
    # Of a replay: the lane whose messages are delivered again, and the plan that says which, where there is one.
    Column("replay_of", Integer, ForeignKey("lane.id")),
    Column("plan", Text, ForeignKey("plan.id")),
    one_of("kind", LANE_KINDS),
    CheckConstraint('cursor <= "limit"', name="cursor_within_limit"),
)
Index("lane_owned", lane.c.owner, sqlite_where=text("owner IS NOT NULL"))
# What an instance looks for at start and in every poll: deliverable, and not run.
Index(
    "lane_runnable",
    lane.c.retry_at,
    sqlite_where=text(
        'on_hold_since IS NULL AND owner IS NULL AND blocked IS NULL AND cursor < "limit" '
        "AND (discard_from IS NULL OR cursor < discard_from)"
    ),
)
Index("lane_discarding", lane.c.id, sqlite_where=text("discarding = 1"))
Index(
    "lane_by_connection",
    lane.c.connection,
    lane.c.queue,
    sqlite_where=text("connection IS NOT NULL AND ended_at IS NULL"),
)
# How many a peer has open.
Index("lane_open", lane.c.principal, lane.c.peer, sqlite_where=text("ended_at IS NULL AND kind = 'rm'"))
Index("lane_holding", lane.c.held, lane.c.held_bytes, sqlite_where=text("held > 0"))
Index("lane_replays", lane.c.replay_of, sqlite_where=text("replay_of IS NOT NULL"))
Index("lane_by_plan", lane.c.plan, sqlite_where=text("plan IS NOT NULL"))
Index("lane_due", lane.c.due_at, sqlite_where=text("due_at IS NOT NULL"))
# What retention looks for. Written once in a lane's life.
Index("lane_ended", lane.c.ended_at, lane.c.id, sqlite_where=text("ended_at IS NOT NULL"))

range_: Final = table(
    "range",
    Column("lane", Integer, ForeignKey("lane.id"), primary_key=True, autoincrement=False),
    Column("lower", Integer, primary_key=True, autoincrement=False),
    Column("upper", Integer, nullable=False),
    CheckConstraint("lower <= upper", name="range_is_not_empty"),
    sqlite_with_rowid=False,
)
