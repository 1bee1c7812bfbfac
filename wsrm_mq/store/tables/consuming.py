"""Who consumes: clients, their subscriptions, and what leads messages of a topic into queues; who may do so from other
machines, and what the outboxes there have sent."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Column, ForeignKey, Text

from wsrm_mq.store.tables.table import Number, columns, given_key, index, table

client: Final = table(
    "client",
    given_key(),
    Column("name", Text, nullable=False),
    *columns("instance, started_at, seen_at", Number, nullable=False),
    Column("ended_at", Number),
    sqlite_autoincrement=True,
)
index("client_live", client.c.instance, where="ended_at IS NULL")

# A consumer's standing request. Its key is never used again: leases are known by it.
subscription: Final = table(
    "subscription",
    given_key(),
    # The name of a durable one, which names its queue too.
    Column("name", Text),
    Column("client", Number, ForeignKey("client.id")),
    Column("queue", Number, ForeignKey("queue.id"), nullable=False),
    *columns("pattern, filter", Text),
    # Messages that it may have leased at a time: as asked for, and as granted.
    *columns("asked, granted", Number, nullable=False),
    # How long a lease of it is, ms; NULL: until it ends.
    Column("lease", Number),
    Column("acknowledges", Text, nullable=False),
    # The position of the last barrier that it had.
    Column("barrier", Number),
    *columns("created_at, seen_at", Number, nullable=False),
    Column("ended_at", Number),
    # JSON list of the keys of the other queues, where it is to several.
    Column("beside", Text),
    sqlite_autoincrement=True,
)
index("subscription_by_queue", subscription.c.queue, where="ended_at IS NULL")
index("subscription_by_client", subscription.c.client, where="ended_at IS NULL")

binding: Final = table(
    "binding",
    given_key(),
    Column("pattern", Text, nullable=False),
    Column("filter", Text),
    Column("queue", Number, ForeignKey("queue.id"), nullable=False),
    Column("created_at", Number, nullable=False),
    sqlite_autoincrement=True,
)
index("binding_by_queue", binding.c.queue)


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
    *columns("last, seen_at", Number, nullable=False),
    sqlite_with_rowid=False,
)
