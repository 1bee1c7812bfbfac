"""Tables of messages that leave: the sequences that number them, and the endpoints that they are sent to."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Column, ForeignKey, Text

from wsrm_mq.store.tables.table import Number, columns, given_key, index, one_of, table
from wsrm_mq.store.tables.words import OUTBOUND_STATES

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
