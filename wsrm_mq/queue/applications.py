"""The new name of an application: what was stored for the old one is delivered to it."""

from __future__ import annotations

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.store.applications import hand_over, served
from wsrm_mq.store.transaction import Transaction


def rename(tx: Transaction, old: str | None, new: str | None, reason: str, actor: str) -> int:
    """Make what was stored for ``old`` that of ``new``; ``None`` is an application without a name. Answers how many
    queues that are. Raises ``NotFound`` where there is none, ``NotAllowed`` while a process serves ``old``."""
    if any(one.application == old for one in served(tx.db)):
        raise NotAllowed(f"a process serves {_word(old)}: stop it first.")
    count = hand_over(tx.db, old, new)
    if not count:
        raise NotFound(f"no queue is that of {_word(old)}.")
    tx.ledger("application_renamed", reason=f"{_word(old)} is {_word(new)}: {reason}", actor=actor)
    return count


def _word(application: str | None) -> str:
    return application or "none"
