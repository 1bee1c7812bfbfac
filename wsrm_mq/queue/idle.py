"""The check that a lane does not run while an operator changes it."""

from __future__ import annotations

from wsrm_mq.errors import NotAllowed
from wsrm_mq.queue.broken_run import take_from_dead
from wsrm_mq.store import consuming, queues
from wsrm_mq.store.loose import LooseEntry
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction, as_json


def make_idle(tx: Transaction, lane: Lane) -> bool:
    """See that no live process runs the sequence; answers whether it was taken from one that died. That needs no other
    process: a lock that is free proves the death, and nothing that the dead one might still write would fit."""
    if lane.owner is None:
        return False
    identifier = lane.identifier
    lives = owner_lives(tx, lane.owner)
    if lives:
        raise NotAllowed(f"{identifier} is being run; wait until it stops, then try again.")
    if lives is None:
        raise NotAllowed(
            f"{identifier} was being run by a process whose lock file is missing, and so not known to be dead. Start "
            "the service if no process lives: it finds out within seconds. Then try again."
        )
    take_from_dead(tx, lane)
    if isinstance(lane, LooseEntry):
        tx.execute(consuming.GIVE_BACK, {"keys": as_json([lane.position])})
    else:
        tx.execute(consuming.FREE_LANE, {"key": lane.id})
    return True


def owner_lives(tx: Transaction, owner: int) -> bool | None:
    """Whether the instance with this key does; ``None``: it is not known."""
    found = tx.execute(queues.INSTANCE, {"key": owner}).fetchone()
    if found is None:  # it was taken for dead long ago
        return False
    name, _pid, _host, has_ended = found
    lives = tx.instances.lives(name)
    return False if lives is None and has_ended else lives
