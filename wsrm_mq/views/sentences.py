"""Why a sequence moves or does not, in one sentence, and what to do about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from wsrm_mq.acts import Step, others
from wsrm_mq.acts import messages as on_messages
from wsrm_mq.acts import sequences as on_sequences
from wsrm_mq.errors import NotFound
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store.applications import OUTGOING
from wsrm_mq.store.port import Database
from wsrm_mq.store.words import ANSWERED_WITH_FAULT
from wsrm_mq.views.proposals import steps
from wsrm_mq.views.query import Query, asked_for
from wsrm_mq.views.reading import judged
from wsrm_mq.views.rows import SequenceView
from wsrm_mq.views.situation import Act, Head, Situation
from wsrm_mq.views.verdict import WORDS, Cause, Verdict
from wsrm_mq.views.words import counted, first_line, moment, operation_of, span

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


class Together(NamedTuple):
    """The sequences with one verdict."""

    verdict: str
    sequences: int
    held: int
    """Messages behind gaps."""
    examples: list[str]
    """Identifiers of the newest ones."""
    sentence: str
    """The sentence about the newest of them."""
    steps: tuple[Step, ...]
    """Commands for all of them."""


def together(db: Database, query: Query) -> list[Together]:
    """The sequences that fit ``query``, by their verdicts: what is to be done about comes first. Raises ``NotFound``
    where none does."""
    found: dict[str, list[tuple[SequenceView, Cause]]] = defaultdict(list)
    sentences: dict[str, str] = {}
    for view, verdict in islice(judged(db, query), LOOKED_AT):
        found[verdict.word].append((view, verdict.cause))
        if verdict.word not in sentences:
            sentences[verdict.word] = explanation(verdict).sentence
    if not found:
        raise NotFound(f"No sequence fits {query.text}.")
    return [_together(query, word, sentences[word], found[word]) for word in _ORDER if word in found]


def _together(query: Query, word: str, sentence: str, its: list[tuple[SequenceView, Cause]]) -> Together:
    which = asked_for(query.text, f"verdict:{word}")
    if _WITHOUT_SERVICE.issuperset(cause for _view, cause in its):  # what only waits for a process cannot be resumed
        steps: tuple[Step, ...] = (_DOCTOR, _WHICH._replace(which=which))
    else:
        steps = tuple(one._replace(which=(*which, *one.which)) for one in _STEPS.get(word, (_WHICH,)))
    newest = [view.identifier for view, _cause in its[:NAMED]]
    return Together(word, len(its), sum(view.held for view, _cause in its), newest, sentence, steps)
