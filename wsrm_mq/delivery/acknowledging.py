"""Acknowledgements that are sent by themselves: those that are due are taken from the store, rendered as of then, and
posted.

No acknowledgement is stored: a lost one is made up for by the next, and by the source, which sends again the messages
that it does not see acknowledged. A failure is told, and no more. Faults go the same way, since a refused request
leaves no row.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final, NamedTuple

from wsrm_mq.delivery.hanging import SENDING, Patient
from wsrm_mq.delivery.hearing import Hearing
from wsrm_mq.delivery.outgoing_messages import own_message
from wsrm_mq.delivery.pool import Pool
from wsrm_mq.delivery.posted import Posted, posted
from wsrm_mq.envelope.render import sequence_acknowledgement
from wsrm_mq.events.inert import as_error
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.acknowledgement import DueAcknowledgement, due_elsewhere
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.queue.sending import OutgoingMessage
from wsrm_mq.remembered import Recent
from wsrm_mq.shares import Shares
from wsrm_mq.store.channels import ACKS_DUE, NEXT_ACK_DUE, Channel
from wsrm_mq.store.counting import ACK_NOT_SENT
from wsrm_mq.store.store import Store

BATCH: Final = 200
TOLD_EVERY_SECONDS: Final = 60.0
WAITS_SECONDS: Final = 30.0
"""Seconds that a message that is not stored waits for a host that is left alone."""
_FAILURES: Final = 256
_WAITING: Final = 1_000
"""Messages that may be on their way, or wait for that."""


class _Unstored(NamedTuple):
    """A message that leaves once, or never."""

    message: OutgoingMessage
    who: str | None
    about: int | None
    """The key of the inbound sequence; ``None``: it is about none that is known here."""
    made_at: float
    not_before: float = 0.0
    """Until then its host is left alone; monotonic, as is the time above."""


class Acknowledging:
    """Sends acknowledgements and faults for one process. ``look`` is a chore of its watch."""

    def __init__(self, store: Store, post: Patient, hearing: Hearing, policy_of: PolicyOf, events: Events) -> None:
        self._store = store
        self._post = post
        self._hearing = hearing
        self._policy_of = policy_of
        self._events = events
        self._told_at: Recent[str, float] = Recent(_FAILURES)
        self._put_off: deque[_Unstored] = deque()
        self._room = Shares(_WAITING)
        self._lock = threading.Lock()
        """This lock guards only the room."""
        self._pool: Pool[_Unstored] = Pool(
            self._send, threads=1, max_threads=SENDING, events=events, of="acknowledgements"
        )

    def look(self) -> None:
        """Send the acknowledgements that are due."""
        self._pool.look_after()
        for _ in range(len(self._put_off)):
            one = self._put_off.popleft()
            if time.monotonic() < one.not_before or not self._pool.give(one):
                self._put_off.append(one)
        with self._store.reader() as db:
            look = {"now": self._store.clock(), "count": 1, "foreign": self._store.foreign(db)}
            is_due = db.execute(ACKS_DUE, look).fetchone() is not None
        if is_due:
            for due in self._store.call(lambda tx: due_elsewhere(tx, self._policy_of, BATCH)):
                self.say(due)

    def say(self, due: DueAcknowledgement) -> None:
        """Render and post it."""
        self.send(_rendered(due), due.who, due.about)

    def send(self, message: OutgoingMessage, who: str | None, about: int | None = None) -> bool:
        """Post a message that is not stored, because of ``who``, about the inbound sequence with the key ``about``.
        Never blocks; answers whether there is room for it."""
        with self._lock:
            if not self._room.has_one(who):
                return False
            self._room.lend(who)
        one = _Unstored(message, who, about, time.monotonic())
        left_alone = self._post.left_alone(message.to.address, who)
        if left_alone is not None:
            return self._put(one, left_alone.seconds)
        return self._pool.give(one)

    def _put(self, one: _Unstored, seconds: float) -> bool:
        self._put_off.append(one._replace(not_before=time.monotonic() + seconds))
        return True

    def next_look(self) -> int | None:
        """When the next acknowledgement is due, ms since the epoch."""
        with self._store.reader() as db:
            due_at: int | None = db.execute(NEXT_ACK_DUE, {"foreign": self._store.foreign(db)}).fetchone()[0]
        return due_at

    def stop(self) -> None:
        self._pool.stop()

    def _send(self, one: _Unstored) -> None:
        message = one.message
        url = message.to.address
        try:
            answer = posted(self._post.for_sender(one.who), url, message.content_type, message.action, message.body)
            if answer.left_alone is not None and time.monotonic() < one.made_at + WAITS_SECONDS:
                self._put(one, answer.left_alone)
                return
            if one.about is not None:
                heard = self._hearing.heard(Channel(message.to, one.about), answer)
                if heard is not None:
                    self._store.call(heard.verb, keep=True, size=heard.size, committed=heard.committed)
        except Exception as error:  # nothing that an address may be, or answers, ends a thread
            answer = Posted(f"{url}: {as_error(error)}")
        with self._lock:
            self._room.take_back(one.who)
        if answer.failure is not None:
            self._tell(answer.failure)

    def _tell(self, failure: str) -> None:
        self._store.refusals.note(ACK_NOT_SENT, None, self._store.clock())
        if self._is_news(failure):
            self._events.tell("acknowledgement.not_sent", error=failure)

    def _is_news(self, failure: str) -> bool:
        """Each failure is told once a minute: an endpoint that is away would fill the log."""
        now, told_at = time.monotonic(), self._told_at.get(failure)
        if told_at is not None and now < told_at + TOLD_EVERY_SECONDS:
            return False
        self._told_at.keep(failure, now)
        return True


def _rendered(due: DueAcknowledgement) -> OutgoingMessage:
    terms = due.terms
    body = sequence_acknowledgement(terms.soap, terms.addressing, terms.rm, [due.said], due.to)
    return own_message(due.to, body, terms.soap)
