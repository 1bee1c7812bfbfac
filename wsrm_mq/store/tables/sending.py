"""What leaves: the sequences that sources have offered, and the endpoints of what is sent."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, ForeignKey, Text

from wsrm_mq.store.tables.table import Number, index, one_of, table
from wsrm_mq.store.tables.words import OUTGOING_STATES

# The sequence that the source of an inbound one has offered with it: the replies to that one go out in it.
outgoing: Final = table(
    "outgoing",
    Column("sequence", Number, ForeignKey("sequence.lane"), primary_key=True, autoincrement=False),
    Column("identifier", Text, nullable=False, unique=True),
    Column("expires_at", Number),
    Column("state", Text, nullable=False),
    # The highest number that was given; the acknowledged ones, as 1-5,7, and how many are not.
    Column("given", Number, nullable=False),
    Column("acknowledged", Text, nullable=False),
    Column("unacknowledged", Number, nullable=False),
    # No number above it is given.
    Column("last_number", Number),
    # The source has said that what it acknowledges will not change.
    Column("is_final", Number, nullable=False),
    # Since when replies wait for an acknowledgement, and none has come.
    Column("waiting_since", Number),
    # Where what is about it is sent, as a JSON list of address and parameters; NULL: it leaves on responses.
    Column("endpoint", Text),
    # The number of a request is told with its reply alone, until that is acknowledged.
    Column("acks_with_reply", Number, nullable=False, server_default="0"),
    one_of("state", OUTGOING_STATES),
)
# Those that may still get a reply.
index("outgoing_created", outgoing.c.sequence, where="state = 'created'")

# A lane of kind outgoing: what leaves for one endpoint about one inbound sequence, in requests of this side's own.
channel: Final = table(
    "channel",
    Column("lane", Number, ForeignKey("lane.id"), primary_key=True, autoincrement=False),
    # The inbound sequence that it is about.
    Column("answers", Number, ForeignKey("sequence.lane"), nullable=False),
    Column("address", Text, nullable=False),
    # The endpoint's reference parameters, as a JSON list of stand-alone XML.
    Column("parameters", Text, nullable=False),
    # Its numbers are those of the offered sequence: each is sent again until it is acknowledged.
    Column("is_numbered", Number, nullable=False),
)
_endpoint: Final = (channel.c.answers, channel.c.address, channel.c.parameters, channel.c.is_numbered)
index("channel_by_endpoint", *_endpoint, unique=True)
index("channel_by_address", channel.c.address)
