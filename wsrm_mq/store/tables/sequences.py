"""Inbound sequences: what the protocol knows of the lane that each rules."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, ForeignKey, Text

from wsrm_mq.store.tables.table import Number, index, one_of, table
from wsrm_mq.store.tables.words import LATE, OPEN_STATES

sequence: Final = table(
    "sequence",
    Column("lane", Number, ForeignKey("lane.id"), primary_key=True, autoincrement=False),
    # The CreateSequence it answered: a repeated one gets the same identifier.
    Column("create_id", Text),
    # The terms that were agreed.
    Column("rm", Text, nullable=False),
    Column("behavior", Text, nullable=False),
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
