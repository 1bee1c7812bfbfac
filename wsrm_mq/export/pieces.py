"""Rows of the exported tables, read from a store in pieces, and the parts of a message that they show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Text, func, null, select, tuple_

from wsrm_mq.envelope.rewrite import body_digest, without_security
from wsrm_mq.envelope.stream import Limits, content_coding, expand
from wsrm_mq.errors import ConfigurationError, EnvelopeError, SchemaMismatch, StoreCorrupt, about
from wsrm_mq.export.schema import TABLES, Column, Table
from wsrm_mq.kept_headers import refusal_to_keep
from wsrm_mq.store import published as views
from wsrm_mq.store import routing
from wsrm_mq.store.driver import HEAD, connect_looker, known_revision, store_errors
from wsrm_mq.store.identity import identify
from wsrm_mq.store.port import Database, Rows
from wsrm_mq.store.sql import bound, compiled, p

# The parts of a message that may leave its node: chosen headers, and its envelope without proofs of its sender.


_ADDRESS: Final = (
    "REQUEST_METHOD",
    "SCRIPT_NAME",
    "PATH_INFO",
    "QUERY_STRING",
    "CONTENT_TYPE",
    "HTTP_SOAPACTION",
    "wsgi.url_scheme",
)
"""Fields of a stored request that are always given, whichever headers are asked for: its address, and the fields by
which its envelope is read."""
_GZIP: Final = "gzip"
_REQUESTS: Final = 1_024
"""The number of requests that are remembered: those of a client are alike."""
_LIMITS: Final = Limits()


Envelope = tuple[bytes | None, bool]
"""The content of an envelope, expanded where it was received compressed; and whether it is as it was received, so that
it may be replayed."""


class Exposure:
    """``headers``: names of request headers that are given beside Content-Type and SOAPAction. ``security``: envelopes
    keep their ``wsse:Security``."""

    def __init__(self, headers: Iterable[str] = (), *, security: bool = False) -> None:
        self.headers: Final = tuple(sorted({name.title() for name in headers}))
        for name in self.headers:
            if why := refusal_to_keep(name):
                raise ConfigurationError(f"the header {name!r} cannot be exported: it {why}.")
        self.security: Final = security
        self._given: Final = frozenset((*_ADDRESS, *(f"HTTP_{n.upper().replace('-', '_')}" for n in self.headers)))
        self._given_back: Final = frozenset(("content-type", *(name.lower() for name in self.headers)))
        self.request: Final = lru_cache(_REQUESTS)(self._request)

    def _request(self, stored: str | None) -> str | None:
        """A stored request, as JSON, without the headers that were not asked for."""
        if stored is None:
            return None
        return _json({name: value for name, value in json.loads(stored).items() if name in self._given})

    def reply_headers(self, stored: str) -> str:
        """The headers of a reply, as a JSON list of pairs, without those that were not asked for."""
        return _json([pair for pair in json.loads(stored) if pair[0].lower() in self._given_back])

    def envelope(self, body: bytes | None, request: str | None) -> Envelope:
        """The envelope that is given for ``body``, which came with the stored ``request``."""
        return self._shown(body, *_content(request or "{}"))

    def digest(self, body: bytes | None, request: str | None) -> str | None:
        """SHA-256 of the content of the SOAP Body in ``body`` (``envelope.rewrite.body_digest``); ``None``: it is not
        known."""
        content_type, is_compressed = _content(request or "{}")
        plain = _plain(body, is_compressed)
        return body_digest(plain, content_type) if plain is not None else None

    def reply(self, body: bytes | None, headers: str) -> Envelope:
        """The body that is given for a reply with these stored headers."""
        kept = {name.lower(): value for name, value in json.loads(headers)}
        is_compressed = content_coding(kept.get("content-encoding", "")) == _GZIP
        return self._shown(body, kept.get("content-type", ""), is_compressed)

    def _shown(self, body: bytes | None, content_type: str, is_compressed: bool) -> Envelope:
        plain = _plain(body, is_compressed)
        if plain is None:
            return None, False
        if self.security:
            return plain, True
        redacted = without_security(plain, content_type)
        return redacted, redacted is plain


def _plain(body: bytes | None, is_compressed: bool) -> bytes | None:
    """``body`` expanded; ``None`` where it is not there, or breaks off."""
    try:
        return expand(body, _LIMITS).read() if is_compressed and body is not None else body
    except EnvelopeError:
        return None


@lru_cache(_REQUESTS)
def _content(request: str) -> tuple[str, bool]:
    """The Content-Type of a stored request, and whether its body is compressed."""
    kept: dict[str, str] = json.loads(request)
    return kept.get("CONTENT_TYPE", ""), content_coding(kept.get("HTTP_CONTENT_ENCODING", "")) == _GZIP


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


# Rows, read in pieces.
#
# A piece is a short statement of its own, so that no checkpoint waits for it, however large the store is. The pieces
# end at the keys that the store had when the reading was planned; the rows of two pieces may differ in age.


PIECE: Final = 2_000
"""The number of rows in a piece, at most."""
PIECE_BYTES: Final = 8 * 1024 * 1024
"""The bytes of envelopes in a piece: these, and the rest of the last one, are in memory."""
REACH: Final = 100_000
"""The number of keys that a statement searches for rows that fit."""
_LARGEST: Final = 2**63 - 1

Row = tuple[Any, ...]
Key = tuple[int, ...]
"""The values of a table's key."""


def view_of(table: Table) -> Any:
    """The read view that has its rows."""
    return getattr(views, "ledger_events" if table.name == "ledger" else table.name)


class Origin(NamedTuple):
    store: str
    """Identity of the store: a copy has the one of its original until it is adopted."""
    node: str
    """The machine that it was served on last, unless it was given a name."""


class Bounds(NamedTuple):
    """The first and the last key of a table, or of a part of it."""

    lower: int
    upper: int


class Reading(NamedTuple):
    """A reading: the columns of a table, and the parts of requests and envelopes that are shown."""

    table: Table
    columns: tuple[Column, ...]
    exposure: Exposure
    origin: Origin
    wanted: tuple[ColumnElement[bool], ...] = ()
    """Conditions for rows of the table's view."""


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """A connection that only reads, to a store of this version's schema; raises ``StoreError`` for any other."""
    db = connect_looker(path)
    try:
        found = known_revision(db, path)
        if found is None:
            raise StoreCorrupt(f"{path}: is empty.", about(path, "Make it a store with `wsrm-mq store init`."))
        if found != HEAD:
            hint = about(path, "Bring it up to date with `wsrm-mq store migrate`, or its copy.")
            raise SchemaMismatch(f"{path}: has schema {found}, this version reads {HEAD}.", hint)
        with store_errors(path):
            yield db
    finally:
        db.close()


_HOST: Final = compiled(select(views.instances.c.host).order_by(views.instances.c.key.desc()).limit(1))


def origin(db: Database, node: str | None = None) -> Origin:
    """Answer the origin of rows: the store's id, and ``node``, by default the name that its node was given, or else the
    host that used it last."""
    host = db.execute(_HOST).fetchone() or ("unknown",)
    store, (name, *_) = identify(db).id, db.execute(routing.NODE).fetchone()
    return Origin(store, node or name or host[0])


@cache
def _ends(name: str) -> tuple[str, str]:
    key = view_of(TABLES[name]).c[TABLES[name].key[0]]
    return compiled(select(func.min(key))), compiled(select(func.max(key)))


def bounds(db: Database, table: Table) -> Bounds | None:
    """The first and the last key that there is now; ``None``: no row."""
    lower, upper = (db.execute(statement).fetchone()[0] for statement in _ends(table.name))
    return None if lower is None else Bounds(lower, upper)


class _Made(NamedTuple):
    """The columns of a table that are made here, and the stored columns from which they are made."""

    headers: str
    content: str
    is_whole: str
    digest: str
    kept: ColumnElement[str]
    body: ColumnElement[bytes]
    read: Callable[[Exposure, bytes | None, str], Envelope]
    shown: Callable[[Exposure, str], str | None]


_MADE: Final = {
    "messages": _Made(
        *("request", "envelope", "replayable", "body_digest", views.messages.c.request, views.bodies.c.body),
        *(Exposure.envelope, lambda exposure, request: exposure.request(request)),
    ),
    "replies": _Made(
        *("headers", "body", "", "", views.replies.c.headers, views.replies.c.body),
        *(Exposure.reply, Exposure.reply_headers),
    ),
}


class _Query(NamedTuple):
    text: str
    values: Mapping[str, Any]
    keys: tuple[int, ...]
    """The places of the key in a row."""
    made: _Made | None
    has_content: bool


def compared(table: Table, name: str) -> ColumnElement[Any] | None:
    """A column, to be compared in a statement; ``None`` for one that is made here."""
    made = _MADE.get(table.name)
    if made is not None and name in (made.headers, made.content, made.is_whole, made.digest):
        return None
    return p(name, type_=Text) if name in Origin._fields else view_of(table).c[name]


def _query(reading: Reading) -> _Query:
    """The statement of a reading. Its rows begin with ``columns``, where columns that are made here are NULL; the
    stored columns from which they are made follow, then the missing parts of the key."""
    table, columns = reading.table, tuple(column.name for column in reading.columns)
    view, made = view_of(table), _MADE.get(table.name)
    of_content = {made.content, made.is_whole, made.digest} if made else set()
    is_made = {made.headers, *of_content} if made else set()
    has_content = not of_content.isdisjoint(columns)
    asked: list[Any] = [null() if one in is_made else compared(table, one) for one in columns]
    source: Any = view
    if made is not None and not is_made.isdisjoint(columns):
        asked += (made.kept, made.body if has_content else null())
        if has_content and made.body.table is not view:
            source = view.join(views.bodies, views.bodies.c.position == view.c.position)
    else:
        made = None
    places = []
    for key in table.key:
        if key not in columns:
            asked.append(view.c[key])
        places.append(columns.index(key) if key in columns else len(asked) - 1)
    keys = [view.c[key] for key in table.key]
    behind: list[Any] = [p(f"after_{key}") for key in table.key]
    is_behind = tuple_(*keys) > tuple_(*behind) if len(keys) > 1 else keys[0] > behind[0]
    wanted = select(*asked).select_from(source).where(is_behind, keys[0] <= p("upper"), *reading.wanted)
    text, values = bound(wanted.order_by(*keys).limit(p("count")))
    return _Query(text, {**values, **reading.origin._asdict()}, tuple(places), made, has_content)


def before(table: Table, key: int) -> Key:
    """The key in front of all rows with this first key."""
    return (key - 1, *(_LARGEST for _ in table.key[1:]))


def pieces(db: Database, reading: Reading, after: Key, upper: int, most: int = PIECE) -> Iterator[list[Row]]:
    """The rows whose key is greater than ``after`` and begins with ``upper`` at most, in order; ``most`` in a piece."""
    query = _query(reading)
    names = [f"after_{key}" for key in reading.table.key]
    while after < before(reading.table, upper + 1):
        end = min(upper, after[0] + REACH)
        within = {**query.values, "upper": end, "count": min(most, PIECE), **dict(zip(names, after, strict=True))}
        found = db.execute(query.text, within)
        rows = _bounded(found, len(reading.columns) + 1) if query.has_content else found.fetchall()
        if rows:
            after = tuple(rows[-1][place] for place in query.keys)
            yield _finished(query, reading, rows)
        else:
            after = before(reading.table, end + 1)


def _bounded(found: Rows, body: int) -> list[Row]:
    """Read rows until their bodies are ``PIECE_BYTES``."""
    rows, size = [], 0
    with closing(found):
        for row in found:
            rows.append(row)
            size += len(row[body] or b"")
            if size >= PIECE_BYTES:
                break
    return rows


def _finished(query: _Query, reading: Reading, rows: list[Row]) -> list[Row]:
    """Turn rows of the query into rows of the columns."""
    made, width, exposure = query.made, len(reading.columns), reading.exposure
    if made is None:
        return [row[:width] for row in rows] if max(query.keys) >= width else rows
    stored = list(zip(*rows, strict=True))
    kept, bodies = stored[width : width + 2]
    columns: dict[str, Iterable[Any]] = dict(zip((one.name for one in reading.columns), stored, strict=False))
    if made.headers in columns:
        columns[made.headers] = [made.shown(exposure, one) for one in kept]
    if made.digest in columns:
        columns[made.digest] = list(map(exposure.digest, bodies, kept))
    if made.content in columns or made.is_whole in columns:
        shown = [made.read(exposure, *one) for one in zip(bodies, kept, strict=True)]
        if made.content in columns:
            columns[made.content] = [content for content, _ in shown]
        if made.is_whole in columns:
            columns[made.is_whole] = [int(is_whole) for _, is_whole in shown]
    return list(zip(*columns.values(), strict=True))
