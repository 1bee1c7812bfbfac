"""Findings that need attention, kind by kind: in words, with proposals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wsrm_mq.acts import Step, others
from wsrm_mq.acts import messages as on_messages
from wsrm_mq.acts import sequences as on_sequences
from wsrm_mq.store.applications import INTAKE, OUTGOING
from wsrm_mq.store.words import ANSWERED_WITH_FAULT
from wsrm_mq.views import outgoing
from wsrm_mq.views.overview import Fact, Room, Sight
from wsrm_mq.views.query import queue_word
from wsrm_mq.views.queues import Consumed, Lost, told_of
from wsrm_mq.views.rows import PlanView, Refusal, key_of
from wsrm_mq.views.sentences import explanation
from wsrm_mq.views.verdict import BACKLOG, Cause, Situation, Verdict
from wsrm_mq.views.words import counted, first_line, moment, size, span

# The store as a whole: whether it takes messages, who serves it, what it refused.


_DOCTOR: Final = others.DOCTOR.step("looks at processes, proxy, clock and store, and says how to mend them")
_FREE: Final = "Free space on the disk: delete other files there."
_LETTERS: Final = others.LETTERS.step("what is discarded of them may be pruned a minute later")


def make_room(sight: Sight) -> tuple[Step, ...]:
    """The steps that free some of the store, if any does."""
    room = sight.room or Room()
    if room.older_than:
        freed = f"{counted(room.messages, 'message', 'messages')} or more ({size(room.size)}), settled that long ago"
        return (others.PRUNE.step(f"deletes {freed}", older_than=room.older_than), _DOCTOR)
    return (_LETTERS, _DOCTOR) if any(sight.at.dead_letters.values()) else (_DOCTOR,)


def _nothing_to_prune(sight: Sight, remedy: str) -> str:
    """Empty where something is."""
    if sight.room is None or sight.room.older_than:
        return ""
    archived = ", or is in no archive yet" if sight.archive_within is not None else ""
    kept = f"what is there is undelivered, a dead letter, or was settled just now{archived}"
    return f" Nothing may be pruned: {kept}. {remedy}"


# the store


def locked(sight: Sight) -> list[Fact]:
    what = sight.obstacle.what if sight.obstacle is not None else ""
    return [Fact(f"No message is taken: {what}.", (_DOCTOR,))]


def over_max_store(sight: Sight) -> list[Fact]:
    used = f"{size(sight.at.used_bytes)} of {size(sight.max_store or 0)}"
    text = f"max_store is reached ({used}): only what fills a gap is taken."
    return [Fact(text + _nothing_to_prune(sight, "Raise max_store, and start the service anew."), make_room(sight))]


def doubt(sight: Sight) -> list[Fact]:
    return [Fact(f"Not served: the store {sight.doubt}", (others.ADOPT.step("what that loses", dry_run=True),))]


def reserve_spent(sight: Sight) -> list[Fact]:
    free = size(sight.at.disk_free)
    text = f"The disk is full: no message is taken until there is room ({free} free)."
    return [Fact(text + _nothing_to_prune(sight, _FREE), make_room(sight))]


def disk_free(sight: Sight) -> list[Fact]:
    if sight.at.is_reserve_spent:  # which is told
        return []
    text = f"The disk of the store is nearly full: {size(sight.at.disk_free)} free."
    return [Fact(text + _nothing_to_prune(sight, _FREE), make_room(sight))]


def instances(sight: Sight) -> list[Fact]:
    left = sum(one.ready for queue, one in sight.at.waiting.items() if not queue.startswith(OUTGOING))
    waits = f"; {counted(left, 'message waits', 'messages wait')} for it" if left else ""
    start = "" if sight.doubt else ": start the service"
    return [Fact(f"No process of the service lives{waits}{start}.", () if sight.doubt else (_DOCTOR,), left)]


def dead_instances(sight: Sight) -> list[Fact]:
    died = counted(sight.at.dead_instances, "process has", "processes have")
    return [Fact(f"{died} died, and no live one has noticed.", (_DOCTOR,), sight.at.dead_instances)]


def unserved(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"Messages of {one.queue} wait for {one.application or 'an application without a name'}, which no process "
            "serves: start it.",
            (
                others.RENAME.step("it is the same one, under a new name", one.application or "none"),
                _DOCTOR,
            ),
            queue=one.queue,
        )
        for one in sight.at.unserved
    ]


# refusals

_REFUSED: Final = {
    "max_store": ("max_store is reached", None),
    "disk_full": ("the disk is full", None),
    "store_locked": ("another program had the store locked", _DOCTOR),
    "store_unavailable": ("the store could not be used", _DOCTOR),
    "overloaded": ("more came than can be written", _DOCTOR),
    "max_held": (
        "max_held messages wait behind a gap",
        others.SEQUENCES.step("whose gap it is", verdict="waiting"),
    ),
    "window": (
        "the first missing number is further away than window",
        others.SEQUENCES.step("whose gap it is", verdict="waiting"),
    ),
    "max_sequences": ("max_sequences are open", others.SEQUENCES.step("which are open", state="created")),
    "max_per_connection": (
        "a connection has max_per_connection messages undelivered",
        others.CONNECTIONS.step("which one it is"),
    ),
    "misconfigured": ("a hook of the middleware is at fault; its log says which (request.misconfigured)", _DOCTOR),
}
"""The meaning of each reason, and what to do; ``None``: make room."""


def _refusals(refused: list[Refusal], sight: Sight) -> list[Fact]:
    told = []
    for one in refused:
        why, step = _REFUSED.get(one.reason, (f"there was no room ({one.reason})", _DOCTOR))
        whose = f" of {one.partner}" if one.partner else ""
        text = (
            f"Messages{whose} were refused, the last {span(sight.now - one.last_at)} ago: {why} "
            f"({counted(one.times, 'time', 'times')} in all)."
        )
        told.append(Fact(text, make_room(sight) if step is None else (step,), one.times, one.last_at))
    return told


_LASTS: Final[dict[str, Callable[[Sight], bool | None]]] = {
    "store_locked": lambda sight: sight.is_locked if sight.obstacle is None or sight.is_locked else None,
    "disk_full": lambda sight: sight.at.is_reserve_spent,
    "max_store": lambda sight: sight.is_over if sight.max_store is not None else None,
}
"""Whether a reason lasts that has a finding of its own while it does; ``None``: that is not known here."""


def _lasts(one: Refusal, sight: Sight) -> bool | None:
    """Whether a refusal goes on; ``None``: that is not known. Of most reasons a message that was taken since tells that
    they are over."""
    if one.reason in _LASTS:
        found = _LASTS[one.reason](sight)
        return None if found is False and one.reason in sight.at.unwritten else found
    return False if sight.at.newest_at > one.last_at else None


def nothing_taken(sight: Sight) -> list[Fact]:
    return _refusals([one for one in sight.at.takes_nothing(sight.now) if _lasts(one, sight) is None], sight)


def recovered(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"It is well now. The last message that was refused, as {_REFUSED[one.reason][0]}, came at "
            f"{moment(one.last_at)} ({span(sight.now - one.last_at)} ago; {counted(one.times, 'time')} in all).",
            (_DOCTOR,),
            one.times,
            one.last_at,
        )
        for one in sight.at.takes_nothing(sight.now)
        if _lasts(one, sight) is False
    ]


def refused(sight: Sight) -> list[Fact]:
    all_ = sight.at.takes_nothing(sight.now)
    return _refusals([one for one in sight.at.refused_lately(sight.now) if one not in all_], sight)


def turned_away(sight: Sight) -> list[Fact]:
    """Partners that are named."""
    return _turned_away([one for one in sight.at.turned_away(sight.now) if one.partner], sight)


def strangers_turned_away(sight: Sight) -> list[Fact]:
    """The peers that fit no section of the configuration: any client may be one."""
    return _turned_away([one for one in sight.at.turned_away(sight.now) if not one.partner], sight)


def _turned_away(refused: list[Refusal], sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"{one.partner or 'A source that fits no partner'} gets no sequence, and so sends nothing: refused "
            f"{counted(one.times, 'time')}, the last {span(sight.now - one.last_at)} ago. {one.said}".rstrip(),
            (others.FAILURE.step("why, and which option would allow it", key_of(one)),),
            one.times,
            one.last_at,
        )
        for one in refused
    ]


def not_sent(sight: Sight) -> list[Fact]:
    return [
        Fact(
            f"Acknowledgements or faults that are sent to addresses of sources were not taken there, the last "
            f"{span(sight.now - one.last_at)} ago ({counted(one.times, 'time', 'times')} in all): their sources send "
            "their messages again. The log names the addresses (acknowledgement.not_sent).",
            (others.SEQUENCES.step("which sources are there", state="created"),),
            one.times,
            one.last_at,
        )
        for one in sight.at.not_sent_lately(sight.now)
    ]


def unsent(sight: Sight) -> list[Fact]:
    since = sight.at.unsent
    if since is None or not sight.at.instances:
        return []
    text = (
        f"Acknowledgements or replies have waited for {span(sight.now - since)} to be sent, and no process takes them "
        "up: the option decoupled allows no addresses where the service is started, or endpoints hang."
    )
    return [Fact(text, (_DOCTOR,), since=since)]


# Sequences, replays and messages.


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
            outgoing.told_of_requests(one, sight.now, is_sent=(is_sent := outgoing.is_sent(one, sight.at.servings))),
            outgoing.steps_for_requests(one, is_sent=is_sent),
            one.waiting,
            one.since,
        )
        for one in sight.at.requests
        if outgoing.is_stuck(one, sight.now)
    ]


def next_nodes(sight: Sight) -> list[Fact]:
    """Next nodes that are away, those that nothing sends to, and those that were put back from a copy."""
    is_sent = sight.at.is_forwarding
    return [
        Fact(
            outgoing.told_of_node(one, sight.now, is_sent=is_sent),
            outgoing.steps_for_node(one),
            one.waiting,
            one.away_since,
        )
        for one in sight.at.next_nodes
        if outgoing.needs_attention(one, sight.now, is_sent=is_sent)
    ]


def unplaced(sight: Sight) -> list[Fact]:
    since = sight.at.unplaced
    if since is None or sight.now - since < outgoing.NODE_STUCK_FOR:
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


def stopped_plans(sight: Sight) -> list[PlanView]:
    return [one for one in sight.plans if one.state == "stopped"]


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
        for one in stopped_plans(sight)
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
