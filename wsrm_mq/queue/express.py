"""Express messages: their keeper, and what the journal of their queue has of them.

One process keeps those of a queue, in its temporary database. The store knows it, and gives positions to it in blocks;
when the process is gone the store is told that they are lost. Where the queue has a journal, they come there, and have
their outcome there, before their own process commits it: what was not settled is a dead letter then, and may be
recovered. In its queue such a message has no entry in the store as long as its process has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from wsrm_mq.errors import KeeperGone
from wsrm_mq.events.table import FROM_LEDGER
from wsrm_mq.queue import clearing, journaling, settling
from wsrm_mq.queue.browsing import KeptBy
from wsrm_mq.queue.clearing import ACTOR, PIECE, Part, purge_one
from wsrm_mq.queue.dead_letters import redrive
from wsrm_mq.queue.declaring import Declared, journal_of, named
from wsrm_mq.queue.ending import bury
from wsrm_mq.queue.leaving import lane_of, put_aside, standing
from wsrm_mq.queue.settling import Lease
from wsrm_mq.store import journals, queues, subscribing
from wsrm_mq.store.driver import Change
from wsrm_mq.store.entries import LOOSE_NUMBER
from wsrm_mq.store.port import Database, Instances
from wsrm_mq.store.transaction import Transaction


class Keeper(NamedTuple):
    """The instance that keeps the express messages of a queue: its key and name, and the id of its process."""

    instance: int
    name: str
    pid: int


def keep(tx: Transaction, queue: Declared) -> Keeper:
    """Have this instance keep the express messages of a queue, unless another one that lives does; answers which."""
    known = _keeper_of(tx, queue)
    if known is not None and known.instance != tx.instance and _lives(tx, known):
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
        _lost(tx, key, name, f"{_who(keeper)}, which kept them, is gone")


def delete(tx: Transaction, queue: Declared, *, if_empty: bool = False, force: bool = False) -> Part:
    """Delete a queue in the store: see ``clearing.delete``, and ``refuse_kept``, which ``force`` leaves out: then what
    is kept is lost, which is on record."""
    if not force:
        refuse_kept(tx, queue)
    keeper = _keeper_of(tx, queue)
    if keeper is not None:
        came = "did not answer when the queue was deleted" if _lives(tx, keeper) else "is gone"
        _lost(tx, queue.key, queue.name, f"{_who(keeper)}, which kept them, {came}")
    return clearing.delete(tx, queue, if_empty=if_empty, force=force)


def refuse_kept(tx: Transaction, queue: Declared) -> None:
    """Raises ``KeeperGone`` where a process that lives keeps express messages of a queue."""
    keeper = _keeper_of(tx, queue)
    if keeper is not None and _lives(tx, keeper):
        raise KeeperGone(
            f"{queue.name} is not deleted: {_who(keeper)} keeps its express messages, and does not delete them.",
            "Try `node.delete` again when it answers; `force=True` deletes the queue, and loses them.",
        )


def _keeper_of(tx: Transaction, queue: Declared) -> Keeper | None:
    row = tx.execute(queues.KEEPER, {"key": queue.key}).fetchone()
    return None if row is None else Keeper(*row[1:])


def _lives(tx: Transaction, keeper: Keeper) -> bool:
    return tx.instances.lives(keeper.name) is not False


def _who(keeper: Keeper) -> str:
    return f"process {keeper.pid} (instance {keeper.name})"


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
    if count := _bury_lost(tx, key, name):
        reason = f"{reason}; {count} are among the dead letters, as the journal has them"
    tx.add_ledger("express_lost", key, reason=reason)
    tx.notices.append((FROM_LEDGER["express_lost"], {"queue": name, "reason": reason}))


LOST: Final = "express_lost"
"""Reason of a dead letter that was lost with the process that kept it."""
_UNTRIED: Final = {"deliveries": 0, "failures": 0, "cancels": 0, "last_error": None}


def record(tx: Transaction, changes: Sequence[Change]) -> None:
    """Record what comes into queues that this instance keeps, and what leaves them. Raises ``KeeperGone`` where it is
    taken for dead, and what it keeps for lost."""
    for one in changes:
        queue = named(tx, one.queue)
        keeper = None if queue is None else _keeper_of(tx, queue)
        if queue is None or keeper is None or keeper.instance != tx.instance:
            raise KeeperGone(
                f"This process was taken for dead: it keeps the express messages of {one.queue} no longer."
            )
        if one.is_new and queue.policy.journal:
            _arrived(tx, queue, one)
        if one.outcome is not None:
            _left(tx, queue, one, one.outcome)


def _arrived(tx: Transaction, queue: Declared, one: Change) -> None:
    key = {"key": one.position}
    named = one._asdict()
    columns = ("message_id", "action", "received_at", "body_size", "body")
    tx.execute(journals.ADD_MESSAGE, {"id": one.position, **{name: named[name] for name in columns}})
    facts = {name: named[name] for name in ("topic", "properties", "content_type", "receive_by", "client")}
    if any(fact is not None for fact in facts.values()):
        tx.add_header({"message": one.position, "report_to": None, **facts})
    journal = journal_of(tx, queue)
    if not journaling.record(tx, journal, one.position, one.position, one.body_size, one.priority):
        tx.execute(subscribing.DROP_HEADER, key)
        tx.execute(subscribing.DROP_MESSAGE, key)


def _left(tx: Transaction, queue: Declared, one: Change, outcome: str) -> None:
    if tx.execute(journals.IS_KEPT, {"key": one.position}).fetchone() is None:
        return  # it came before the journal, found no room there, or was taken from it
    _put_back(tx, queue.key, one.position, one.body_size, one.priority, {name: getattr(one, name) for name in _UNTRIED})
    if outcome == "delivered":
        settling.ack(tx, [Lease(one.position)])
        return
    found = standing(tx, [one.position])[one.position]
    if outcome == "purged":
        purge_one(tx, found, one.reason or outcome)
    else:
        put_aside(tx, found, one.reason or outcome)


def _bury_lost(tx: Transaction, key: int, name: str) -> int:
    """The process is gone that kept the express messages of a queue: those that its journal has, and that are not
    settled, are dead letters. Answers how many."""
    journal, after, count = tx.queue_named(f"{name}#journal"), 0, 0
    while found := tx.execute(journals.EXPRESS, {"journal": journal, "after": after, "count": PIECE}).fetchall():
        for after, position, size, priority in found:  # noqa: B007
            _put_back(tx, key, position, size, priority)
            lane = lane_of(tx, standing(tx, [position])[position])
            bury(tx, lane, position, LOOSE_NUMBER, LOST, is_told=False)  # `express.lost` tells of all of them
        count += len(found)
    return count


def recover(tx: Transaction, name: str) -> int:
    """Have the messages of a queue delivered that were lost with the process that kept them, and are in its journal:
    they are recoverable now. Answers how many."""
    key, count = tx.queue_named(name), 0
    while found := tx.execute(journals.LOST, {"queue": key, "count": PIECE}).fetchall():
        for (position,) in found:
            redrive(tx, position, actor=ACTOR, reason="recovered from the journal")
        count += len(found)
    return count


def _put_back(
    tx: Transaction,
    queue: int,
    position: int,
    size: int,
    priority: int,
    tried: Mapping[str, int | str | None] = _UNTRIED,
) -> None:
    tx.execute(journals.PUT_BACK, {"id": position, "queue": queue, "priority": priority, **tried})
    tx.add_unsettled(queue, 1, size)
