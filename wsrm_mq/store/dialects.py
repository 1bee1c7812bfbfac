"""Words of SQL that differ from database to database.

A statement is written in the words of the SQL standard, and a few of the first column of ``WORDS``. A module of this
room has its text for SQLite, made once; the driver of another database asks for the same statement ``in_dialect``.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

__all__ = ["Dialect", "in_dialect", "said", "written"]

Dialect = Literal["sqlite", "postgresql"]


class Word(NamedTuple):
    """A word, and its text in each dialect, where ``{}`` is what stands in the word's brackets."""

    word: str
    sqlite: str
    postgresql: str


_PAIR: Final = "SELECT json_extract(value, '$[0]') AS lower, json_extract(value, '$[1]') AS upper FROM json_each({})"
_ELEMENTS: Final = "jsonb_array_elements{}(CAST({{}} AS JSONB))"

WORDS: Final = (
    Word("IS NOT DISTINCT FROM", "IS", "IS NOT DISTINCT FROM"),
    Word("IS DISTINCT FROM", "IS NOT", "IS DISTINCT FROM"),
    Word("AS INTEGER)", "AS INTEGER)", "AS BIGINT)"),
    Word("greatest(", "max(", "greatest("),
    Word("least(", "min(", "least("),
    # The rows of a JSON list in the column ``value``; of one of pairs of numbers, in ``lower`` and ``upper``.
    Word("texts_in()", "json_each({})", f"(SELECT value FROM {_ELEMENTS.format('_text')} AS one (value))"),
    Word(
        "keys_in()",
        "json_each({})",
        f"(SELECT CAST(value AS BIGINT) AS value FROM {_ELEMENTS.format('_text')} AS one (value))",
    ),
    Word(
        "pairs_in()",
        f"({_PAIR})",
        "(SELECT CAST(value->>0 AS BIGINT) AS lower, CAST(value->>1 AS BIGINT) AS upper "
        f"FROM {_ELEMENTS.format('')} AS one (value))",
    ),
    # The values of a group, as a JSON list.
    Word("list_of()", "json_group_array({})", "CAST(jsonb_agg({}) AS TEXT)"),
    # How many values a JSON list has.
    Word("length_of()", "json_array_length({})", "jsonb_array_length(CAST({} AS JSONB))"),
    # A parameter whose type nothing around it says.
    Word("a_number()", "{}", "CAST({} AS BIGINT)"),
    Word("a_text()", "{}", "CAST({} AS TEXT)"),
    # The address of the peer in a stored request.
    Word("peer_in()", "json_extract({}, '$.REMOTE_ADDR')", "(CAST({} AS JSONB)->>'REMOTE_ADDR')"),
    # For how many seconds a stored policy of a queue keeps the body of what is settled.
    Word(
        "retain_in()",
        "coalesce(json_extract({}, '$.retain'), 0)",
        "coalesce(CAST(CAST({} AS JSONB)->>'retain' AS DOUBLE PRECISION), 0)",
    ),
    # Now, ms since the epoch.
    Word(
        "now_ms()",
        "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
        "CAST(extract(epoch FROM statement_timestamp()) * 1000 AS BIGINT)",
    ),
    # The index to read, where the planner would choose another one.
    Word("by_index()", "INDEXED BY {}", ""),
)

_STANDARD: Final[dict[str, str]] = {}
"""Statements as they are written, by their text for SQLite, where that differs."""


def written(statement: str) -> str:
    """The text of ``statement`` for SQLite."""
    text = said(statement, "sqlite")
    if text != statement:
        _STANDARD[text] = statement
    return text


def in_dialect(text: str, dialect: Dialect) -> str:
    """The text in ``dialect`` of the statement whose text for SQLite is ``text``."""
    return said(_STANDARD.get(text, text), dialect)


def said(statement: str, dialect: Dialect) -> str:
    """The text of ``statement`` in ``dialect``."""
    for word in WORDS:
        name, brackets, _ = word.word.partition("()")
        if name not in statement:
            continue
        text: str = getattr(word, dialect)
        if brackets:
            statement = re.sub(rf"\b{name}\(([?:.\w]*)\)", text.format(r"\g<1>"), statement)
        else:
            statement = statement.replace(name, text)
    return statement
