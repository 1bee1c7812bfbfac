"""The keeper of a queue's express messages: one process, in whose temporary database they are. The store knows it, and
gives positions to it in blocks; when the process is gone the store is told that they are lost. Those that the journal
of the queue has are dead letters then (``recording``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from wsrm_mq.errors import KeeperGone
from wsrm_mq.events.table import FROM_LEDGER
from wsrm_mq.queue import clearing, recording
from wsrm_mq.queue.browsing import KeptBy
from wsrm_mq.queue.clearing import Cleared
from wsrm_mq.queue.declaring import Declared
from wsrm_mq.store import queues
from wsrm_mq.store.port import Database, Instances
from wsrm_mq.store.transaction import Transaction


class Keeper(NamedTuple):
    """The instance that keeps the express messages of a queue: its key and name, and the id of its process."""

    instance: int
    name: str
    pid: int


def keep(tx: Transaction, queue: Declared) -> Keeper:
    """Have this instance keep the express messages of a queue, unless another one that lives does; answers which."""
    row = tx.execute(queues.KEEPER, {"key": queue.key}).fetchone()
    known = None if row is None else Keeper(*row[1:])
    if known is not None and known.instance != tx.instance and tx.instances.lives(known.name) is not False:
        return known
    if known is not None and known.instance != tx.instance:
        lose(tx, known)
    tx.execute(queues.KEEP, {"key": queue.key, "keeper": tx.instance})
    return Keeper(*tx.execute(queues.KEEPER, {"key": queue.key}).fetchone()[1:])


def keepers(db: Database) -> dict[str, Keeper]:
    """The keepers of queues, by the queue's name."""
    return {name: Keeper(*keeper) for name, *keeper in db.execute(queues.KEEPERS)}


def kept_by(db: Database, instances: Instances, queue: str) -> KeptBy | None:
    """Which process keeps the express messages of a queue."""
    keeper = keepers(db).get(queue)
    return None if keeper is None else KeptBy(keeper.pid, keeper.name, instances.lives(keeper.name) is not False)


def lose(tx: Transaction, keeper: Keeper) -> None:
    """A keeper is gone: the express messages of its queues are lost, and how many they were is not known."""
    for key, name in tx.execute(queues.KEPT_BY, {"keeper": keeper.instance}).fetchall():
        _lost(tx, key, name, f"process {keeper.pid} (instance {keeper.name}), which kept them, is gone")


def delete(tx: Transaction, queue: Declared, *, if_empty: bool = False, force: bool = False) -> Cleared:
    """Delete a queue in the store: see ``clearing.delete``. Raises ``KeeperGone`` where a process keeps express
    messages of it, unless ``force``: then they are lost, which is on record."""
    row = tx.execute(queues.KEEPER, {"key": queue.key}).fetchone()
    if row is not None:
        keeper = Keeper(*row[1:])
        lives = tx.instances.lives(keeper.name) is not False
        who = f"process {keeper.pid} (instance {keeper.name})"
        if lives and not force:
            raise KeeperGone(
                f"{queue.name} is not deleted: {who} keeps its express messages, and does not delete them.",
                "Try `node.delete` again when it answers; `force=True` deletes the queue, and loses them.",
            )
        came = "did not answer when the queue was deleted" if lives else "is gone"
        _lost(tx, queue.key, queue.name, f"{who}, which kept them, {came}")
    return clearing.delete(tx, queue, if_empty=if_empty, force=force)


def forget(tx: Transaction, name: str) -> None:
    """Forget that express messages of a queue are kept: none is any more."""
    tx.execute(queues.KEEP, {"key": tx.queue_named(name), "keeper": None})


def let_go(tx: Transaction, lost: Mapping[str, int]) -> None:
    """This instance ends: it keeps nothing any more. ``lost``: how many messages each queue had that were not
    settled."""
    for key, name in tx.execute(queues.KEPT_BY, {"keeper": tx.instance}).fetchall():
        if count := lost.get(name, 0):
            _lost(tx, key, name, f"{count} were not settled when the process that kept them closed its node")
        tx.execute(queues.KEEP, {"key": key, "keeper": None})


def _lost(tx: Transaction, key: int, name: str, reason: str) -> None:
    tx.execute(queues.KEEP, {"key": key, "keeper": None})
    if count := recording.lose(tx, key, name):
        reason = f"{reason}; {count} are among the dead letters, as the journal has them"
    tx.add_ledger("express_lost", key, reason=reason)
    tx.notices.append((FROM_LEDGER["express_lost"], {"queue": name, "reason": reason}))
