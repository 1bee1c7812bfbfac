"""Fetches by WS-MakeConnection what a destination has for this side and cannot send.

Most of it comes on the responses to requests all the same. So a destination is asked only while a request that has left
waits for its acknowledgement or reply: at once again after each message that it gives, ever less often while it gives
none (MC-015, MC-016).
"""

from __future__ import annotations

import hashlib
import random
import time
import uuid
from typing import Final, NamedTuple

from wsrm_mq.delivery.arriving import Arriving
from wsrm_mq.delivery.hanging import SENDING, Patient
from wsrm_mq.delivery.outgoing_messages import own_message
from wsrm_mq.delivery.pool import Pool
from wsrm_mq.delivery.posted import Posted, posted
from wsrm_mq.envelope.render import make_connection, reply_headers, sequence_acknowledgement
from wsrm_mq.envelope.rewrite import piggyback
from wsrm_mq.errors import NotAnswered, StoreError
from wsrm_mq.events.telling import Events
from wsrm_mq.remembered import Recent
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.store import outbound as outbounds
from wsrm_mq.store.lasting import Repeated
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.store import Store
from wsrm_mq.versions import MAKE_CONNECTION

FIRST: Final = 1_000
MOST: Final = 30_000
"""Milliseconds that a destination is left after something has changed, and after it has given nothing many times."""
_AT_ONCE: Final = 100
"""The most messages that are fetched one after the other before the next look."""
_LOST: Final = 10
"""The most of them that are asked for again at once, as the line broke."""
_ADDRESSES: Final = 4_096


def address_of(store: str, to: str) -> str:
    """The address for what the destination ``to`` has for the store of this id: one that no other destination is told,
    and none that does not know the id can guess (MC-014)."""
    known = hashlib.sha256(f"{store} {to}".encode()).digest()
    return f"{MAKE_CONNECTION.anonymous}{uuid.UUID(bytes=known[:16], version=4)}"


class _Turn(NamedTuple):
    """The next time that something is asked for, ms since the epoch; ``None``: it is being asked for."""

    at: int | None
    pause: int
    progress: tuple[object, ...]
    """The state that it was asked in."""


class Polls:
    """Asks destinations for one process. ``look`` is a chore of its watch."""

    def __init__(self, store: Store, post: Patient, arriving: Arriving, events: Events) -> None:
        self._store = store
        self._post = post
        self._arriving = arriving
        self._events = events
        self._turns: Recent[str, _Turn] = Recent(_ADDRESSES)
        self._trouble = Repeated()
        self._pool: Pool[list[OutboundRecord]] = Pool(
            self._fetch, threads=1, max_threads=SENDING, events=events, of="polls"
        )

    def look(self) -> None:
        """Ask for what is expected, where it is time to."""
        self._pool.look_after()
        with self._store.reader() as db:
            keys = db.execute(outbounds.EXPECTING).fetchall()
            expecting = [outbounds.read(db, key) for (key,) in keys]
        of_address: dict[str, list[OutboundRecord]] = {}
        for one in expecting:
            of_address.setdefault(one.principal or "", []).append(one)
        now = self._store.clock()
        for address, about in of_address.items():
            turn, progress = self._turns.get(address), tuple((one.id, one.value, one.replied) for one in about)
            if turn is None or turn.progress != progress:
                turn = _Turn(None if turn is not None and turn.at is None else now + FIRST, FIRST, progress)
                self._turns.keep(address, turn)
            if turn.at is not None and now >= turn.at:
                self._turns.keep(address, turn._replace(at=None))
                self._pool.give(about)

    def stop(self) -> None:
        self._pool.stop()

    def _fetch(self, about: list[OutboundRecord]) -> None:
        """Fetch what there is, about sequences to one destination."""
        address = about[0].principal or ""
        count, lost = 0, 0
        before = self._turns.get(address)
        try:
            if before is not None and before.pause > FIRST:  # it may lack the last acknowledgement
                self._acknowledge(about)
            while count < _AT_ONCE and lost < _LOST and not self._pool.is_stopping:
                come = self._fetched(about, address)
                if come is None:
                    break
                if come.left_alone is None:
                    count += 1
                elif come.left_alone < FIRST / 1000:
                    time.sleep(come.left_alone)
                    lost += 1
                else:
                    break
        except StoreError as error:
            self._trouble.tell(self._events, "watch.store_error", error)
        finally:
            turn = self._turns.get(address)
            assert turn is not None
            pause = FIRST if count else min(MOST, 2 * turn.pause)
            at = self._store.clock() + round(pause * random.uniform(0.8, 1.2))
            self._turns.keep(address, turn._replace(at=at, pause=pause))

    def _fetched(self, about: list[OutboundRecord], address: str) -> Posted | None:
        """Ask for a message, and take it. ``None``: there was none."""
        terms, to = about[-1].value.terms, about[-1].endpoint
        assert to is not None
        body = make_connection(terms.soap, terms.addressing, terms.rm, to, address)
        message = own_message(to, body, terms.soap)
        said = reply_headers(terms.soap, terms.rm, None, self._acknowledgements(about))
        content = piggyback(body, message.content_type, said) if said else body
        post = self._post.for_sender(about[-1].sender)
        come = posted(post, to.address, message.content_type, message.action, content)
        if _is_refused(come, message.message_id):
            self._trouble.tell(self._events, "source.not_fetched", NotAnswered(come.failure or ""))
            return None
        if come.headers is not None:
            self._arriving.take(address, come, come.headers)
            if come.headers.ack_requested:
                self._acknowledge(about)
            self._trouble.over()
        return come if come.headers is not None or come.left_alone is not None else None

    def _acknowledge(self, about: list[OutboundRecord]) -> None:
        """Acknowledge the replies that have come, in a request of its own: Metro reads no acknowledgement in a
        MakeConnection, and keeps the next reply back until it has it."""
        terms, to = about[-1].value.terms, about[-1].endpoint
        acks = self._acknowledgements(about)
        if to is None or not acks:
            return
        body = sequence_acknowledgement(terms.soap, terms.addressing, terms.rm, acks, to)
        message = own_message(to, body, terms.soap)
        posted(self._post.for_sender(about[-1].sender), to.address, message.content_type, message.action, body)

    def _acknowledgements(self, about: list[OutboundRecord]) -> list[SequenceAcknowledgement]:
        """The acknowledgements of the replies that have come."""
        with self._store.reader() as db:
            return [ack for one in about for ack in outbounds.read(db, one.id).reply_acknowledgements]


def _is_refused(come: Posted, message_id: str) -> bool:
    """Whether the destination answers that it has nothing to do with such a request. A message that is fetched relates
    to another one, if to any (MC-007)."""
    if come.failure is None or come.status is None:
        return False
    return come.headers is None or come.relates_to == message_id or (come.said is None and come.relates_to is None)
