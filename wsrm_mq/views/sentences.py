"""Why a sequence or a message moves or does not, in one sentence, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, func, or_, select

from wsrm_mq.acts import Command, Step, others
from wsrm_mq.acts import messages as on_messages
from wsrm_mq.acts import sequences as on_sequences
from wsrm_mq.errors import NotFound
from wsrm_mq.sequence.elements import IncompleteSequenceBehavior
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import published as views
from wsrm_mq.store.applications import OUTGOING
from wsrm_mq.store.driver import file_of, instances_of
from wsrm_mq.store.port import Database
from wsrm_mq.store.sql import compiled
from wsrm_mq.store.tables import ANSWERED_WITH_FAULT
from wsrm_mq.views.query import Query, asked_for
from wsrm_mq.views.queues import Consumed, consumed, subscriptions, told_of
from wsrm_mq.views.reading import judged, sequence
from wsrm_mq.views.rows import MessageDetail, SequenceView, live_instances
from wsrm_mq.views.verdict import WORDS, Act, Cause, Head, Situation, Verdict, judge
from wsrm_mq.views.words import counted, first_line, moment, operation_of, span

# Proposals to an operator about a sequence, by the cause of its verdict. The first is the one to begin with; the others
# are choices.


Words = Callable[[Situation], tuple[str, ...]]
Arguments = Callable[[Situation], dict[str, Any]]


def _identifier(at: Situation) -> tuple[str, ...]:
    return (at.view.identifier,)


def _position(at: Situation) -> tuple[str, ...]:
    return () if at.head is None else (str(at.head.position),)


def _of_it(*words: str) -> Words:
    """The words of a query for what is of the sequence, and more of them."""
    return lambda at: (f"seq:{at.view.identifier}", *words)


class _Choice(NamedTuple):
    """A proposal about any sequence that it ``applies`` to."""

    command: Command
    effect: str
    applies: Callable[[Situation], bool] = lambda _at: True
    which: Words = _identifier
    arguments: Arguments = lambda _at: {}


def _has_head(at: Situation) -> bool:
    return at.head is not None


def _holds(at: Situation) -> bool:
    return at.view.held > 0


def _has_letters(at: Situation) -> bool:
    return at.undelivered.letters > 0


def _may_be_forced(at: Situation) -> bool:
    return bool(at.missing) and _holds(at) and at.view.behavior == IncompleteSequenceBehavior.NO_DISCARD.value


# what to do

_RESUME_IT: Final = _Choice(
    on_sequences.RESUME,
    "try it again, when its cause is repaired",
    lambda at: at.head is not None and at.head.failures > 0,
)
_TRY: Final = _RESUME_IT._replace(
    effect="try it now, without waiting", applies=lambda at: at.head is not None and not at.head.failures
)
_PLAN: Final = _Choice(
    others.PLAN,
    "the plan that it is of: `replay run` with its file tries it again",
    lambda at: at.view.queue.startswith(OUTGOING),
    lambda at: (str(at.view.plan),),
)
_REPLAYED: Final = _Choice(
    others.PLAN,
    "the plan that replays what it had not delivered: it goes on when that has ended",
    lambda at: at.replayed_by is not None,
    lambda at: (str(at.replayed_by),),
)
_SHOW: Final = _Choice(others.MESSAGE, "the message, and the whole error", _has_head, _position)
_SKIP: Final = _Choice(
    on_sequences.SKIP,
    "give this message up: it goes to the dead letters",
    _has_head,
    arguments=lambda at: {} if at.head is None else {"number": at.head.number},
)
_VERIFY: Final = _Choice(others.VERIFY, "check the store", lambda at: at.head is None, lambda _at: ())
_AGAIN: Final = _Choice(others.EXPLAIN, "look again")
_ASK_DOCTOR: Final = _Choice(others.DOCTOR, "what is wrong with processes, clock and store", which=lambda _at: ())
_QUEUE: Final = _Choice(
    others.QUEUE, "who consumes it, and its policy", lambda at: at.view.consumed, lambda at: (at.view.queue,)
)
_TO_PARTNER: Final = _Choice(
    others.EXPLAIN,
    "write what to send to the partner",
    lambda at: bool(at.missing),
    arguments=lambda _at: {"for_partner": True},
)
_LOST_THERE: Final = _TO_PARTNER._replace(
    effect="write to the partner what never came", applies=lambda at: bool(at.lost)
)
_LIVE: Final = _Choice(
    others.MESSAGES,
    "what waits",
    _holds,
    lambda _at: (),
    lambda at: {"sequence": at.view.identifier, "outcome": "live"},
)
_FORCE: Final = _Choice(
    on_sequences.FORCE,
    "deliver what is held, past the gap",
    _may_be_forced,
    arguments=lambda at: {"past": next(first for first, _last in at.missing)},
)
_CLOCK: Final = _ASK_DOCTOR._replace(
    effect="which clock is right: by a wrong one it ends", applies=lambda at: at.is_doubted
)
_HOLD: Final = _Choice(on_sequences.HOLD, "keep what waits, beyond the end", _holds)
_END_IT: Final = _Choice(
    on_sequences.TERMINATE,
    "end it, as its behavior says; its source is told by its next message",
    lambda at: at.view.state != "ended",
    arguments=lambda _at: {"drain": True},
)
_DEADLY: Final = (
    _SKIP._replace(applies=lambda at: at.is_deadly and not at.owner_lives),
    _Choice(on_sequences.HOLD, "nothing of it runs until it is resumed", lambda at: at.is_deadly and at.is_run_again),
    _SHOW._replace(applies=lambda at: at.is_deadly),
)
"""Before anything else."""
_UNDELIVERED: Final = (
    _Choice(others.LETTERS, "its dead letters", lambda at: _has_letters(at) or at.view.discarding, _of_it()),
    _Choice(
        others.MESSAGES,
        "what was not delivered, and why",
        lambda at: at.undelivered.open.count() > at.undelivered.letters,
        _of_it("outcome:discarded"),
    ),
    _Choice(on_messages.REDRIVE, "deliver them again", _has_letters, _of_it("confirmed:no")),
    _Choice(on_messages.CONFIRM_LETTER, "they are dealt with, and alarm no more", _has_letters, _of_it("confirmed:no")),
    _LOST_THERE,
)
"""Whatever else is to be done about it."""

_CHOICES: Final[dict[Cause, tuple[_Choice, ...]]] = {
    Cause.ON_HOLD: (_REPLAYED, _Choice(on_sequences.RESUME, "let it go on")),
    Cause.TO_FETCH: (_LIVE._replace(applies=lambda _at: True),),
    Cause.BLOCKED: (_PLAN, _RESUME_IT, _TRY, _SHOW, _SKIP, _VERIFY),
    Cause.RUNNING: (_SHOW._replace(effect="the message that runs"), _AGAIN),
    Cause.TAKEN_OVER: (_AGAIN, _QUEUE),
    Cause.ORPHANED: (_ASK_DOCTOR._replace(applies=lambda at: not at.view.consumed), _QUEUE),
    Cause.UNSERVED: (
        _ASK_DOCTOR,
        _Choice(
            others.RENAME,
            "the application has a new name",
            which=lambda at: ((at.unserved.application if at.unserved is not None else None) or "none",),
        ),
    ),
    Cause.RETRYING: (_PLAN, _RESUME_IT, _TRY, _SHOW, _SKIP),
    Cause.READY: (_PLAN, _QUEUE),
    Cause.SENT: (),
    Cause.STOPPED: (_ASK_DOCTOR,),
    Cause.FAULTED: (
        _Choice(
            others.FAILURE,
            "what the service said and where, and how to have them delivered again",
            which=_of_it(f"event:{ANSWERED_WITH_FAULT}", "confirmed:no"),
        ),
        _Choice(
            others.MESSAGES,
            "which messages",
            which=lambda _at: (),
            arguments=lambda at: {"sequence": at.view.identifier, "reason": ANSWERED_WITH_FAULT},
        ),
        _Choice(
            on_messages.CONFIRM,
            "they are dealt with, and alarm no more",
            which=_of_it(f"reason:{ANSWERED_WITH_FAULT}"),
        ),
    ),
    Cause.ENDED: (),
    Cause.EXPIRING: (_CLOCK, _TO_PARTNER, _LIVE, _FORCE, _HOLD),
    Cause.SILENT: (_TO_PARTNER, _LIVE, _FORCE, _END_IT),
    Cause.WAITING: (_TO_PARTNER, _LIVE, _FORCE, _END_IT),
    Cause.SETTLED: (),
}


def steps(cause: Cause, at: Situation) -> tuple[Step, ...]:
    """Propose what may be done about a sequence that is so for this cause; nothing where there is nothing to do."""
    found: list[Step] = []
    for choice in (*_DEADLY, *_CHOICES[cause], *_UNDELIVERED):
        if choice.applies(at):
            step = choice.command.step(choice.effect, *choice.which(at), **choice.arguments(at))
            if not any(step._replace(effect=other.effect) == other for other in found):
                found.append(step)
    return tuple(found)


# The sentences.


SHOWN_GAPS: Final = 5
"""The most ranges of missing numbers that a sentence names."""


QUIET: Final = 300_000
"""A sentence says that nothing has come from a source once that has lasted for so long, in ms."""


class Explanation(NamedTuple):
    sentence: str
    steps: tuple[Step, ...] = ()
    """The steps to take, the first one first; empty where there is nothing to do."""


def explanation(verdict: Verdict) -> Explanation:
    at = verdict.at
    words = _OF_GROUP if at.view.consumed else _SENTENCES if at.view.sends_to is None else _OF_OUTGOING
    more = (_draining(at), _deadly(at), _forced(at), _lost(verdict))
    return Explanation("".join((words[verdict.cause](at), *more)), steps(verdict.cause, at))


def _on_hold(at: Situation) -> str:
    since = at.view.on_hold_since or at.now
    waiting = counted(at.unsettled, "message waits", "messages wait")
    by, why = (at.hold.actor, at.hold.reason) if at.hold is not None else (None, None)
    because = f": {first_line(why).rstrip('.')}" if why else ""
    held = f"{by or 'An operator'} holds it since {moment(since)} ({span(at.now - since)}){because}"
    if at.replayed_by is not None:
        return f"{held}. {waiting} until the plan has ended, or the {at.noun} is resumed."
    return f"{held}. {waiting}, and nothing is delivered until it is resumed."


def _blocked(at: Situation) -> str:
    if at.head is None:
        return "It is blocked by a message that is no longer there."
    return f"Number {at.head.number} stopped the {at.noun}: {_failed(at.head)}{_behind(at)}."


def _running(at: Situation) -> str:
    owner, head, since = at.owner, at.head, at.view.running_since
    where = f"in instance {owner.name} (process {owner.pid} on {owner.host})" if owner is not None else ""
    if head is None or since is None:
        return f"It is being run {where}."
    operation = f" ({operation_of(head.action)})" if head.action else ""
    return (
        f"Number {head.number}{operation} has been running since {moment(since)} ({span(at.now - since)}), "
        f"attempt {head.deliveries + 1}, {where}."
    )


def _dead(at: Situation) -> str:
    owner, ran = at.owner, f"number {at.head.number}" if at.head is not None else "it"
    process = f"process {owner.pid} on {owner.host}, instance {owner.name}" if owner else "a process without a name"
    return f"The process that ran {ran} died ({process})"


def _taken_over(at: Situation) -> str:
    return f"{_dead(at)}; another one takes it over within seconds."


def _orphaned(at: Situation) -> str:
    goes_on = " start the service, it goes on by itself." if not at.is_deadly else " the next one that starts runs it."
    return f"{_dead(at)} and no other lives:{goes_on}"


def _deadly(at: Situation) -> str:
    """The warning about a message that processes die with; empty where it needs none."""
    if at.head is None or not at.is_deadly:
        return ""
    died = f" Each of the last {at.deaths} processes that ran number {at.head.number} died while it ran: it may be what"
    if not at.is_run_again:
        return f"{died} kills them. Skip it before the {at.noun} is resumed, which runs it again."
    return (
        f"{died} kills them. Skip it, or hold the {at.noun}, before the next one runs it; no process has to live for "
        "that."
    )


def _unserved(at: Situation) -> str:
    name = at.unserved.application if at.unserved is not None else None
    application = f"the application {name}" if name else "an application without a name"
    return f"What {at.view.queue} has is for {application}, which no process that lives serves on this path: start it."


def _draining(at: Situation) -> str:
    """How long what is deliverable takes, where that is much and it is under way."""
    if at.pace is None:
        return ""
    takes = span(int(at.ready / at.pace * 1000))
    return f" {at.ready} messages are ready; {at.pace:.3g} a second are delivered, which takes {takes}."


def _retrying(at: Situation) -> str:
    number, failed = _failing(at)
    return f"Number {number} stops the {at.noun} for now: {failed}, and is tried again at {_next_try(at)}."


def _ready(at: Situation) -> str:
    runs = f"is delivered by the run of plan {at.view.plan}" if at.view.queue.startswith(OUTGOING) else "is run next"
    return f"Number {at.view.cursor} is ready and {runs}{_begun(at.head)}."


def _sent(at: Situation) -> str:
    number, times = (at.head.number, at.head.deliveries) if at.head is not None else (at.view.cursor, 0)
    return (
        f"Number {number} was sent to {at.view.sends_to} ({counted(times, 'time', 'times')}) and is not acknowledged; "
        f"it is sent again at {_next_try(at)}."
    )


def _not_taken(at: Situation) -> str:
    number, failed = _failing(at)
    if at.head is not None and not at.head.failures:
        why = first_line(at.head.last_error or "it was not tried yet")
        return f"Number {number} waits to be sent to {at.view.sends_to}: {why!r}. It is tried at {_next_try(at)}."
    return f"Number {number} cannot be sent to {at.view.sends_to}: {failed}, and is tried again at {_next_try(at)}."


def _sent_next(at: Situation) -> str:
    return f"Number {at.view.cursor} is ready and is sent next to {at.view.sends_to}."


def _all_sent(at: Situation) -> str:
    view = at.view
    left = "" if view.discard_from is None else f"; {_given_up(view)}"
    about = f"It has what {view.sends_to} is sent about {view.answers}"
    return f"{about}: {counted(view.received.count(), 'message', 'messages')}, and nothing is left to send{left}."


def _stopped(at: Situation) -> str:
    return f"Number {at.view.cursor} is ready, but no process of the service lives to run it: start the service."


def _faulted(at: Situation) -> str:
    view, faults = at.view, at.faults
    if faults is None:
        return _settled(at)
    return (
        f"Of {view.received.count()} received messages the service took {faults.messages} and answered with a fault, "
        f"which the source does not see: last number {faults.last_number} at {moment(faults.last_at)}, "
        f"{first_line(faults.last_error or '')!r}."
    )


_ENDINGS: Final = {
    "terminated": "the source terminated it",
    "expired": "its time ran out",
    "refused": "the source broke the protocol",
    "failed": "this side gave it up",
}


def _ended(at: Situation) -> str:
    view = at.view
    if view.replay_of is not None:
        return f"Messages of {view.replay_of} were replayed in it; nothing is left to deliver."
    how = at.ended_because or _ENDINGS.get(view.ended or "", "it is not known how")
    if at.ending is not None:
        how = _by_operator(at.ending)
    left = "nothing is left to deliver" if view.discard_from is None else _given_up(view)
    return f"It ended at {moment(view.ended_at or view.active_at)}, {how}; {left}."


def _by_operator(ending: Act) -> str:
    because = f" ({first_line(ending.reason)})" if ending.reason else ""
    return f"{ending.actor or 'an operator'} terminated it{because}"


def _given_up(view: SequenceView) -> str:
    verb = "is being moved to" if view.discarding else "went to"
    return f"what was undelivered from number {view.discard_from} on {verb} the dead letters ({view.discard_reason})"


def _expiring(at: Situation) -> str:
    view = at.view
    due_at = view.due_at or at.now
    left = due_at - at.now
    why = f"nothing has arrived since {moment(view.active_at)}" if at.is_idle else "its Expires runs out"
    if at.is_doubted:
        return (
            f"By this clock its time is over since {moment(due_at)} because {why}. The service doubts the clock, which "
            f"has jumped ahead, and ends it when it believes that, ten minutes after the jump; {_consequence(at)}."
        )
    when = f"in {span(left)}" if left > 0 else "as soon as a process of the service looks, and believes the clock"
    return f"It ends {when} ({moment(due_at)}) because {why}; {_consequence(at)}."


def _consequence(at: Situation) -> str:
    view = at.view
    if not view.held:
        return f"it still lacks {_numbers(at.missing)}" if at.missing else "nothing is left to deliver"
    lost = f"it still lacks {_numbers(at.missing)}" if at.missing else "it is not known to be complete"
    held = counted(view.held, "message", "messages")
    received = counted(view.received.count(), "message", "messages")
    fates = {
        "NoDiscard": f"what is held ({held}) is then delivered across the gap",
        "DiscardFollowingFirstGap": f"what is held ({held}) then goes to the dead letters",
        "DiscardEntireSequence": f"all that was received ({received}) then goes to the dead letters",
    }
    return f"{lost}, and {fates[view.behavior]}"


def _silent(at: Situation) -> str:
    quiet = f"Nothing has come from its source since {moment(at.view.active_at)} ({span(at.quiet_for)})"
    if at.view.held or at.missing:
        return f"{quiet}. {_gap(at)}."
    return f"{quiet}, and the sequence is still open; {(settled := _settled(at))[:1].lower()}{settled[1:]}"


def _waiting(at: Situation) -> str:
    quiet = f" Nothing has come from its source for {span(at.quiet_for)}." if at.quiet_for >= QUIET else ""
    stopped = "" if at.live else " No process of the service lives to take it: start the service."
    return f"{_gap(at)}.{quiet}{stopped}"


def _gap(at: Situation) -> str:
    """Say which numbers the held messages wait for, and since when."""
    view = at.view
    since = f"since {moment(at.held_since)} ({span(at.now - at.held_since)})" if at.held_since is not None else "now"
    held = counted(view.held, "message is", "messages are") + " held"
    if not at.missing:
        return f"{held} {since} until the source says that the sequence is complete ({view.behavior})"
    if not view.held:
        return f"It lacks {_numbers(at.missing)}, which the source has to send again; nothing is held for that"
    behind = "it" if at.missing.count() == 1 else "them"
    return f"It waits for {_numbers(at.missing)}, which the source has to send again; {held} behind {behind} {since}"


_LATE: Final = {
    "accept": "what of that comes late is delivered at once",
    "refuse": "what of that comes late goes to the dead letters",
}


def _forced(at: Situation) -> str:
    """Say which of the numbers that it was forced past have come since, and which have not; empty where it was not
    forced."""
    late = "" if at.view.late is None else _LATE[at.view.late]
    given_up = f" An operator has forced it past {_numbers(at.given_up)}; {late}." if at.given_up else ""
    came = f" Came late: {_numbers(at.late)}." if at.late else ""
    return f"{given_up}{came}"


_TELLS_WHAT_IS_MISSING: Final = (Cause.WAITING, Cause.SILENT, Cause.EXPIRING)


def _lost(verdict: Verdict) -> str:
    """Say how many messages were sent and are not delivered, whatever else is said; empty where there are none."""
    at, told = verdict.at, []
    gone = at.never_came.without(at.missing).without(at.given_up)
    if gone:
        told.append(f"{_sentence(_numbers(gone))} never came, and that is not waited for any more.")
    if at.missing and verdict.cause not in _TELLS_WHAT_IS_MISSING:
        told.append(f"{_sentence(_numbers(at.missing))} did not come: the source has to send that again.")
    if at.undelivered.open:
        why = _NOT_DELIVERED.get(at.undelivered.reason, at.undelivered.reason)
        told.append(f"Not delivered, and confirmed by nobody: {_numbers(at.undelivered.open)} ({why}).")
    if at.undelivered.written_off:
        told.append(f"Given up by an operator: {_numbers(at.undelivered.written_off)}.")
    return "".join(f" {one}" for one in told)


_NOT_DELIVERED: Final = {
    "replayed": "to be delivered again, and not through with that",
    "late": "came late, and at_most_once drops that",
}
"""The meaning of a reason, where its word does not say it."""


def _settled(at: Situation) -> str:
    view = at.view
    if not view.received:
        return f"It is open since {moment(view.created_at)} and nothing has arrived yet."
    settled = f"All {view.received.count()} received messages are settled"
    if view.state == "created":
        return f"{settled}; number {view.expected} is expected next."
    if view.discard_from is None:
        return f"{settled} and the sequence is closed."
    return f"It is closed; {_given_up(view)}."


def _to_fetch(at: Situation) -> str:
    kept = f"; what is not fetched by {moment(at.view.due_at)} is forgotten" if at.view.due_at is not None else ""
    return f"Its messages wait to be fetched by a client that polls (WS-MakeConnection){kept}."


def _leased(at: Situation) -> str:
    number = at.head.number if at.head is not None else at.view.cursor
    return f"Number {number} is leased since {moment(at.view.running_since or at.now)} by {_holder(at)}."


def _left_behind(at: Situation) -> str:
    return f"It was leased by {_holder(at)}, which is gone: the next program that opens the store gives it back."


def _holder(at: Situation) -> str:
    owner = at.owner
    return "a process without a name" if owner is None else f"instance {owner.name} (process {owner.pid})"


def _to_consume(at: Situation) -> str:
    waits = counted(at.ready, "message is", "messages are")
    return f"{waits} ready, number {at.view.cursor} first, for the next consumer of {at.view.queue}{_begun(at.head)}."


_SENTENCES: Final[dict[Cause, Callable[[Situation], str]]] = {
    Cause.ON_HOLD: _on_hold,
    Cause.TO_FETCH: _to_fetch,
    Cause.BLOCKED: _blocked,
    Cause.RUNNING: _running,
    Cause.TAKEN_OVER: _taken_over,
    Cause.ORPHANED: _orphaned,
    Cause.UNSERVED: _unserved,
    Cause.RETRYING: _retrying,
    Cause.READY: _ready,
    Cause.STOPPED: _stopped,
    Cause.FAULTED: _faulted,
    Cause.ENDED: _ended,
    Cause.EXPIRING: _expiring,
    Cause.SILENT: _silent,
    Cause.WAITING: _waiting,
    Cause.SETTLED: _settled,
    Cause.SENT: _sent,
}
_OF_OUTGOING: Final = {
    **_SENTENCES,
    Cause.RETRYING: _not_taken,
    Cause.READY: _sent_next,
    Cause.ENDED: _all_sent,
}
"""The sentences about what this side sends."""
_OF_GROUP: Final = {
    **_SENTENCES,
    Cause.RUNNING: _leased,
    Cause.TAKEN_OVER: _left_behind,
    Cause.ORPHANED: _left_behind,
    Cause.READY: _to_consume,
}
"""The sentences about what programs consume."""


# words


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _failing(at: Situation) -> tuple[int, str]:
    """The number that is tried again, and what it failed of."""
    return (at.head.number, _failed(at.head)) if at.head is not None else (at.view.cursor, "it failed")


def _next_try(at: Situation) -> str:
    retry_at = at.view.retry_at or at.now
    return f"{moment(retry_at)} (in {span(retry_at - at.now)})"


def _failed(head: Head) -> str:
    times = "once, with" if head.failures == 1 else f"{head.failures} times, last with"
    return f"it failed {times} {first_line(head.last_error or '')!r}"


def _begun(head: Head | None) -> str:
    """Say what is known of a message that was begun before."""
    if head is None or not head.deliveries:
        return ""
    if head.failures:
        return f"; {_failed(head)}"
    why = f": {first_line(head.last_error)!r}" if head.last_error else ""
    return f"; it was begun before, and what came of it is not known{why}"


def _behind(at: Situation) -> str:
    if at.head is None or not at.view.ordered:
        return ", and nothing of it is delivered until then"
    behind = at.unsettled - 1
    return f", and {counted(behind, 'message is', 'messages are')} held behind it" if behind > 0 else ""


def _numbers(numbers: AckRanges) -> str:
    """Write the first few ranges, and how many there are."""
    noun = "number" if numbers.count() == 1 else "numbers"
    text = str(AckRanges(numbers.ranges[:SHOWN_GAPS])).replace(",", ", ")
    more = f" and more ({len(numbers)} gaps)" if len(numbers) > SHOWN_GAPS else ""
    return f"{noun} {text}{more}"


# The needs of the sequences that fit a query, by their verdicts: fifty with one need are helped by one command.

LOOKED_AT: Final = 10_000
"""The most sequences, the newest, that are judged."""
NAMED: Final = 5
"""The most sequences with a verdict that are named."""

_WHICH: Final = others.SEQUENCES.step("which they are")
_WHY: Final = others.FAILURES.step("what failed, in groups")
_END: Final = on_sequences.TERMINATE.step(
    "end them: what they hold is delivered past their gaps, or given up, as the behavior of each says", drain=True
)
_STEPS: Final[dict[str, tuple[Step, ...]]] = {
    "blocked": (
        on_sequences.RESUME.step("try them all again, when the cause is repaired"),
        *(_WHY, _WHICH),
    ),
    "held": (on_sequences.RESUME.step("let them all go on"), _WHICH),
    "faulted": (
        *(_WHY, _WHICH),
        on_messages.CONFIRM.step("they are dealt with, and alarm no more", f"reason:{ANSWERED_WITH_FAULT}"),
    ),
    "waiting": (_WHICH, _END),
    "incomplete": (
        _WHICH,
        others.LETTERS.step("what came and was not delivered", "confirmed:no"),
    ),
    "silent": (_WHICH, _END),
    "expiring": (_WHICH, on_sequences.HOLD.step("keep what waits")),
}
_DOCTOR: Final = others.DOCTOR.step("what is wrong with processes, clock and store")
_WITHOUT_SERVICE: Final = {Cause.STOPPED, Cause.UNSERVED, Cause.ORPHANED}
_ORDER: Final = (*_STEPS, *(word for word in WORDS if word not in _STEPS))


@dataclass(slots=True)
class Together:
    """The sequences with one verdict."""

    verdict: str
    sentence: str
    """The sentence about the newest of them."""
    steps: tuple[Step, ...]
    """Commands for all of them."""
    sequences: int = 0
    held: int = 0
    """Messages behind gaps."""
    examples: list[str] = field(default_factory=list)
    """Identifiers of the newest ones."""


def together(db: Database, query: Query) -> list[Together]:
    """The sequences that fit ``query``, by their verdicts: what is to be done about comes first. Raises ``NotFound``
    where none does."""
    found: dict[str, Together] = {}
    causes: dict[str, set[Cause]] = {}
    for view, verdict in islice(judged(db, query), LOOKED_AT):
        word = verdict.word
        if word not in found:
            found[word] = Together(word, explanation(verdict).sentence, ())
        causes.setdefault(word, set()).add(verdict.cause)
        its = found[word]
        its.sequences += 1
        its.held += view.held
        if len(its.examples) < NAMED:
            its.examples.append(view.identifier)
    if not found:
        raise NotFound(f"No sequence fits {query.text}.")
    for word, its in found.items():
        which = asked_for(query.text, f"verdict:{word}")
        if causes[word] <= _WITHOUT_SERVICE:  # what only waits for a process cannot be resumed
            its.steps = (_DOCTOR, _WHICH._replace(which=which))
        else:
            its.steps = tuple(one._replace(which=(*which, *one.which)) for one in _STEPS.get(word, (_WHICH,)))
    return [found[word] for word in _ORDER if word in found]


# Why a message moves or does not. What a sequence or a group holds up, its verdict says.


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
