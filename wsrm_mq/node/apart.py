"""The dead letters and the journal of a queue, as a program has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from wsrm_mq.errors import NotFound
from wsrm_mq.node.checks import check_positions
from wsrm_mq.node.message import Message
from wsrm_mq.node.payload import stored
from wsrm_mq.queue import clearing, dead_letters, declaring
from wsrm_mq.queue.adding import Put
from wsrm_mq.queue.clearing import Cleared, Part
from wsrm_mq.queue.journaling import Recorded, recorded
from wsrm_mq.store.transaction import Transaction

if TYPE_CHECKING:
    from wsrm_mq.node.consuming import Received
    from wsrm_mq.node.node import Place


class DeadLetters:
    """The dead letters of a queue. They lie in a queue of their own, ``name``, which is received from and looked into
    as any other. ``actor``: who has them redriven or discarded, as the ledger tells it."""

    def __init__(self, node: Place, queue: str, actor: str = clearing.ACTOR) -> None:
        self._node = node
        self._actor = actor
        self._queue = queue
        self._places = [place for place, _names in node.places([queue])]
        for place in self._places:
            self.name = place.call(lambda tx: declaring.dead_letters(tx, queue), drains=True)

    def peek(self, *, after: int = 0, limit: int = 50) -> list[Message]:
        """See ``Node.peek``."""
        return self._node.peek(self.name, after=after, limit=limit)

    def receive(self, max: int = 1, **options: Any) -> Received:
        """See ``Node.receive``."""
        return self._node.receive(self.name, max, **options)

    def redrive(self, positions: Sequence[int] | None = None, *, to: str | None = None, reset: bool = True) -> int:
        """Put dead letters back into the queue that they came from, or another, as if they had never been tried; all of
        them where no ``positions`` are given. Answers how many. ``reset=False``: their failures and cancels count
        on."""
        self._check(positions)

        def part(after: int, tx: Transaction) -> Part:
            return clearing.redrive_letters(tx, self.name, positions, to, after=after, reset=reset, actor=self._actor)

        return self._each(part)

    def edit_and_redrive(self, position: int, /, body: object = None, *, to: str | None = None, **options: Any) -> int:
        """Put a message in the place of a dead letter: with another ``body``, or with other ``options`` of ``put``; all
        that is not named is as it was. Answers its position. Raises ``NotFound``, and ``NotAllowed`` for what a partner
        has sent."""
        self._check([position])
        letter = self._node.get(self.name, position)
        if letter is None:
            raise NotFound(f"There is no dead letter at position {position} in {self.name}.")
        one = edited(letter, body, options, now=self._node.store.clock(), client=self._node.name)
        who = {"actor": self._actor, "reason": clearing.REDRIVEN}
        for place in self._places:
            with suppress(NotFound):
                return place.call(lambda tx: dead_letters.edit_and_redrive(tx, position, one, to=to, **who), wakes=True)
        raise NotFound(f"There is no dead letter at position {position} in {self.name}.")

    def discard(self, positions: Sequence[int] | None = None) -> int:
        """Give dead letters up; all of them where no ``positions`` are given. Answers how many."""
        self._check(positions)

        def part(after: int, tx: Transaction) -> Part:
            return clearing.discard_letters(tx, self.name, positions, after=after, actor=self._actor)

        return self._each(part)

    def _each(self, part: Callable[[int, Transaction], Part]) -> int:
        """Do an act on dead letters in parts, between which others write. Answers on how many."""
        done = (clearing.in_parts(partial(place.call, wakes=True), partial(part, 0), part) for place in self._places)
        return clearing.together(done).settled

    def _check(self, positions: object) -> None:
        self._node.refuse_in_transaction("What is redriven or discarded")
        if positions is not None:
            check_positions(positions)


def edited(letter: Message, body: object, options: dict[str, Any], *, now: int, client: str | None) -> Put:
    """The message in the place of a dead letter: ``options`` are those of ``put``, and all that is not named is as it
    was; ``body`` too where it is ``None``. Raises ``ConfigurationError``."""
    names = ("type", "properties", "priority", *(("content_type",) if body is None else ()))
    as_it_was = {name: getattr(letter, name) for name in names}
    if not letter.message_id.startswith("#"):
        as_it_was["message_id"] = letter.message_id
    return stored(letter.body if body is None else body, as_it_was | options, now=now, client=client)


class Record(NamedTuple):
    """An entry of a journal. ``message`` is the message as the journal has it, to be settled there where it was
    received; ``of`` the entry that is recorded, with the outcome as it is now."""

    message: Message
    of: Recorded


class Journal:
    """The journal of a queue, or of the node. It lies in a queue of its own, ``name``, which is received from,
    filtered, purged and looked into as any other; its filters know ``outcome`` and ``outcome_reason`` of what it
    records."""

    def __init__(self, node: Place, queue: str | None) -> None:
        self._node = node
        if queue is not None:
            declaring.check_text(queue)
        self.name = declaring.NODE_JOURNAL if queue is None else f"{queue}#journal"
        if queue is None:
            node.call(lambda tx: declaring.journal_named(tx, self.name, None))
        with node.reader() as db:
            declaring.read(db, self.name)

    def peek(self, *, after: int = 0, limit: int = 50, filter: str | None = None) -> list[Record]:
        """See ``Node.peek``."""
        return self._records(self._node.peek(self.name, after=after, limit=limit, filter=filter))

    def receive(self, max: int = 1, **options: Any) -> list[Record]:
        """See ``Node.receive``. A message whose outcome is not known yet is received too: the filter ``outcome is not
        null`` leaves it out."""
        return self._records(self._node.receive(self.name, max, **options))

    def purge(self, lower: int = 0, upper: int | None = None) -> Cleared:
        """See ``Node.purge``."""
        return self._node.purge(self.name, lower, upper)

    def _records(self, messages: Sequence[Message]) -> list[Record]:
        with self._node.reader() as db:
            found = recorded(db, [one.position for one in messages])
        return [Record(one, found[one.position]) for one in messages]
