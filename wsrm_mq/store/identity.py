"""The identity of a store, and how far it has come.

Its **mark** grows with every start, every stop, every act of an operator, and every few seconds while something is
written: a file with a smaller mark is an older state. Its **epoch** tells whether an archive was made of a state that
was lost since: each run of the service has a random token, and the store knows the marks that each run reached.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from wsrm_mq.errors import StoreCorrupt
from wsrm_mq.store.port import Database

if TYPE_CHECKING:
    from wsrm_mq.store.transaction import Transaction

_IDENTITY: Final = "SELECT id, mark, copied_at FROM identity"
_RENAME: Final = "UPDATE identity SET id = ?, mark = mark + 1, copied_at = NULL"
STAMP: Final = "UPDATE identity SET copied_at = coalesce(copied_at, ?)"
EPOCHS: Final = 10_000
"""The number of epochs that are kept, the newest."""
_BEGIN: Final = """
INSERT INTO epoch (mark, token) SELECT mark, ? FROM identity WHERE TRUE
ON CONFLICT (mark) DO UPDATE SET token = excluded.token
"""
_SEAL: Final = """
UPDATE outbound_sequence SET last_number = given
WHERE answers IS NULL AND last_number IS NULL AND queue IN (SELECT id FROM queue WHERE name LIKE 'hop/%')
"""
_KEEP: Final = "DELETE FROM epoch WHERE mark <= (SELECT mark FROM epoch ORDER BY mark DESC LIMIT 1 OFFSET ?)"
_AT: Final = "SELECT token FROM epoch WHERE mark <= ? ORDER BY mark DESC LIMIT 1"
ADVANCE: Final = "UPDATE identity SET mark = mark + 1 RETURNING id, mark, copied_at"
UNFINISHED: Final = """
SELECT id FROM lane WHERE ended IS NULL OR owner IS NOT NULL
UNION SELECT lane FROM entry WHERE outcome IS NULL AND lane IS NOT NULL
"""
"""Keys of lanes that are open, run or have something unsettled: what a copy of a store may be wrong about."""


class Identity(NamedTuple):
    """The id of a store, and its mark, which grows now and then and never falls: a smaller one is of an older state."""

    id: str
    mark: int
    copied_at: int | None
    """This file is a copy, made at this time (ms since the epoch) and not adopted since."""


def identify(db: Database) -> Identity:
    """The identity of the store. Raises ``StoreCorrupt`` if it has none."""
    row = db.execute(_IDENTITY).fetchone()
    if row is None:
        raise StoreCorrupt("The store does not say which it is.")
    return Identity(*row)


def advance(tx: Transaction) -> Identity:
    """Move the mark, which counts the states of the store. The witness is told when this is committed."""
    return Identity(*tx.execute(ADVANCE).fetchall()[0])


def begin_epoch(db: Database) -> None:
    """Begin another run of the service, which writes from this mark on. It may have been put back from a copy before:
    to next nodes no number is given again that may have been given then."""
    db.execute(_BEGIN, (secrets.token_hex(8),))
    db.execute(_SEAL)
    db.execute(_KEEP, (EPOCHS,))


def epoch_at(db: Database, mark: int) -> str | None:
    """The token of the run that the store had this mark in; ``None`` where that is not known."""
    row = db.execute(_AT, (mark,)).fetchone()
    return None if row is None else str(row[0])


def is_of_another_past(epoch: str | None, here: str | None) -> bool:
    """Whether what was read in ``epoch`` is not what this store had at that mark, which was ``here``."""
    return epoch is not None and here is not None and epoch != here


def rename(tx: Transaction) -> None:
    """Make this a store of its own, no copy of another."""
    tx.execute(_RENAME, (secrets.token_hex(16),))


def stamp(db: Database, now: int) -> None:
    """Mark this file as a copy."""
    db.execute(STAMP, (now,))
