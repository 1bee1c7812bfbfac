"""Acknowledgements that are sent by themselves: what is due is taken from the store, rendered as of then, and posted.

None of them is stored: one that is lost is made up for by the next, and by the source, which sends again what it does
not see acknowledged. So a failure is told, and no more. Faults go the same way: what is refused leaves no row.
"""

from __future__ import annotations

import time
from typing import Final

from wsrm_mq.delivery.letters import own_letter
from wsrm_mq.delivery.pool import Pool
from wsrm_mq.delivery.posting import Post, posted
from wsrm_mq.envelope import sequence_acknowledgement
from wsrm_mq.events.inert import as_error
from wsrm_mq.events.telling import Events
from wsrm_mq.queue.acknowledgement import DueAcknowledgement, due_elsewhere
from wsrm_mq.queue.policy import PolicyOf
from wsrm_mq.queue.sending import Letter
from wsrm_mq.remembered import Recent
from wsrm_mq.store.channels import ACKS_DUE, NEXT_ACK_DUE
from wsrm_mq.store.refusals import ACK_NOT_SENT
from wsrm_mq.store.store import Store

__all__ = ["Acknowledging"]

BATCH: Final = 200
THREADS: Final = 8
TOLD_EVERY_SECONDS: Final = 60.0
_FAILURES: Final = 256
_WAITING: Final = 1_000
"""Letters that may wait for a thread: what is over it is not taken from the store yet."""


class Acknowledging:
    """Of one process. ``look`` is a chore of its watch."""

    def __init__(self, store: Store, post: Post, policy_of: PolicyOf, events: Events) -> None:
        self._store = store
        self._post = post
        self._policy_of = policy_of
        self._events = events
        self._told_at: Recent[str, float] = Recent(_FAILURES)
        self._pool: Pool[Letter] = Pool(
            self._send, threads=1, max_threads=THREADS, events=events, of="acknowledgements"
        )

    def look(self) -> None:
        """Send what is due."""
        self._pool.look_after()
        with self._store.reader() as db:
            look = {"now": self._store.clock(), "count": 1, "foreign": self._store.foreign(db)}
            is_due = db.execute(ACKS_DUE, look).fetchone() is not None
        if is_due and self._pool.waiting < _WAITING:
            for due in self._store.call(lambda tx: due_elsewhere(tx, self._policy_of, BATCH)):
                self.say(due)

    def say(self, due: DueAcknowledgement) -> None:
        """Render and post it."""
        self.send(_rendered(due))

    def send(self, letter: Letter) -> bool:
        """Post what is not stored. Never blocks; answers whether there is room for it."""
        return self._pool.waiting < _WAITING and self._pool.give(letter)

    def next_look(self) -> int | None:
        """When the next acknowledgement is due, ms since the epoch."""
        with self._store.reader() as db:
            due_at: int | None = db.execute(NEXT_ACK_DUE, {"foreign": self._store.foreign(db)}).fetchone()[0]
        return due_at

    def stop(self) -> None:
        self._pool.stop()

    def _send(self, letter: Letter) -> None:
        url = letter.to.address
        try:
            failure = posted(self._post, url, letter.content_type, letter.action, letter.body)
        except Exception as error:  # nothing that an address may be ends a thread
            failure = f"{url}: {as_error(error)}"
        if failure is None:
            return
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


def _rendered(due: DueAcknowledgement) -> Letter:
    terms = due.terms
    body = sequence_acknowledgement(terms.soap, terms.addressing, terms.rm, [due.said], due.to)
    return own_letter(due.to, body, terms.soap)
