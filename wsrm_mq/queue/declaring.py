"""Queues that are declared: made, looked up, and deleted."""

from __future__ import annotations

import json
from typing import Any, Final

from wsrm_mq import queue as verbs
from wsrm_mq.errors import ConfigurationError, NotAllowed, QueueBusy, UnknownQueue
from wsrm_mq.queue.policies import DEFAULT, JOURNAL, OF_JOURNAL, QueuePolicy, changed, decoded, encoded
from wsrm_mq.store import queues
from wsrm_mq.store.applications import INTAKE, OWN
from wsrm_mq.store.port import Database
from wsrm_mq.store.transaction import Transaction

JOURNAL_KIND: Final = "journal"
NODE_JOURNAL: Final = "#journal"
"""The name of the node's own journal: it has what was put with ``journal="source"``, from its leaving on."""
SYSTEM: Final = ("dead_letter", JOURNAL_KIND)
"""Kinds of queues that are consumed without having been declared."""
LOG: Final = "topic"
"""The kind of a queue that retains what is published to topics: nothing in it is delivered."""


_MODES: Final = (
    'That is its mode "dispatch". The service\'s option mode = "pull" leaves one-way messages to consumers; '
    'mode = "copy" publishes what the application has taken.'
)


class Declared(queues.QueueRow):
    """A queue that is consumed."""

    __slots__ = ()

    @property
    def policy(self) -> QueuePolicy:
        return DEFAULT if self.stored_policy is None else decoded(self.stored_policy)

    @property
    def is_deleted(self) -> bool:
        """Its name is not its own any more; what it has is given up."""
        return self.name.endswith(f"#{self.key}")

    @property
    def is_consumed(self) -> bool:
        """Else an application is called with what is there, or it is delivered elsewhere."""
        return self.kind in SYSTEM or (self.is_declared and self.mode != "dispatch")


def named(tx: Transaction, name: str) -> Declared | None:
    """The queue of this name; ``None``: there is none."""
    row = tx.queue_row(name)
    return None if row is None else Declared(*row)


def known(tx: Transaction, name: str) -> Declared:
    """The queue of this name, which is there."""
    found = named(tx, name)
    assert found is not None
    return found


def declare(
    tx: Transaction, name: str, options: dict[str, Any] | None = None, kind: str = "app", *, actor: str | None = None
) -> Declared:
    """Make a queue, or change the policy of one: options that are not named stay. ``actor``: who does, for the ledger;
    ``None``: a program, or the store. Raises ``ConfigurationError`` for what is no option, and ``NotAllowed`` for a
    queue that an application is called from."""
    check_text(name)
    if name == NODE_JOURNAL:
        journal_named(tx, name, None)
    found = named(tx, name)
    if found is None or found.kind != JOURNAL_KIND:
        check_name(name)
    if found is None:
        tx.queue(name, kind)
        found = known(tx, name)
    elif not found.is_consumed:
        raise NotAllowed(
            f"{name} is the queue of a wrapped service, which is called with what arrives: its options are the "
            f"service's. Choose another name. {_MODES}"
        )
    if found.kind == JOURNAL_KIND and (others := sorted(set(options or ()) - OF_JOURNAL)):
        raise ConfigurationError(f"A journal has no option `{others[0]}`; it has {', '.join(sorted(OF_JOURNAL))}.")
    wanted = changed(found.policy, options or {})
    verbs.refuse_unusable(wanted.properties)
    if wanted.barrier is not None:
        verbs.parse(wanted.barrier)
    policy = encoded(wanted)
    if policy != found.stored_policy:
        tx.set_policy(name, found.key, policy)
        found = found._replace(stored_policy=policy)
        if actor is not None:
            said = json.dumps(options or {}, default=str)
            tx.add_ledger("queue_declared", found.key, actor=actor, reason=said)
    if wanted.journal:
        journal_of(tx, found)
    return found


def journal_of(tx: Transaction, queue: Declared) -> Declared:
    """The journal of a queue, which is made where there is none. It outlives the queue, and goes on with the next one
    of that name."""
    return journal_named(tx, f"{queue.name}#journal", queue.key)


def journal_named(tx: Transaction, name: str, parent: int | None) -> Declared:
    """The journal of this name, of the queue with the key ``parent``; ``None``: of the node."""
    journal = named(tx, name)
    if journal is None:
        tx.set_policy(name, tx.queue(name, JOURNAL_KIND, parent), encoded(JOURNAL))
        journal = known(tx, name)
    if journal.parent != parent:
        tx.execute(queues.SET_PARENT, {"key": journal.key, "parent": parent})
        tx.forget_queue_name(name)
    return journal


def declared(tx: Transaction, name: str) -> Declared:
    """The queue of this name, which programs put into and consume. Raises ``UnknownQueue`` where there is none, and
    ``NotAllowed`` where what is in it is not theirs."""
    check_text(name)
    if name == INTAKE:
        raise NotAllowed(f"What is in {INTAKE} was handed over by other nodes, and goes to its queue from there.")
    return _checked(name, tx.queue_row(name))


def _checked(name: str, row: tuple[Any, ...] | None) -> Declared:
    if row is None:
        raise unknown(name)
    found = Declared(*row)
    if not found.is_consumed:
        raise NotAllowed(
            f"The application of {name} is called with what arrives there: no consumer can lease it, and nothing can "
            f"be put there. {_MODES}"
        )
    return found


def unknown(name: str) -> UnknownQueue:
    queue = name.removesuffix("#journal")
    if queue != name:
        return UnknownQueue(f"{queue} has no journal. Give it one: `node.declare({queue!r}, journal=True)`.")
    return UnknownQueue(f"There is no queue {name}. Declare it: `node.declare({name!r})`.")


def found(tx: Transaction, name: str, *, auto_create: bool) -> Declared:
    """``declared``; ``auto_create``: a queue that is not there is declared, unless this node has routes: then the name
    may be one of theirs, or spelled wrongly."""
    check_text(name)
    if auto_create and tx.queue_row(name) is None and tx.execute(queues.HAS_ROUTE).fetchone() is None:
        return declare(tx, name)
    return declared(tx, name)


def refuse_system(queue: Declared) -> None:
    """Raises ``NotAllowed`` for a queue that no program may put into."""
    if queue.kind in SYSTEM:
        raise NotAllowed(f"{queue.name} has what was in another queue, and nothing else: put into that one.")


def read(db: Database, name: str) -> Declared:
    """``declared``, as it is committed: to be looked at."""
    check_text(name)
    return _checked(name, db.execute(queues.QUEUE_ROW, {"name": name}).fetchone())


def policy_of(tx: Transaction, queue: int) -> QueuePolicy:
    """The policy of the queue with this key, as its consumers know it."""
    (policy,) = tx.execute(queues.POLICY, {"key": queue}).fetchone()
    return DEFAULT if policy is None else decoded(policy)


def dead_letters(tx: Transaction, name: str) -> str:
    """The name of the queue that has the dead letters of the queue ``name``."""
    check_text(name)
    key = tx.queue_named(name)
    if key is None:
        raise unknown(name)
    return tx.queue_name(tx.dead_letters(key))


def letters_named(queue: str) -> str:
    """The name of the queue that has the dead letters of another one, which may be deleted: then it ends with ``#`` and
    its key."""
    name, _mark, key = queue.rpartition("#")
    return f"{name}#dead#{key}" if name and key.isdigit() else f"{queue}#dead"


def is_name(name: str) -> bool:
    """Whether programs and services may call a queue so."""
    return (
        0 < len(name) <= 200
        and name == name.strip()
        and (name == "/" or not name.endswith("/"))
        and "#" not in name
        and name.isprintable()
        and not name.startswith(OWN)
    )


def check_name(name: str) -> None:
    """Raises ``ConfigurationError`` for what is no name of a queue."""
    check_text(name)
    if not is_name(name):
        raise _no_name(name)


def check_text(name: object) -> None:
    """Raises ``ConfigurationError`` for what no queue can be looked for by."""
    try:
        is_text = isinstance(name, str) and bool(name.encode())
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise _no_name(name)


def _no_name(name: object) -> ConfigurationError:
    return ConfigurationError(
        f"{name!r} is no name of a queue: that is a text of 1 to 200 printable characters, no # in it, no slash or "
        f"blank at its end, and none of {', '.join(OWN)} at its beginning."
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
