"""Why a message moves or does not, in one sentence. What its sequence or a group holds up, their verdict says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import bindparam, func, or_, select

from wsrm_mq.acts import messages as on_messages
from wsrm_mq.acts import others
from wsrm_mq.errors import NotFound
from wsrm_mq.store import published as views
from wsrm_mq.store.driver import file_of, instances_of
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import compiled
from wsrm_mq.views.queues import consumed, subscriptions, told_of
from wsrm_mq.views.reading import sequence
from wsrm_mq.views.rows import MessageDetail, live_instances
from wsrm_mq.views.sentences import Explanation, explanation
from wsrm_mq.views.verdict import judge
from wsrm_mq.views.words import counted, first_line, moment, span

COUNTED: Final = 10_000
"""The most messages before one that are counted."""
NAMED_ALIKE: Final = 10
"""The most messages of one id that are explained."""


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
    if view.state == "held":
        steps = (on_messages.RETRY.step("try it now", its),) if view.reason in _RETRIED else ()
        return Explanation(_message_held(found, now), steps)
    if view.state == "leased":
        step = others.ATTEMPTS.step("what went wrong with it before", its)
        return Explanation(_message_leased(db, found, now), (step,))
    return _message_ready(db, found)


_HELD: Final[dict[str | None, str]] = {
    "scheduled": "Its producer wants it delivered later: it is held {waits}.",
    "backoff": "{failed}, and is tried again later: it is held {waits}.",
    "retained": "Its topic retains it, and no consumer takes it here.",
    "barrier": "It is a barrier, or was put behind one: it waits until all that was put before is settled.",
}
_RETRIED: Final = ("scheduled", "backoff")


def _message_held(found: MessageDetail, now: int) -> str:
    view, retry_at = found.view, found.view.retry_at or now
    text = _HELD.get(view.reason, f"It is held: {view.reason}.")
    waits = f"until {moment(retry_at)} (in {span(retry_at - now)})"
    return text.format(waits=waits, failed=_message_failed(found))


def _message_failed(found: MessageDetail) -> str:
    last = first_line(found.view.last_error or "")
    return f"It failed {counted(found.view.failures, 'time')}, last with {last!r}"


def _message_leased(db: Database, found: MessageDetail, now: int) -> str:
    if found.holder is None:
        return f"A process of the service runs it, attempt {found.view.deliveries + 1}."
    until = found.leased_until or now
    who = f"{found.consumer} (instance {found.holder})" if found.consumer else f"instance {found.holder}"
    if instances_of(file_of(db)).lives(found.holder) is False:
        return f"It was leased by {who}, whose process is gone: the next program that opens the store gives it back."
    ends = "as long as it lives" if until - now > _FOREVER else f"until {moment(until)}, unless it renews that"
    return f"It is leased by {who} {ends}: delivery {found.view.deliveries}."


_FOREVER: Final = 10 * 365 * 86_400_000


def _message_ready(db: Database, found: MessageDetail) -> Explanation:
    name = found.view.queue
    queue = next((one for one in consumed(db) if one.queue == name), None)
    if queue is None:
        step = others.DOCTOR.step("what is wrong with processes, clock and store")
    else:
        step = others.QUEUE.step("its policy, and who consumes it", name)
    if found.journal_of is not None:
        recorded = f"the message at position {found.journal_of}"
        return Explanation(f"A journal has it, which records what became of {recorded}.", (step,))
    if queue is None:
        runs = "is run next" if live_instances(db) else "no process of the service lives to run it: start the service"
        return Explanation(f"It is ready, and {runs}.", (step,))
    asked = {"queue": name, "priority": found.priority, "position": found.view.position}
    (count,) = db.execute(_BEFORE, asked).fetchone()
    first = f"{'at least ' * (count == COUNTED)}{counted(count, 'message is', 'messages are')} delivered before it"
    before = first if count else "it is delivered next"
    tried = f" {_message_failed(found)}." if found.view.failures else ""
    consumers = sum(one.is_live and one.queue == name for one in subscriptions(db))
    reads = f"{counted(consumers, 'program subscribes', 'programs subscribe')} to {name}"
    who = reads if consumers else f"no program subscribes to {name} now: start its consumer"
    return Explanation(f"It is ready, and {before}.{tried} In all {told_of(queue)}; {who}.", (step,))


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
