"""Why a message moves or does not, in one sentence. What its sequence or a group holds up, their verdict says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sqlalchemy import bindparam, func, or_, select

from wsrm_mq.acts import Step, others
from wsrm_mq.acts import messages as on_messages
from wsrm_mq.errors import NotFound
from wsrm_mq.store import published as views
from wsrm_mq.store.driver import file_of, instances_of
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import compiled
from wsrm_mq.views.queues import Consumed, consumed, subscriptions, told_of
from wsrm_mq.views.reading import sequence
from wsrm_mq.views.rows import MessageDetail, live_instances
from wsrm_mq.views.sentences import Explanation, explanation
from wsrm_mq.views.verdict import judge
from wsrm_mq.views.words import counted, first_line, moment, span

COUNTED: Final = 10_000
"""The most messages before one that are counted."""
NAMED_ALIKE: Final = 10
"""The most messages of one id that are explained."""


class At(NamedTuple):
    """The facts for the sentence about a message that is in no lane."""

    found: MessageDetail
    now: int
    queue: Consumed | None
    """Its queue, where programs consume it."""
    before: int
    """The number of messages that are delivered before it."""
    consumers: int
    """The number of programs that subscribe to its queue now."""
    holder_lives: bool
    is_served: bool
    """A process of the service lives."""

    @property
    def waits(self) -> str:
        retry_at = self.found.view.retry_at or self.now
        return f"until {moment(retry_at)} (in {span(retry_at - self.now)})"


_m: Final = views.messages.c
_before: Final = (
    select(_m.position)
    .where(
        *(_m.queue == bindparam("queue"), _m.outcome.is_(None), _m.priority.is_not(None), _m.state != "held"),
        or_(
            _m.priority > bindparam("priority"),
            (_m.priority == bindparam("priority")) & (_m.position < bindparam("position")),
        ),
    )
    .limit(COUNTED)
    .subquery()
)
_BEFORE: Final = compiled(select(func.count()).select_from(_before))
_NAMED: Final = compiled(
    select(_m.position).where(_m.message_id == bindparam("id")).order_by(_m.position).limit(NAMED_ALIKE)
)


def positions_of(db: Database, which: str) -> list[int]:
    """The positions that a text names: itself, ``#`` and one, or the id that a sender gave. Raises ``NotFound``."""
    number = which.removeprefix("#")
    if number.isdecimal() and len(number) < 19:
        return [int(number)]
    found = [position for (position,) in db.execute(_NAMED, {"id": which}).fetchall()]
    if not found:
        raise NotFound(f"There is no message with the id {which}: retention has deleted it, or it never came.")
    return found


def explained(db: Database, found: MessageDetail, now: int) -> Explanation:
    """Why a message that was read in the same snapshot moves or does not."""
    view, its = found.view, str(found.view.position)
    if view.state in _SETTLED:
        return _SETTLED[view.state](found, its)
    if view.sequence is not None and not (view.state == "leased" and found.holder):
        verdict = judge(db, sequence(db, view.sequence), now)
        why = explanation(verdict)
        whose = f"It is number {view.number} of the {verdict.at.noun} {view.sequence}."
        return why._replace(sentence=f"{whose} {why.sentence}")
    at = _situation(db, found, now)
    if view.state == "held":
        return Explanation(_message_held(at), (_RETRY.step("try it now", its),) if view.reason in _RETRIED else ())
    if view.state == "leased":
        return Explanation(_message_leased(at), (others.ATTEMPTS.step("what went wrong with it before", its),))
    return Explanation(_message_ready(at), _steps_of_queue(at))


def _situation(db: Database, found: MessageDetail, now: int) -> At:
    view = found.view
    before = {"queue": view.queue, "priority": found.priority, "position": view.position}
    lives = instances_of(file_of(db)).lives(found.holder) is not False if found.holder is not None else False
    return At(
        found,
        now,
        next((one for one in consumed(db) if one.queue == view.queue), None),
        db.execute(_BEFORE, before).fetchone()[0] if found.priority is not None else 0,
        sum(one.is_live and one.queue == view.queue for one in subscriptions(db)),
        lives,
        bool(live_instances(db)),
    )


_RETRY: Final = on_messages.RETRY
_HELD: Final[dict[str | None, str]] = {
    "scheduled": "Its producer wants it delivered later: it is held {waits}.",
    "backoff": "{failed}, and is tried again later: it is held {waits}.",
    "retained": "Its topic retains it, and no consumer takes it here.",
    "barrier": "It is a barrier, or was put behind one: it waits until all that was put before is settled.",
}


_RETRIED: Final = ("scheduled", "backoff")


def _message_held(at: At) -> str:
    view = at.found.view
    text = _HELD.get(view.reason, f"It is held: {view.reason}.")
    return text.format(waits=at.waits, failed=_message_failed(at.found))


def _message_failed(found: MessageDetail) -> str:
    last = first_line(found.view.last_error or "")
    return f"It failed {counted(found.view.failures, 'time')}, last with {last!r}"


def _message_leased(at: At) -> str:
    found = at.found
    if found.holder is None:
        return f"A process of the service runs it, attempt {found.view.deliveries + 1}."
    until = found.leased_until or at.now
    who = f"{found.consumer} (instance {found.holder})" if found.consumer else f"instance {found.holder}"
    if not at.holder_lives:
        return f"It was leased by {who}, whose process is gone: the next program that opens the store gives it back."
    ends = "as long as it lives" if until - at.now > _FOREVER else f"until {moment(until)}, unless it renews that"
    return f"It is leased by {who} {ends}: delivery {found.view.deliveries}."


_FOREVER: Final = 10 * 365 * 86_400_000


def _message_ready(at: At) -> str:
    if at.found.journal_of is not None:
        return f"A journal has it, which records what became of the message at position {at.found.journal_of}."
    if at.queue is None:
        runs = "is run next" if at.is_served else "no process of the service lives to run it: start the service"
        return f"It is ready, and {runs}."
    first = counted(at.before, "message is", "messages are")
    before = (
        f"{'at least ' * (at.before == COUNTED)}{first} delivered before it" if at.before else "it is delivered next"
    )
    tried = f" {_message_failed(at.found)}." if at.found.view.failures else ""
    reads = f"{counted(at.consumers, 'program subscribes', 'programs subscribe')} to {at.queue.queue}"
    who = reads if at.consumers else f"no program subscribes to {at.queue.queue} now: start its consumer"
    return f"It is ready, and {before}.{tried} In all {told_of(at.queue)}; {who}."


def _steps_of_queue(at: At) -> tuple[Step, ...]:
    if at.queue is None:
        return (others.DOCTOR.step("what is wrong with processes, clock and store"),)
    return (others.QUEUE.step("its policy, and who consumes it", at.queue.queue),)


def _message_delivered(found: MessageDetail, _its: str) -> Explanation:
    view = found.view
    took = "The application took it" if found.priority is None else "A consumer acknowledged it"
    tries = f" after {counted(view.failures, 'failure')}" if view.failures else ""
    return Explanation(f"{took} at {moment(view.settled_at or 0)}{tries}.")


def _message_dead(found: MessageDetail, its: str) -> Explanation:
    view = found.view
    error = f"; last error: {first_line(view.last_error)!r}" if view.last_error else ""
    leased = f" A consumer has leased it there (instance {found.holder})." if found.holder else ""
    return Explanation(
        f"It is a dead letter of {found.origin} since {moment(view.settled_at or 0)} ({view.reason}){error}.{leased}",
        (
            others.LETTER.step("all that is known of it", its),
            on_messages.REDRIVE.step("deliver it again, when the cause is repaired", its),
            on_messages.DISCARD_LETTER.step("give it up", its),
        ),
    )


def _discarded(found: MessageDetail, its: str) -> Explanation:
    view = found.view
    restore = (on_messages.RESTORE.step("bring it back", its),) if view.reason == "by_operator" else ()
    return Explanation(f"It was discarded at {moment(view.settled_at or 0)} ({view.reason}).", restore)


def _purged(found: MessageDetail, _its: str) -> Explanation:
    return Explanation(
        f"It was purged with others at {moment(found.view.settled_at or 0)} ({found.view.reason}).",
        (others.AUDIT.step("who did it, and why", f"queue:{found.view.queue}"),),
    )


_SETTLED: Final[dict[str, Callable[[MessageDetail, str], Explanation]]] = {
    "delivered": _message_delivered,
    "dead": _message_dead,
    "discarded": _discarded,
    "purged": _purged,
}
