"""Findings on sequences, replays, queues and messages, kind by kind: in words, with proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wsrm_mq.acts import Step, others
from wsrm_mq.acts import messages as on_messages
from wsrm_mq.acts import sequences as on_sequences
from wsrm_mq.store.applications import INTAKE
from wsrm_mq.store.words import ANSWERED_WITH_FAULT
from wsrm_mq.views import next_nodes as nodes
from wsrm_mq.views import requests as sending
from wsrm_mq.views.overview import Fact, Sight
from wsrm_mq.views.query import queue_word
from wsrm_mq.views.queues import Consumed, Lost, told_of
from wsrm_mq.views.sentences import explanation
from wsrm_mq.views.situation import BACKLOG, Situation
from wsrm_mq.views.verdict import Cause, Verdict
from wsrm_mq.views.words import counted, first_line, moment, span

WAITING_FOR: Final = 300_000
"""A gap of less, in ms, needs no attention: its source sends again."""
NAMED: Final = 3
"""The most partners or queues that a finding names."""
RUNNING_FOR: Final = 300_000
"""An operation that has run for less, in ms, needs no attention."""
GROWS_FOR: Final = 60_000
"""A queue whose next message has waited for less, in ms, needs no attention."""
ABSENT_FOR: Final = 300_000
"""A durable subscription for which a message has waited for less, in ms, needs no attention."""

# requests


def requests(sight: Sight) -> list[Fact]:
    """Destinations whose requests have waited for long."""
    return [
        Fact(
            sending.told_of_requests(one, sight.now, is_sent=(is_sent := sending.is_sent(one, sight.at.servings))),
            sending.steps_for_requests(one, is_sent=is_sent),
            one.waiting,
            one.since,
        )
        for one in sight.at.requests
        if sending.is_stuck(one, sight.now)
    ]


def next_nodes(sight: Sight) -> list[Fact]:
    """Next nodes that are away, those that nothing sends to, and those that were put back from a copy."""
    is_sent = sight.at.is_forwarding
    return [
        Fact(
            nodes.told_of_node(one, sight.now, is_sent=is_sent),
            nodes.steps_for_node(one),
            one.waiting,
            one.away_since,
        )
        for one in sight.at.next_nodes
        if nodes.needs_attention(one, sight.now, is_sent=is_sent)
    ]


def unplaced(sight: Sight) -> list[Fact]:
    since = sight.at.unplaced
    if since is None or sight.now - since < nodes.NODE_STUCK_FOR:
        return []
    why = "" if sight.at.is_forwarding else ", and no process places it: start `wsrm-mq queue-server`"
    text = f"What another node has handed over waits for its place for {span(sight.now - since)}{why}."
    return [Fact(text, (others.QUEUES.step("which queues are full"),), since=since, queue=INTAKE)]


# sequences


def _of_sequences(found: list[Verdict]) -> list[Fact]:
    facts = []
    for one in found:
        why, view = explanation(one), one.at.view
        since = (
            one.at.held_since or view.on_hold_since or (one.at.head.received_at if one.at.head is not None else None)
        )
        facts.append(Fact(why.sentence, why.steps, max(1, view.held), since, view, one.word, target=one.at.target))
    return facts


def _judged(sight: Sight, word: str) -> list[Verdict]:
    return [one for one in sight.verdicts.found if one.word == word]


_RUNS_AGAIN: Final = (Cause.ORPHANED, Cause.TAKEN_OVER, Cause.STOPPED, Cause.RETRYING, Cause.RUNNING)


def _is_deadly(one: Verdict) -> bool:
    return one.cause in _RUNS_AGAIN and one.at.is_deadly


def deadly(sight: Sight) -> list[Fact]:
    return _of_sequences([one for one in sight.verdicts.found if _is_deadly(one)])


def blocked(sight: Sight) -> list[Fact]:
    """Blocked sequences; those that one cause has stopped are one finding."""
    causes: dict[str, list[Verdict]] = {}
    for one in _judged(sight, "blocked"):
        if one.cause is Cause.BLOCKED:
            causes.setdefault(_cause_of(one.at), []).append(one)
    facts = [
        _of_one_cause(cause, found) if len(found) > 1 else _of_sequences(found)[0] for cause, found in causes.items()
    ]
    return sorted(facts, key=lambda fact: -fact.messages if fact.view is None else 0)


def _cause_of(at: Situation) -> str:
    return at.exception or first_line((at.head.last_error if at.head is not None else None) or "")


def _of_one_cause(cause: str, found: list[Verdict]) -> Fact:
    at = found[0].at
    which = ("verdict:blocked", *([f"exception:{at.exception}"] if at.exception is not None else []))
    error = first_line((at.head.last_error if at.head is not None else None) or cause)
    partners = sorted({one.at.view.partner or one.at.view.principal or one.at.view.peer or "?" for one in found})
    queues = sorted({one.at.view.queue for one in found})
    return Fact(
        f"{len(found)} {at.noun}s are stopped by the same cause, of {_few(partners)} in {_few(queues)}: {error!r}.",
        (
            on_sequences.RESUME.step("try them all again, when the cause is repaired", *which),
            others.SEQUENCES.step("which they are", *which),
        ),
        len(found) + sum(one.at.view.held for one in found),
        min(one.at.head.received_at for one in found if one.at.head is not None),
        verdict="blocked",
        queue=queues[0] if len(queues) == 1 else None,
    )


def _few(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (" and more" if len(names) > NAMED else "")


def _which(word: str, holds: Callable[[Verdict], bool] = lambda _one: True) -> Callable[[Sight], list[Fact]]:
    """The finding of the sequences that have this verdict, and of which something ``holds``."""
    return lambda sight: _of_sequences([one for one in _judged(sight, word) if holds(one)])


def _runs_long(one: Verdict) -> bool:
    since = one.at.view.running_since
    return since is not None and one.at.now - since >= RUNNING_FOR and not _is_deadly(one)


def _is_old(one: Verdict) -> bool:
    return one.at.now - (one.at.held_since or one.at.now) >= WAITING_FOR


retrying: Final = _which("blocked", lambda one: one.cause is Cause.RETRYING and not _is_deadly(one))
running: Final = _which("running", _runs_long)
waiting: Final = _which("waiting", _is_old)
gaps: Final = _which("waiting", lambda one: not _is_old(one))
"""Sequences with a gap that is so new that its source may fill it at any moment."""
silent: Final = _which("silent", lambda one: one.at.view.held > 0 or bool(one.at.missing))
expiring: Final = _which("expiring", lambda one: one.at.view.held > 0)
on_hold: Final = _which("held")


def backlog(sight: Sight) -> list[Fact]:
    """Work that is under way, and will be for a while."""
    found = [one for one in sight.verdicts.found if one.cause is Cause.RUNNING and one.at.ready >= BACKLOG]
    shown = {fact.view for fact in (*running(sight), *deadly(sight))}
    return [
        fact._replace(messages=one.at.ready)
        for one in found
        if one.at.view not in shown
        for fact in _of_sequences([one])
    ]


def incomplete(sight: Sight) -> list[Fact]:
    """Sequences with numbers that never came and are not waited for any more, and those with discarded messages. One
    that was ended because its store was adopted is told of by its dead letters, while it has some."""
    found = [one for one in (*_judged(sight, "incomplete"), *sight.verdicts.lost) if one.at.lost or _is_discarded(one)]
    return _of_sequences(
        [one for one in found if one.at.view.discard_reason != "store_adopted" or not one.at.undelivered.letters]
    )


def _is_discarded(one: Verdict) -> bool:
    """Dead letters are told by themselves."""
    undelivered = one.at.undelivered
    return one.word == "incomplete" and undelivered.open.count() > undelivered.letters


def unacknowledged(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"The source of {one.answers} acknowledges no reply: {one.unacknowledged} of {one.sent} wait for it since "
            f"{moment(one.waiting_since or 0)}, and it goes on. Their requests are answered all the same.",
            (
                others.EXPLAIN.step("who sends it, and what it has acknowledged", one.answers),
                others.EXPLAIN.step("what to write to the partner", one.answers, for_partner=True),
            ),
            one.unacknowledged,
            one.waiting_since,
            queue=one.queue,
        )
        for one in sight.at.unacknowledged
    ]


# archives


def unarchived(sight: Sight) -> list[Fact]:
    text = (
        f"Nothing has been archived for {span(sight.overdue + (sight.archive_within or 0))}: what was settled since is "
        "kept beyond its retain."
    )
    steps = (
        others.ARCHIVES.step("which archives were confirmed, and when"),
        others.ARCHIVED.step("an archive that was made elsewhere holds it"),
    )
    return [Fact(text, steps, since=sight.at.unarchived)]


# replays


def replays(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"The replay by plan {one.id[:8]} has stopped at line {one.line} of {one.messages}.",
            (
                *([] if sight.doubt else [others.RUN_PLAN.step("go on where it was", one.file)]),
                others.CANCEL_PLAN.step("give up what is left of it", one.id),
            ),
            one.messages - one.line,
            one.begun_at,
        )
        for one in sight.plans
        if one.state == "stopped"
    ]


# messages


def faulted(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"{counted(count, 'message', 'messages')} of {queue}, taken in the last 24 h, the service answered with a "
            "fault, which the sender does not see.",
            (
                others.FAILURE.step(
                    "what the service said and where, and how to have them delivered again",
                    *(named, f"event:{ANSWERED_WITH_FAULT}", "confirmed:no"),
                ),
                others.FAILURES.step("what went wrong, in groups", named),
                on_messages.CONFIRM.step(
                    "they are dealt with, and alarm no more", named, f"reason:{ANSWERED_WITH_FAULT}"
                ),
            ),
            count,
            queue=queue,
        )
        for queue, count in sight.at.faulted.items()
        if (named := queue_word(queue))
    ]


def dead_letters(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"{counted(count, 'dead letter', 'dead letters')} of {queue} that no operator has confirmed.",
            (
                others.LETTERS.step("which ones", named, "confirmed:no"),
                on_messages.REDRIVE.step("deliver them again", named, "confirmed:no"),
                on_messages.CONFIRM_LETTER.step("keep them, without alarm", named, "confirmed:no"),
            ),
            count,
            queue=queue,
        )
        for queue, count in sight.at.dead_letters_unconfirmed.items()
        if count and (named := queue_word(queue))
    ]


def unconsumed(sight: Sight) -> list[Fact]:
    one = max(sight.at.consumed, key=lambda one: one.waited(sight.now), default=None)
    if one is None:
        return []
    asked = "" if one.went else " Does a program consume it?"
    text = f"The next message of {one.queue} is {span(one.waited(sight.now))} old: {told_of(one)}.{asked}"
    return [Fact(text, _of_queue(one), one.messages, one.next_at, queue=one.queue)]


def growing(sight: Sight) -> list[Fact]:
    """Queues that get more than is consumed. What came all at once may be gone in a minute."""
    return [
        Fact(f"{one.queue} grows: {told_of(one)}.", _of_queue(one), one.messages, one.next_at, queue=one.queue)
        for one in sight.at.consumed
        if one.grows and one.waited(sight.now) >= GROWS_FOR
    ]


def _of_queue(one: Consumed) -> tuple[Step, ...]:
    return (others.QUEUE.step("who consumes it, its policy, and what it has", one.queue), others.QUEUES.step("all"))


def absent(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"Nothing consumes the durable subscription {one.queue} since {moment(one.seen_at)}: {told_of(queue)}. "
            f"Start its client {one.client} again, or drop the subscription if that does not come back.",
            (
                others.SUBSCRIPTION.step("its client, its pattern and what waits for it", one.queue),
                others.DROP.step("it collects nothing more, and what it has is given up", one.queue),
            ),
            queue.messages,
            one.seen_at,
            queue=one.queue,
        )
        for one, queue in sight.at.absent
        if queue.waited(sight.now) >= ABSENT_FOR
    ]


def full(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"{one.queue} is full, and {'records' if one.is_kept else 'takes'} no message: {told_of(one)}.",
            (
                others.QUEUE.step("its max_messages and max_bytes, and who consumes it", one.queue),
                others.DECLARE.step("make room for more", one.queue, "max_messages=null", "max_bytes=null"),
            ),
            one.messages,
            one.next_at,
            queue=one.queue,
        )
        for one in sight.at.consumed
        if one.is_full
    ]


def unkept(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"No process keeps the express messages of {one.queue}: what is put there is refused, or waits. Start the "
            "program that declares it as express.",
            (
                others.QUEUE.step("who consumes it, its policy, and what it has", one.queue),
                others.DECLARE.step("what is put there goes into the store", one.queue, "durability=relaxed"),
            ),
            queue=one.queue,
        )
        for one in sight.at.unkept
    ]


def half_deleted(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"{one.queue} is deleted, and the process that gave up what it had has ended: "
            f"{counted(one.messages, 'message is', 'messages are')} left.",
            (others.DELETE.step("give up the rest", one.queue),),
            one.messages,
            queue=one.queue,
        )
        for one in sight.at.half_deleted
    ]


def lost_leases(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"{_whose(one)} {one.times} times in an hour, last {span(sight.now - one.last_at)} ago: {one.why}.",
            (
                *([] if one.position is None else [others.MESSAGE_WHY.step("what is known of it", str(one.position))]),
                others.QUEUE.step("how long its lease is, and who consumes it", one.queue),
            ),
            since=one.last_at,
            queue=one.queue,
        )
        for one in sight.at.lost_leases
    ]


def _whose(one: Lost) -> str:
    if one.position is not None:
        return f"The message at position {one.position} of {one.queue} was leased in vain"
    return f"One consumer of {one.queue} lost its leases"


def oldest(sight: Sight) -> list[Fact]:
    since = sight.at.oldest or sight.now
    return [
        Fact(
            f"The oldest undelivered message is {span(sight.now - since)} old, of {moment(since)}.",
            (others.MESSAGES.step("the oldest ones", outcome="live", limit=5),),
            since=since,
        )
    ]
