"""Acts from outside a running instance, as a command does them: one transaction, or, before that, what its verb would
answer, also where nothing can be written; and whether it can be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from wsrm_mq.errors import StoreBusy, StoreUnavailable
from wsrm_mq.store import driver, identity, queues
from wsrm_mq.store.cache import Cache
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.store.group_commit import Verb
from wsrm_mq.store.port import Connection
from wsrm_mq.store.transaction import Transaction
from wsrm_mq.store.unit_of_work import Session

R = TypeVar("R")


def run_once(
    path: Path, verb: Verb[R], *, clock: Clock = wall_clock, unconfirmed: bool = False, dry_run: bool = False
) -> R:
    """One transaction from outside a running instance (CLI): committed, then the live instances are woken. ``dry_run``:
    only rehearsed. Raises ``StoreUnconfirmed`` as ``Store.open`` does, but on a copy that acts are tried on, and for
    what is allowed on an ``unconfirmed`` store."""
    if dry_run:
        return rehearse(path, verb, clock)
    witness = driver.Witness(path) if unconfirmed else driver.admit(path, for_act=True)
    with closing(driver.connect_writer(path)) as db, driver.store_errors(path):
        with from_outside(db, path, clock) as tx:
            result = verb(tx)
            tx.flush()
            db.execute(identity.ADVANCE).fetchall()
            db.execute("COMMIT")
        names = [name for _key, name in db.execute(queues.LIVE_INSTANCES)]
    witness.tell_of(path)
    driver.instances_of(path).wake(names)
    return result


def refuse_unwritable(path: Path, *, unconfirmed: bool = False) -> None:
    """Raise what a transaction would meet that cannot be written; ``unconfirmed``: of a store that needs no operator's
    confirmation for it."""
    if not unconfirmed:
        driver.admit(path, for_act=True)
    driver.refuse_place(path)
    with closing(driver.connect_looker(path)) as db:
        obstacle = driver.why_not_written(db, driver.BUSY_TIMEOUT_MS / 1000)
    if obstacle is not None and obstacle.is_of_asker:
        raise StoreUnavailable(
            f"{path}: this user may not write to it.", "Act as the user that the service runs as, or as root."
        )
    if obstacle is not None:
        raise StoreBusy(f"{path}: {obstacle.what}.")


def rehearse(path: Path, verb: Verb[R], clock: Clock) -> R:
    """Run ``verb`` in a transaction that is taken back; on a temporary copy where this user cannot write to the store.
    A store that awaits confirmation is rehearsed on as it is."""
    with closing(driver.connect_looker(path)) as db, driver.store_errors(path):
        obstacle = driver.why_not_written(db, driver.BUSY_TIMEOUT_MS / 1000)
        if obstacle is None:
            return _taken_back(db, path, verb, clock)
        if not obstacle.is_of_asker:
            raise StoreBusy(f"{path}: {obstacle.what}.")
        with closing(driver.temporary_copy(db, path)) as copy:
            return _taken_back(copy, path, verb, clock)


def _taken_back(db: Connection, path: Path, verb: Verb[R], clock: Clock) -> R:
    with from_outside(db, path, clock) as tx:
        result = verb(tx)
        tx.flush()
        return result


@contextmanager
def from_outside(db: Connection, path: Path, clock: Clock) -> Iterator[Transaction]:
    """A transaction of no running instance. It is rolled back at the end if it was not committed."""
    db.for_writing()
    db.begin()
    try:
        yield Transaction(Session(db, Cache(), 0, "cli", driver.instances_of(path)), clock())
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
