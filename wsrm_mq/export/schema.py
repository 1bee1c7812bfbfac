"""The tables that leave a store, with their columns and types: the one place where these stand.

Segments of every format, their readers and the Spark source have them from here. They are the published read views
(``store.published``, ``docs/views.md``), each row with the store and the node that it comes from. A column may be
added; none goes or changes its meaning without a new ``VERSION``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from wsrm_mq.errors import ConfigurationError

VERSION: Final = 1


class Kind(enum.StrEnum):
    """The kind of a value, here and in the rows of a read view."""

    TEXT = "text"
    INTEGER = "integer"
    """An integer of 64 bits."""
    BOOLEAN = "boolean"
    """A truth value; in a view 0 or 1."""
    TIME = "time"
    """A moment in UTC, to the millisecond; in a view ms since the epoch."""
    BYTES = "bytes"


class Column(NamedTuple):
    """A column of a read view, as it is exported."""

    name: str
    kind: Kind


class Table(NamedTuple):
    """Its name is that of a read view, or ``ledger``. Rows are ordered by ``key``, whose first column is an integer
    that grows, and told apart by it."""

    name: str
    key: tuple[str, ...]
    moment: str | None
    """The column that says when a row came to be."""
    columns: tuple[Column, ...]

    @property
    def given(self) -> tuple[Column, ...]:
        """The columns that are given unless others are asked for: all but the content of messages."""
        return tuple(column for column in self.columns if column.name not in CONTENT)


CONTENT: Final = ("envelope", "replayable", "body_digest", "body")
"""Columns that have to be asked for: they are large, or are made from large ones."""

_FROM: Final = "store:text node:text"
"""Identity of the store, and where it is."""
_EVENT: Final = """
key:integer at:time event:text queue:text sequence:text number:integer position:integer instance:text attempt:integer
reason:text actor:text fault:text exception:text place:text"""

_TABLES: Final = {
    # replayable: the envelope is as it was received; it is not where it was redacted or freed. body_digest: whether two
    # messages have the same Body, made here and not where they arrive: that costs the service nothing.
    ("messages", "position", "received_at"): """
position:integer message:integer queue:text sequence:text number:integer message_id:text action:text state:text
reason:text outcome:text received_at:time settled_at:time deliveries:integer failures:integer deaths:integer
retry_at:time last_error:text
principal:text connection:text peer:text body_size:integer has_body:boolean request:text wants_reply:boolean
named:boolean origin:text replay_of:integer journal_of:integer confirmed_at:time original_sequence:text
original_number:integer late:boolean partner:text priority:integer cancels:integer expires_at:time
leased_until:time holder:text consumer:text topic:text properties:text content_type:text producer:text
trace:text hop:integer target:text
envelope:bytes replayable:boolean body_digest:text""",
    ("sequences", "key", "created_at"): """
key:integer sequence:text queue:text principal:text peer:text partner:text rm:text soap:text addressing:text
behavior:text assurance:text ordered:boolean created_at:time expires_at:time inactivity:integer state:text ended:text
ended_at:time active_at:time due_at:time last_number:integer expected:integer cursor:integer limit:integer
discard_from:integer discard_reason:text discarding:boolean owner:text running_since:time retry_from:time
retry_at:time blocked:integer redelivery_below:integer duplicates:integer kind:text connection:text received:integer
held:integer ready:integer oldest_at:time pruned:integer on_hold_since:time late:text replay_of:text plan:text
sends_to:text answers:text delivery:text consumed:boolean""",
    ("ranges", "key lower", None): "key:integer sequence:text lower:integer upper:integer",
    ("attempts", "key", "at"): _EVENT,
    ("ledger", "key", "at"): _EVENT,
    ("replies", "position", "stored_at"): """
position:integer status:text headers:text stored_at:time body:bytes sequence:text number:integer""",
    ("outgoing_sequences", "key", "created_at"): """
key:integer sequence:text answers:text queue:text state:text ended:text expires_at:time sent:integer
last_number:integer acknowledged:text unacknowledged:integer waiting_since:time created_at:time active_at:time""",
    ("request_sequences", "key", None): """
key:integer sequence:text queue:text sends_to:text rm:text soap:text addressing:text state:text ended:text
expires_at:time sent:integer last_number:integer acknowledged:text unacknowledged:integer waiting_since:time
acks_to:text offered:text replied:text lane:text created_at:time active_at:time""",
    ("queues", "key", "created_at"): """
key:integer queue:text kind:text parent:text application:text created_at:time dead_letters:integer
unconfirmed:integer loose:integer loose_oldest_at:time policy:text messages:integer bytes:integer last_put_at:time
came_lately:integer went_lately:integer next_at:time""",
    ("bindings", "key", "created_at"): """
key:integer pattern:text filter:text queue:text kind:text created_at:time""",
    ("subscriptions", "key", "created_at"): """
key:integer subscription:text client:text instance:text pid:integer queue:text pattern:text filter:text asked:integer
granted:integer lease:integer created_at:time seen_at:time ended_at:time beside:text""",
    ("clients", "key", "started_at"): """
key:integer client:text instance:text host:text pid:integer started_at:time seen_at:time ended_at:time""",
    ("instances", "key", "started_at"): """
key:integer instance:text host:text pid:integer started_at:time ended_at:time application:text paths:text""",
}


def _columns(text: str) -> tuple[Column, ...]:
    pairs = (word.split(":") for word in f"{_FROM} {text}".split())
    return tuple(Column(name, Kind(kind)) for name, kind in pairs)


TABLES: Final[Mapping[str, Table]] = MappingProxyType(
    {name: Table(name, tuple(key.split()), moment, _columns(text)) for (name, key, moment), text in _TABLES.items()}
)


def table_named(name: str) -> Table:
    """The table of this name. Raises ``ConfigurationError`` where there is none."""
    try:
        return TABLES[name]
    except KeyError:
        raise ConfigurationError(f"there is no table {name!r}; there are {', '.join(TABLES)}.") from None


def chosen(table: Table, names: Iterable[str]) -> tuple[Column, ...]:
    """The columns of ``table`` with these names, in that order. Raises ``ConfigurationError`` for one it has not."""
    names, columns = tuple(names), {column.name: column for column in table.columns}
    wrong = [name for name in names if name not in columns]
    if wrong or not names:
        what = f"has no column {wrong[0]!r}" if wrong else "was asked for no columns"
        raise ConfigurationError(f"the table {table.name} {what}; it has {', '.join(columns)}.")
    return tuple(columns[name] for name in names)
