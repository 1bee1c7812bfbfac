"""Why a sequence moves or does not move, in one sentence, and the command to run next."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.views.reading import ANSWERED_WITH_FAULT, SequenceView
from wsrm_mq.views.verdict import Cause, Head, Situation, Verdict

__all__ = ["Explanation", "explanation", "first_line", "moment", "span"]

LINE: Final = 200
"""So many characters of an error are told in a sentence."""

SHOWN_GAPS: Final = 5
"""So many ranges of missing numbers are told in a sentence."""


class Explanation(NamedTuple):
    sentence: str
    next_step: str = ""
    """A command line, or nothing where there is nothing to do."""


def explanation(verdict: Verdict) -> Explanation:
    return _EXPLAINED[verdict.cause](verdict.at)


def _blocked(at: Situation) -> Explanation:
    if at.head is None:
        return Explanation("It is blocked by a message that is no longer there.", "wsrm-mq store verify")
    text = f"Number {at.head.number} stopped the sequence: {_failed(at.head)}{_behind(at)}."
    return Explanation(text, _command(at, "resume", reason=True))


def _running(at: Situation) -> Explanation:
    owner, head, since = at.owner, at.head, at.view.running_since
    where = f"in instance {owner.name} (process {owner.pid} on {owner.host})" if owner is not None else ""
    if head is None or since is None:
        return Explanation(f"It is being run {where}.", _command(at, "explain"))
    text = (
        f"Number {head.number} has been running since {moment(since)} ({span(at.now - since)}), "
        f"attempt {head.deliveries + 1}, {where}."
    )
    return Explanation(text, f"wsrm-mq message show {head.position}")


def _dead(at: Situation) -> str:
    who = f"process {at.owner.pid} on {at.owner.host}" if at.owner else "a process without a name"
    return f"The process that ran it died ({who})"


def _taken_over(at: Situation) -> Explanation:
    return Explanation(f"{_dead(at)}; another one takes it over within seconds.", _command(at, "explain"))


def _orphaned(at: Situation) -> Explanation:
    return Explanation(f"{_dead(at)} and no other lives: start the service, it goes on by itself.", _INFO)


def _unserved(at: Situation) -> Explanation:
    name = at.unserved.application if at.unserved is not None else None
    who = f"the application {name}" if name else "an application without a name"
    text = f"What {at.view.queue} has is for {who}, which no process that lives serves on this path: start it."
    return Explanation(text, "wsrm-mq status")


def _retrying(at: Situation) -> Explanation:
    retry_at = at.view.retry_at or at.now
    number, failed = (at.head.number, _failed(at.head)) if at.head is not None else (at.view.cursor, "it failed")
    text = (
        f"Number {number} stops the sequence for now: {failed}, and is tried again at "
        f"{moment(retry_at)} (in {span(retry_at - at.now)})."
    )
    return Explanation(text, _command(at, "resume", reason=True))


def _ready(at: Situation) -> Explanation:
    return Explanation(f"Number {at.view.cursor} is ready and is run next{_begun(at.head)}.")


def _stopped(at: Situation) -> Explanation:
    text = f"Number {at.view.cursor} is ready, but no process of the service lives to run it: start the service."
    return Explanation(text, _INFO)


def _faulted(at: Situation) -> Explanation:
    view, faults = at.view, at.faults
    if faults is None:
        return _settled(at)
    text = (
        f"Of {view.received.count()} received messages the service took {faults.messages} and answered with a fault, "
        f"which the source does not see: last number {faults.last_number} at {moment(faults.last_at)}, "
        f"{first_line(faults.last_error)!r}."
    )
    return Explanation(text, f"{_messages(view)} --reason {ANSWERED_WITH_FAULT}")


_ENDINGS: Final = {
    "terminated": "the source terminated it",
    "expired": "its time ran out",
    "refused": "the source broke the protocol",
    "failed": "this side gave it up",
}


def _ended(at: Situation) -> Explanation:
    view = at.view
    how = _ENDINGS.get(view.ended or "", "it is not known how")
    text = f"It ended at {moment(view.ended_at or view.active_at)}, {how}"
    if view.discard_from is None:
        return Explanation(f"{text}; nothing is left to deliver.")
    return Explanation(f"{text}; {_given_up(view)}.", _messages(view, "dead"))


def _given_up(view: SequenceView) -> str:
    verb = "is being moved to" if view.discarding else "went to"
    return f"what was undelivered from number {view.discard_from} on {verb} the dead letters ({view.discard_reason})"


def _expiring(at: Situation) -> Explanation:
    view = at.view
    due_at = view.due_at or at.now
    left = due_at - at.now
    why = f"nothing has arrived since {moment(view.active_at)}" if at.is_idle else "its Expires runs out"
    when = f"in {span(left)}" if left > 0 else "as soon as a process of the service looks"
    text = f"It ends {when} ({moment(due_at)}) because {why}; {_consequence(at)}."
    return Explanation(text, _messages(view, "live"))


def _consequence(at: Situation) -> str:
    view = at.view
    if not view.held:
        return "nothing is left to deliver"
    lost = f"it still lacks {_numbers(at.missing)}" if at.missing else "it is not known to be complete"
    held = _count(view.held, "message", "messages")
    received = _count(view.received.count(), "message", "messages")
    fates = {
        "NoDiscard": f"what is held ({held}) is then delivered across the gap",
        "DiscardFollowingFirstGap": f"what is held ({held}) then goes to the dead letters",
        "DiscardEntireSequence": f"all that was received ({received}) then goes to the dead letters",
    }
    return f"{lost}, and {fates[view.behavior]}"


def _waiting(at: Situation) -> Explanation:
    view = at.view
    since = f"since {moment(at.held_since)} ({span(at.now - at.held_since)})" if at.held_since is not None else "now"
    held = _count(view.held, "message is", "messages are") + " held"
    if at.missing:
        missing = f"{_numbers(at.missing)}, which the source has to send again"
        behind = "it" if at.missing.count() == 1 else "them"
        text = f"It waits for {missing}; {held} behind {behind} {since}."
    else:
        text = f"{held} {since} until the source says that the sequence is complete ({view.behavior})."
    if not at.live:
        text += " No process of the service lives to take it: start the service."
    return Explanation(text, _messages(view, "live"))


def _settled(at: Situation) -> Explanation:
    view = at.view
    if not view.received:
        return Explanation(f"It is open since {moment(view.created_at)} and nothing has arrived yet.")
    settled = f"All {view.received.count()} received messages are settled"
    if view.state == "created":
        return Explanation(f"{settled}; number {view.expected} is expected next.")
    if view.discard_from is None:
        return Explanation(f"{settled} and the sequence is closed.")
    return Explanation(f"It is closed; {_given_up(view)}.", _messages(view, "dead"))


_EXPLAINED: Final[dict[Cause, Callable[[Situation], Explanation]]] = {
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
    Cause.WAITING: _waiting,
    Cause.SETTLED: _settled,
}


# words

_INFO: Final = "wsrm-mq store info"


def _command(at: Situation, verb: str, *, reason: bool = False) -> str:
    command = f"wsrm-mq sequence {verb} {shlex.quote(at.view.identifier)}"
    return f"{command} --reason TEXT" if reason else command


def _messages(view: SequenceView, outcome: str | None = None) -> str:
    command = f"wsrm-mq message list --sequence {shlex.quote(view.identifier)}"
    return f"{command} --outcome {outcome}" if outcome else command


def _failed(head: Head) -> str:
    times = "once, with" if head.failures == 1 else f"{head.failures} times, last with"
    return f"it failed {times} {first_line(head.last_error or '')!r}"


def _begun(head: Head | None) -> str:
    """What is known of a message that was begun before."""
    if head is None or not head.deliveries:
        return ""
    if head.failures:
        return f"; {_failed(head)}"
    why = f": {first_line(head.last_error)!r}" if head.last_error else ""
    return f"; it was begun before, and what came of it is not known{why}"


def first_line(error: str, most: int = LINE) -> str:
    """At most so many characters of it; the rest, a traceback perhaps, is in ``message show``."""
    line = next((line for line in error.split("\n") if line.strip()), "")
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _behind(at: Situation) -> str:
    if at.head is None or not at.view.ordered:
        return ", and nothing of it is delivered until then"
    behind = at.view.received.count(at.head.number + 1)
    return f", and {_count(behind, 'message is', 'messages are')} held behind it" if behind else ""


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _numbers(numbers: AckRanges) -> str:
    """The first few, and how many ranges there are."""
    noun = "number" if numbers.count() == 1 else "numbers"
    text = str(AckRanges(numbers.ranges[:SHOWN_GAPS])).replace(",", ", ")
    more = f" and more ({len(numbers)} gaps)" if len(numbers) > SHOWN_GAPS else ""
    return f"{noun} {text}{more}"


def moment(at: int) -> str:
    """ms since the epoch, to the second, in UTC: the same for every reader."""
    try:
        return datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{at} ms"


_UNITS: Final = ((2 * 86_400_000, 86_400_000, "days"), (7_200_000, 3_600_000, "h"), (120_000, 60_000, "min"))


def span(ms: int) -> str:
    """A length of time, in the largest unit that is not coarse: 90 s, 5 min, 3 h, 2 days."""
    for least, unit, name in _UNITS:
        if ms >= least:
            return f"{ms // unit} {name}"
    return f"{max(0, ms) // 1000} s" if ms >= 1000 or ms <= 0 else f"{ms} ms"
