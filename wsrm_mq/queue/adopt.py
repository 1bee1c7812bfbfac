"""Going on with a store that may have forgotten what it acknowledged: a backup, a file that was put back.

Of an open sequence the source may have acknowledgements that this store knows nothing of. Left open, it would wait for
ever for numbers that its source does not send again. So it ends as failed, and the source is told SequenceTerminated
with its next message. What this store has not delivered may have been delivered since: nothing of it runs again unless
the operator says so, and then as a possible redelivery. Where the application has a new name, what was stored for the
old one is delivered to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue.broken_run import take_from_dead
from wsrm_mq.queue.ending import bury, give_up
from wsrm_mq.queue.outbound import step_of
from wsrm_mq.queue.ownership import count_unsettled, free
from wsrm_mq.sequence.inbound import GaveUp
from wsrm_mq.sequence.outbound import Own
from wsrm_mq.store import identity, lanes, queues
from wsrm_mq.store.applications import hand_over, served
from wsrm_mq.store.driver import mark_for_rehearsal
from wsrm_mq.store.entries import LOOSE_NUMBER
from wsrm_mq.store.loose import OWNED_LOOSE, UNSETTLED_LOOSE
from wsrm_mq.store.outbound import REQUESTING
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction

ADOPTED = "store_adopted"
"""The reason that dead letters are marked with, and the end of their sequences."""


class Adopted(NamedTuple):
    """The counts of what was given up with an older state of the store."""

    ended: int
    """Sequences that were open."""
    undelivered: int
    """Messages that are neither delivered nor dead letters."""


def adopt(tx: Transaction, *, actor: str, reason: str, deliver: bool = False) -> Adopted:
    """Make this the store, whatever it has forgotten. No process may use it meanwhile. ``deliver``: what is undelivered
    goes to the application, marked as a possible redelivery; else to the dead letters."""
    ended = undelivered = 0
    for lane in tx.lanes_by(identity.UNFINISHED):
        is_open, unsettled = _end(tx, lane, deliver)
        ended += is_open
        undelivered += unsettled
    for (key,) in tx.execute(REQUESTING).fetchall():
        outbound = tx.outbound(key)
        assert outbound is not None
        step_of(tx, outbound, Own.SEAL)  # the numbers behind may have been given: nothing with one would arrive
    for (position,) in tx.execute(UNSETTLED_LOOSE).fetchall():
        undelivered += 1
        _end_loose(tx, position, deliver)
    fate = "delivered as possible redeliveries" if deliver else "dead letters"
    _take(tx, "adopted", f"{ended} open sequences ended, {undelivered} messages {fate}: {reason}", actor)
    return Adopted(ended, undelivered)


def confirm(tx: Transaction, *, actor: str, reason: str) -> Adopted:
    """Make this the store, because an operator knows that it is the newest state: it goes on as it is. What a process
    of the place that it comes from was running has no owner now."""
    _take_from_elsewhere(tx)
    _take(tx, "confirmed", reason, actor)
    return Adopted(0, 0)


def rehearse(tx: Transaction, path: Path) -> None:
    """Make this a copy on which acts are tried. Raises ``NotAllowed`` where a store is in use at ``path``, or was."""
    mark_for_rehearsal(tx, path)
    _take_from_elsewhere(tx)
    tx.execute(queues.END_INSTANCES, {"now": tx.now})


def _take_from_elsewhere(tx: Transaction) -> None:
    """Take over what the store says runs elsewhere: no process of the place that it comes from runs anything here."""
    loose = [tx.loose_entry(position) for (position,) in tx.execute(OWNED_LOOSE).fetchall()]
    for lane in filter(None, (*tx.lanes_by(lanes.OWNED), *loose)):
        take_from_dead(tx, lane)


def _end(tx: Transaction, lane: Lane, deliver: bool) -> tuple[bool, int]:
    is_open = lane.ended is None
    unsettled = count_unsettled(tx, lane, 1)
    gives_up = bool(unsettled) and not deliver
    free(lane)
    if gives_up:
        lane.blocked = None
        lane.wait(tx.now, None)
    if is_open or gives_up:
        give_up(tx, lane, GaveUp(ADOPTED if gives_up else None), reason=ADOPTED)
    if unsettled and deliver:
        lane.redelivery_below = max(lane.redelivery_below, lane.numbers.highest + 1)
    return is_open, unsettled


def _end_loose(tx: Transaction, position: int, deliver: bool) -> None:
    one = tx.loose_entry(position)
    assert one is not None
    free(one)
    if deliver:
        one.fence += 1  # it may have been called: the next claim on it is not the first
    else:
        bury(tx, one, position, LOOSE_NUMBER, ADOPTED)
        one.passed(LOOSE_NUMBER)


def _take(tx: Transaction, event: str, reason: str, actor: str) -> None:
    # The instances of the store that it comes from do not live here.
    tx.execute(queues.END_INSTANCES, {"now": tx.now})
    identity.rename(tx)
    tx.ledger(event, reason=reason, actor=actor)


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
