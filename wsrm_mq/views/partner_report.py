"""The text for a partner whose sequence is stuck: numbers, times and identifiers, and nothing of how it is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from textwrap import fill
from typing import Final

from wsrm_mq.errors import NotAllowed
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.views.outgoing import OutgoingView
from wsrm_mq.views.situation import Situation
from wsrm_mq.views.verdict import Cause, Verdict
from wsrm_mq.views.words import counted, moment


def partner_report(verdict: Verdict, replies: OutgoingView | None = None) -> str:
    """Plain text, in lines that fit 80 columns but for identifiers and long lists of numbers. Times are UTC.
    ``replies``: the sequence that the source has offered for them.
    Raises ``NotAllowed`` for a sequence that no source has created."""
    at, view = verdict.at, verdict.at.view
    if view.kind != "rm":
        raise NotAllowed(f"{view.identifier} is numbered on this side: no partner knows of it.")
    asked = _REQUESTS.get(verdict.cause)
    request = asked(at) if asked else _nothing(at) if verdict.cause in _AS_IT_SHOULD_BE else _OURS
    undelivered = at.undelivered.open.union(at.undelivered.written_off)
    facts = [
        ("Sequence", view.identifier),
        ("Protocol", f"WS-ReliableMessaging {view.rm}"),
        ("Endpoint", view.queue),
        ("Sender", view.principal or view.peer or "not known"),
        ("Created", moment(view.created_at)),
        ("Last message received", moment(view.active_at)),
        ("Numbers received", _numbers(view.received)),
        ("Numbers missing", _numbers(at.never_came)),
        *([("Missing, not waited for", _numbers(gone))] if (gone := at.never_came.without(at.missing)) else []),
        ("Received, not processed yet", str(at.unsettled)),
        *([("Received, and put aside", _numbers(undelivered))] if undelivered else []),
        *(_of_replies(replies) if replies is not None else []),
        ("Ends", _end(at)),
    ]
    width = max(len(name) for name, _ in facts) + 1
    lines = [f"{name + ':':<{width}} {value}" for name, value in facts]
    asides = [fill(text, 80) for text in (request, *_asides(at, undelivered)) if text]
    title = f"State of a reliable message sequence, {moment(at.now)}"
    return "\n".join([title, "", *lines, "", *asides])


def _of_replies(replies: OutgoingView) -> list[tuple[str, str]]:
    acknowledged = AckRanges.parse(replies.acknowledged)
    return [
        ("Replies sent in", replies.sequence),
        ("Replies sent", str(replies.sent)),
        ("Replies not acknowledged", _numbers(acknowledged.gaps(replies.sent))),
    ]


def _numbers(numbers: AckRanges) -> str:
    return str(numbers).replace(",", ", ") if numbers else "none"


def _end(at: Situation) -> str:
    view = at.view
    if view.state == "ended":
        return f"ended at {moment(view.ended_at or view.active_at)}"
    return f"at the latest {moment(view.due_at)}" if view.due_at is not None else "not limited"


_OURS: Final = (
    "The messages received are stored and acknowledged. Their processing is delayed on our side; please do not send "
    "them again in another sequence."
)
_OVER: Final = "The sequence is over: please send further messages in a new one."
_NOT_AWAITED: Final = "The missing numbers are not waited for any more."
_ANEW: Final = " Please send what they were as new messages."
_LATE: Final = {
    "accept": "If they come they are still processed, out of their order.",
    "refuse": "If they come they are not processed any more: send them as new messages.",
}


def _nothing(at: Situation) -> str:
    """``_asides`` has the rest."""
    if at.missing:
        return _resend(at)
    is_all = not (at.never_came or at.undelivered.open or at.undelivered.written_off or at.view.discarding)
    return "Nothing is missing; no action is needed." if is_all else ""


def _asides(at: Situation, undelivered: AckRanges) -> Iterator[str]:
    """Sentences about what is lost, whatever else is asked for."""
    if at.never_came.without(at.missing):
        late = "" if at.view.late is None or at.view.state != "created" else f" {_LATE[at.view.late]}"
        yield f"{_NOT_AWAITED}{late or _ANEW}"
    if undelivered:
        yield (
            f"The service has not got {counted(undelivered.count(), 'message')} that we received and acknowledged: "
            f"number {_numbers(undelivered)}. Please ask us before you send that again."
        )
    if at.view.discarding:
        yield "Messages that we received and acknowledged are being put aside: the service does not get them."


def _resend(at: Situation) -> str:
    if not at.missing:
        return "Please say that the sequence is complete: close or terminate it. What we received is processed then."
    behind = "What we received behind them is kept, and is processed when they arrive. "
    kept = behind if at.view.held else ""
    return (
        f"Please send the missing numbers again, in this sequence, as they were. {kept}If you cannot, tell us which "
        "messages they were, and whether we may go on without them."
    )


def _silent(at: Situation) -> str:
    if at.view.held or at.missing:
        return _resend(at)
    is_all = not (at.undelivered.open or at.undelivered.written_off or at.view.discarding)
    processed = "All that was received is processed. " if is_all else ""
    return f"{processed}If you need the sequence no longer, please terminate it."


def _answered(at: Situation) -> str:
    count, last = (at.faults.messages, at.faults.last_number) if at.faults is not None else (0, 0)
    return (
        f"Messages that the service refused as wrong: {count}, the last of them number {last}. They are not tried "
        "again. Please correct them, and send them as new messages."
    )


_REQUESTS: Final[dict[Cause, Callable[[Situation], str]]] = {
    Cause.WAITING: _resend,
    Cause.SILENT: _silent,
    Cause.EXPIRING: lambda at: _resend(at) if at.missing or at.view.held else _nothing(at),
    Cause.FAULTED: _answered,
    Cause.ENDED: lambda _at: _OVER,
}
"""The request to the partner, by cause, where that concerns him; what is wrong on this side is not told."""
_AS_IT_SHOULD_BE: Final = (Cause.RUNNING, Cause.READY, Cause.SETTLED)
