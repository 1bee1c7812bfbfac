"""The store itself: which one it is, the processes that serve it, what they have counted and refused."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Text

from wsrm_mq.store.tables.table import Number, columns, given_key, index, table

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
