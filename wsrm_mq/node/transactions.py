"""The verbs that a program wants done together: each is collected, and done in one transaction of the store, or not at
all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from wsrm_mq.errors import NotAllowed, TransactionAlreadyStarted, TransactionNotStarted
from wsrm_mq.store.transaction import Transaction as Unit

if TYPE_CHECKING:
    from wsrm_mq.node.opened import Opened


class Begun:
    """Acts of one thread that are committed together. ``positions``: once it is committed, those of the messages that
    were put, in their order."""

    def __init__(self, node: Transacting[Any]) -> None:
        self._node = node
        self.committed: list[Callable[[], object]] = []
        """Called when it is committed."""
        self.positions: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._node.commit()
        else:
            self._node.rollback()


B = TypeVar("B", bound=Begun)


class Transacting(ABC, Generic[B]):
    """The part of a node that begins and ends transactions."""

    def __init__(self, kind: Callable[[Transacting[B]], B]) -> None:
        self._kind = kind
        self._own: ContextVar[B | None] = ContextVar("transaction", default=None)
        """The transaction of a thread, or of a task of asyncio."""

    @abstractmethod
    def commit(self) -> list[int]:
        """Do what the transaction has collected; answers the positions of what was put in it."""

    def transaction(self) -> B:
        """Begin a transaction of this thread, for a ``with`` statement: what is put and settled in it is done together
        at its end, or not at all where that raises. Raises ``TransactionAlreadyStarted``."""
        return self.begin()

    def begin(self) -> B:
        """Begin a transaction, which ``commit`` or ``rollback`` ends."""
        if self._open_one is not None:
            raise TransactionAlreadyStarted("This thread has begun a transaction. End it: `commit()` or `rollback()`.")
        begun = self._kind(self)
        self._own.set(begun)
        return begun

    def rollback(self) -> None:
        """Forget what the transaction has collected."""
        self._ended()

    @property
    def in_transaction(self) -> bool:
        """Whether this thread has begun a transaction."""
        return self._open_one is not None

    def refuse_in_transaction(self, what: str) -> None:
        """Raises ``NotAllowed`` in a transaction, for what is no part of one."""
        if self.in_transaction:
            raise NotAllowed(f"{what} is so at once, and no part of a transaction. Do it before, or behind its end.")

    def at_commit(self, told: Callable[[], object]) -> None:
        """Have ``told`` called when the transaction of this thread is committed."""
        open_one = self._open_one
        assert open_one is not None
        open_one.committed.append(told)

    @property
    def _open_one(self) -> B | None:
        return self._own.get()

    def _ended(self) -> B:
        done = self._open_one
        if done is None:
            raise TransactionNotStarted("This thread has begun no transaction. Begin one: `begin()`.")
        self._own.set(None)
        return done


class Transaction(Begun):
    """A transaction of a node over a store: each act is a verb."""

    def __init__(self, node: Transacting[Any]) -> None:
        super().__init__(node)
        self.home: Opened | None = None
        """The node in whose store it is committed: that of its first act."""
        self.verbs: list[Callable[[Unit], Any]] = []
        self.size = 0

    def add(self, home: Opened, verb: Callable[[Unit], Any], size: int = 0) -> None:
        """Have ``verb`` done at its end, in the store of ``home``. Raises ``NotAllowed`` where it has an act in another
        store: no commit is one of both."""
        if self.home not in (None, home):
            raise NotAllowed(
                "A transaction is of express messages, or of those in the store, as one of both would not be done or "
                "undone as a whole. Use one for each, or leave out `durability`."
            )
        self.home = home
        self.verbs.append(verb)
        self.size += size

    def put(self, home: Opened, verb: Callable[[Unit], list[int]], count: int, size: int) -> None:
        """Have so many messages put at its end by ``verb``, which answers their positions. See ``add``."""
        at = len(self.positions)

        def later(tx: Unit) -> None:
            self.positions[at : at + count] = verb(tx)

        self.add(home, later, size)
        self.positions += [0] * count

    def __call__(self, tx: Unit) -> list[Any]:
        """The verb of all of it."""
        return [verb(tx) for verb in self.verbs]
