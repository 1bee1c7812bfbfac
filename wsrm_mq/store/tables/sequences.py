"""Inbound sequences: what the protocol knows of the lane that each rules."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, ForeignKey, Index, Integer, Text, text

from wsrm_mq.store.tables.table import one_of, table
from wsrm_mq.store.tables.words import LATE, OPEN_STATES

sequence: Final = table(
    "sequence",
    Column("lane", Integer, ForeignKey("lane.id"), primary_key=True, autoincrement=False),
    # The CreateSequence it answered: a repeated one gets the same identifier.
    Column("create_id", Text),
    # What was agreed.
    Column("rm", Text, nullable=False),
    Column("behavior", Text, nullable=False),
    # What dead letters of an incomplete end are marked with, where the behavior discards.
    Column("incomplete_reason", Text, nullable=False),
    Column("expires_at", Integer),
    # Protocol state.
    Column("state", Text, nullable=False),
    Column("last_number", Integer),
    Column("duplicates", Integer, nullable=False, server_default="0"),
    # What becomes of a missing number that arrives after an operator has forced the sequence past its gap.
    Column("late", Text),
    # Where its acknowledgements are sent, as a JSON list of address and parameters; NULL: on the responses.
    Column("acks_to", Text),
    # When the next one is to be sent there.
    Column("ack_due_at", Integer),
    # The address of WS-MakeConnection where they may be fetched too, and whether one waits there.
    Column("acks_fetched_by", Text),
    Column("ack_waits", Integer, nullable=False, server_default="0"),
    one_of("state", OPEN_STATES),
    one_of("late", LATE),
)
Index("sequence_create_id", sequence.c.create_id, sqlite_where=text("create_id IS NOT NULL"))
Index("sequence_ack_due", sequence.c.ack_due_at, sqlite_where=text("ack_due_at IS NOT NULL"))
Index("sequence_ack_waits", sequence.c.acks_fetched_by, sqlite_where=text("ack_waits = 1"))
