"""Queues that are declared: made, looked up, and deleted."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from wsrm_mq.errors import ConfigurationError, NotAllowed, QueueBusy, UnknownQueue
from wsrm_mq.queue.policies import DEFAULT, QueuePolicy, changed, decoded, encoded
from wsrm_mq.queue.promoting import refuse_unusable
from wsrm_mq.store import queues
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import Transaction

SYSTEM: Final = ("dead_letter", "journal", "report")
"""Kinds of queues that are consumed without having been declared."""


class Declared(NamedTuple):
    """A queue that is consumed."""

    key: int
    name: str
    kind: str
    parent: int | None
    application: str | None
    stored_policy: str | None

    @property
    def policy(self) -> QueuePolicy:
        return DEFAULT if self.stored_policy is None else decoded(self.stored_policy)

    @property
    def is_declared(self) -> bool:
        """It counts what is not settled in it."""
        return self.stored_policy is not None

    @property
    def is_consumed(self) -> bool:
        """Else an application is called with what is there, or it is delivered elsewhere."""
        return self.is_declared or self.kind in SYSTEM


def declare(tx: Transaction, name: str, options: dict[str, Any] | None = None, kind: str = "app") -> Declared:
    """Make a queue, or change the policy of one: options that are not named stay. Raises ``ConfigurationError`` for
    what is no option, and ``NotAllowed`` for a queue that an application is called from."""
    check_name(name)
    row = tx.queue_row(name)
    if row is None:
        tx.queue(name, kind)
        row = tx.queue_row(name)
        assert row is not None
    elif not Declared(*row).is_consumed:
        raise NotAllowed(
            f"{name} is the queue of a wrapped service, which is called with what arrives: its options are the "
            "service's. Choose another name."
        )
    found = Declared(*row)
    wanted = changed(found.policy, options or {})
    refuse_unusable(wanted.properties)
    policy = encoded(wanted)
    if policy == found.stored_policy:
        return found
    tx.set_policy(name, found.key, policy)
    return found._replace(stored_policy=policy)


def declared(tx: Transaction, name: str) -> Declared:
    """The queue of this name, which is consumed. Raises ``UnknownQueue`` where there is none, and ``NotAllowed`` where
    an application is called with what is in it."""
    return _checked(name, tx.queue_row(name))


def _checked(name: str, row: tuple[Any, ...] | None) -> Declared:
    if row is None:
        raise UnknownQueue(f"There is no queue {name}. Declare it: `node.declare({name!r})`.")
    found = Declared(*row)
    if not found.is_consumed:
        raise NotAllowed(
            f"The application of {name} is called with what arrives there: no consumer can lease it, and nothing can "
            "be put there."
        )
    return found


def found(tx: Transaction, name: str, *, auto_create: bool) -> Declared:
    """``declared``; ``auto_create``: a queue that is not there is declared."""
    if auto_create and tx.queue_row(name) is None:
        return declare(tx, name)
    return declared(tx, name)


def read(db: Database, name: str) -> Declared:
    """``declared``, as it is committed: to be looked at."""
    return _checked(name, db.execute(queues.QUEUE_ROW, {"name": name}).fetchone())


def dead_letters(tx: Transaction, name: str) -> str:
    """The name of the queue that has the dead letters of the queue ``name``."""
    key = tx.queue_named(name)
    if key is None:
        raise UnknownQueue(f"There is no queue {name}. Declare it: `node.declare({name!r})`.")
    letters, _application = tx.execute(queues.QUEUE, {"key": tx.dead_letters(key)}).fetchone()
    return str(letters)


def check_name(name: str) -> None:
    """Raises ``ConfigurationError`` for what is no name of a queue."""
    if (
        not name
        or len(name) > 200
        or name != name.strip()
        or name.endswith("/")
        or "#" in name
        or not name.isprintable()
    ):
        raise ConfigurationError(
            f"{name!r} is no name of a queue: that has 1 to 200 printable characters, no # in it, and no slash or "
            "blank at its end."
        )


def take_for(tx: Transaction, queue: Declared, consumer: str) -> None:
    """Where one consumer alone may read the queue, that is ``consumer`` of this instance from now on. Raises
    ``QueueBusy`` while there is another one."""
    if queue.policy.access != "exclusive":
        return
    owner, holder, instance, pid = tx.execute(queues.HOLDER, {"key": queue.key}).fetchone()
    if (owner, holder) == (tx.instance, consumer):
        return
    if instance is not None and (owner == tx.instance or tx.instances.lives(instance) is not False):
        raise QueueBusy(
            f"{queue.name} is read by {holder} (process {pid}), and its access is exclusive: one consumer reads it. "
            "Close that one first."
        )
    tx.execute(queues.HOLD_QUEUE, {"key": queue.key, "owner": tx.instance, "holder": consumer})


def let_go(tx: Transaction, queue: Declared, consumer: str) -> None:
    """``consumer`` reads the queue no longer: another one may, where one alone does."""
    owner, holder, _instance, _pid = tx.execute(queues.HOLDER, {"key": queue.key}).fetchone()
    if (owner, holder) == (tx.instance, consumer):
        tx.execute(queues.HOLD_QUEUE, {"key": queue.key, "owner": None, "holder": None})
