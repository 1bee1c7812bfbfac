"""Statements that make an empty file a store: the tables as described, their first rows, and the views.

The migrations, one after the other, lead to the same schema, and would cost a first start 0.3 s of processor time. A
test holds the two equal.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Final

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from wsrm_mq.store import published
from wsrm_mq.store.tables import metadata

_REVISION: Final = """
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)
"""
_FIRST_ROWS: Final = (
    "INSERT INTO watermark (name, upto) VALUES ('connection_message', 0), ('lane_entry', 0)",
    "INSERT INTO sqlite_sequence (name, seq) VALUES ('entry', 0), ('queue', 0), ('outbound_sequence', 0)",
)


def _tables() -> Iterator[str]:
    dialect = sqlite.dialect()
    for table in metadata.sorted_tables:
        yield str(CreateTable(table).compile(dialect=dialect))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield str(CreateIndex(index).compile(dialect=dialect))


_MADE: Final = (*_tables(), *_FIRST_ROWS, *published.texts().values())


def statements(revision: str) -> Iterator[str]:
    """The statements that make a store of this ``revision``, which has to be the one that the tables describe."""
    yield _REVISION
    yield f"INSERT INTO alembic_version VALUES ('{revision}')"
    yield from _MADE
    yield f"INSERT INTO identity (id, mark) VALUES ('{secrets.token_hex(16)}', 0)"
