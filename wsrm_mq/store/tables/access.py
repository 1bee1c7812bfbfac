"""Who may use the queues from other machines, and what the outboxes there have sent."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Column, Text

from wsrm_mq.store.tables.table import Number, table

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
    Column("last", Number, nullable=False),
    Column("seen_at", Number, nullable=False),
    sqlite_with_rowid=False,
)
