"""Tables of routes: which node is next for a message, what is known of it, and where a message comes from."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, ForeignKey, Text

from wsrm_mq.store.tables.table import Number, columns, given_key, index, table

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
