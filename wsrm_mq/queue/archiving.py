"""Confirmation that an archive holds what the store has, so that retention need not wait for it; and its withdrawal."""

from __future__ import annotations

from typing import NamedTuple

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.sequence.ranges import AckRange
from wsrm_mq.store import archiving as sql
from wsrm_mq.store.identity import epoch_at, identify, is_of_another_past
from wsrm_mq.store.transaction import Transaction, as_json


class Archived(NamedTuple):
    """The part of a store that an archive says it holds."""

    archive: str
    place: str
    number: int
    """The number of its manifest: each later one has a higher."""
    store: str
    """Identity of the store."""
    mark: int
    """How far the store's mark was when it was read."""
    epoch: str | None
    """In which run of the service that was (``store.identity``)."""
    ledger: int
    """It holds the ledger up to this key."""
    read_at: int
    messages: tuple[AckRange, ...]
    """Positions that it holds, with what was deleted between them."""
    sequences: tuple[AckRange, ...]
    """Keys of sequences that it holds."""


def confirm(tx: Transaction, held: Archived, *, actor: str) -> None:
    """Have retention delete what is ``held``. Raises ``NotAllowed`` for an archive of another store, of a later state
    of this one, or a manifest older than the one that was confirmed."""
    found = identify(tx.db)
    if held.store != found.id:
        raise NotAllowed(f"the archive is of the store {held.store}, and this one is {found.id}.")
    (last,) = tx.execute(sql.LAST_LEDGER).fetchone()
    if held.mark > found.mark or held.ledger > last:
        raise NotAllowed("the archive was made of a later state of this store: this one is an older copy.")
    if is_of_another_past(held.epoch, epoch_at(tx.db, held.mark)):
        raise NotAllowed(
            "the archive was made of what this store has forgotten: the store was put back from a copy since. Have it "
            "archived into another directory."
        )
    known = tx.execute(sql.KNOWN, (held.archive,)).fetchone()
    if known is not None and held.number < known[0]:
        raise NotAllowed(f"manifest {held.number} is older than manifest {known[0]}, which was confirmed already.")
    if known is not None and held.number == known[0]:
        if (held.ledger, held.read_at) != known[1:]:
            raise NotAllowed(
                f"another manifest {held.number} of it was confirmed: the archive was put back from a copy since. "
                f"`wsrm-mq archive withdraw {held.archive[:8]}`, then confirm this one."
            )
        return
    row = {"id": held.archive, "place": held.place, "number": held.number, "ledger": held.ledger}
    tx.execute(sql.CONFIRM, {**row, "read_at": held.read_at, "now": tx.now, "actor": actor})
    tx.execute(sql.FORGET_KEYS, (held.archive,))
    for kind in ("messages", "sequences"):
        tx.execute(sql.ADD_KEYS, (held.archive, kind, as_json(getattr(held, kind))))
    tx.ledger("archived", reason=f"archive {held.archive[:8]}, manifest {held.number}", actor=actor)


def withdraw(tx: Transaction, archive: str, *, actor: str, reason: str) -> None:
    """The archive is lost: what it alone held counts as not archived. Raises ``NotFound`` for one that was never
    confirmed."""
    if tx.execute(sql.KNOWN, (archive,)).fetchone() is None:
        raise NotFound(f"no archive {archive} was confirmed; `wsrm-mq archive list` shows which were.")
    tx.execute(sql.FORGET_KEYS, (archive,))
    tx.execute(sql.FORGET, (archive,))
    tx.ledger("archive_withdrawn", reason=f"archive {archive[:8]}: {reason}", actor=actor)
