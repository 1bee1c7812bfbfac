"""The acts of an operator on sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wsrm_mq.acts.act import Act, Argument, Arguments, Choice, Kind
from wsrm_mq.sequence.elements import CloseSequence, TerminateSequence

if TYPE_CHECKING:
    from wsrm_mq.queue import operate
    from wsrm_mq.store.transaction import Transaction

SUBJECT: Final = "sequence"
BATCH: Final = 50
BURIED: Final = 100
"""Messages moved to the dead letters in one transaction."""


def bury(tx: Transaction) -> int:
    """Move some of the messages that were given up to the dead letters. Answers how many it were."""
    from wsrm_mq.queue import ending

    return ending.bury_tails(tx, BURIED)


# hold, resume, skip


def _held(runs: int | None, _arguments: Arguments) -> str:
    running = "" if runs is None else f"; number {runs}, which is being run, is let end"
    return f"deliver nothing more of {{these}} until it is resumed{running}"


HOLD: Final = Act(
    SUBJECT,
    "hold",
    verb="wsrm_mq.queue.operate:hold",
    does=_held,
    to_many="hold",
    answer=lambda runs, _arguments: {"running": runs},
    batch=BATCH,
    help="""Deliver nothing more until it is resumed. That holds after the end of the sequence too.

    A message that is being run is let end. New ones are still accepted and acknowledged, and wait.""",
    examples=('242f14a4 --reason "the backend moves"', 'partner:acme --reason "ticket 17"'),
)


def _resumed(number: int | None, _arguments: Arguments) -> str:
    if number is None:
        return "let {these} go on; nothing of it waits to be delivered"
    return f"let {{these}} go on with number {number} {{when}}"


RESUME: Final = Act(
    SUBJECT,
    "resume",
    verb="wsrm_mq.queue.operate:resume",
    does=_resumed,
    to_many="resume",
    answer=lambda number, _arguments: {"number": number},
    batch=BATCH,
    help="""Try a blocked or held sequence again. Now, or when the service starts if it is stopped; also one that waits
    for a retry; from the first step of its ladder of waits.""",
    examples=('242f14a4 --reason "the database is back"', 'verdict:blocked --reason "ticket 17"'),
)

SKIP: Final = Act(
    SUBJECT,
    "skip",
    verb="wsrm_mq.queue.operate:skip",
    does=lambda _position, of: f"move number {of['number']} of {{these}} to the dead letters{{later}}",
    answer=lambda position, of: {"number": of["number"], "position": position},
    help="""Give up the message that stops a sequence. NUMBER goes to the dead letters, the sequence goes on, if the
    service is stopped when it starts.""",
    examples=('242f14a4 4 --reason "no such product"',),
    arguments=(Argument("number", Kind.NUMBER, is_named=False),),
    is_for_one=True,
)

# force


def _forced(forced: operate.Forced, of: Arguments) -> str:
    count = f"{forced.released} held message{'' if forced.released == 1 else 's'}"
    fate = "is delivered at once, marked late" if of["late"] == "accept" else "goes to the dead letters"
    return (
        f"deliver {count} of {{these}} up to number {forced.to} {{when}}, without number {forced.missing}: "
        f"what is missing and comes later {fate}"
    )


def _one_way_past(of: Arguments) -> str:
    if of["past"] is not None and of["to"] is not None:
        return "--past goes past one gap, --to past every gap up to a number: choose one."
    return ""


FORCE: Final = Act(
    SUBJECT,
    "force",
    verb="wsrm_mq.queue.operate:force",
    does=_forced,
    to_many="force, with --late {late},",
    answer=lambda forced, of: {**forced._asdict(), "late": of["late"]},
    batch=BATCH,
    help="""Go on past a gap. What is held up to the next gap is delivered without what is missing. The gap is named, so
    that the same command given twice does not go past another one.""",
    examples=('242f14a4 --past 3 --reason "it is lost"', '242f14a4 --to 40 --late refuse --reason "why"'),
    arguments=(
        Argument("past", Kind.NUMBER, "Go past the next gap, in which this number is missing."),
        Argument("to", Kind.NUMBER, "Go past every gap up to this number. What follows it without a gap goes along."),
        Argument(
            "late",
            Kind.ONE_OF,
            "A missing number that comes later is delivered at once, marked late; or goes to the dead letters.",
            (Choice("accept", "accept"), Choice("refuse", "refuse")),
            default="accept",
        ),
    ),
    contradiction=_one_way_past,
)

# close, terminate


def _ended(verb: str, left: operate.Ended) -> str:
    fates = [
        *([f"{left.delivers} undelivered to be delivered {{when}}"] if left.delivers else []),
        *([f"{left.gives_up} undelivered to the dead letters"] if left.gives_up else []),
    ]
    lacks = f", which lacks number {left.missing}" if left.missing else ""
    return f"{verb} {{these}}{lacks}: it takes no new message; {' and '.join(fates) or 'nothing is undelivered'}"


def close(tx: Transaction, identifier: str, *, actor: str, reason: str) -> operate.Ended:
    """``queue.operate.close``; the source is told where it has an address for acknowledgements."""
    from wsrm_mq.queue import operate

    left = operate.close(tx, identifier, actor=actor, reason=reason)
    _tell(tx, CloseSequence(identifier))
    return left


def terminate(tx: Transaction, identifier: str, *, drain: bool, actor: str, reason: str) -> operate.Ended:
    """``queue.operate.terminate``; the source is told where it has an address for acknowledgements."""
    from wsrm_mq.queue import operate

    left = operate.terminate(tx, identifier, drain=drain, actor=actor, reason=reason)
    _tell(tx, TerminateSequence(identifier))
    return left


def _tell(tx: Transaction, element: CloseSequence | TerminateSequence) -> None:
    from wsrm_mq.delivery import outgoing_messages

    outgoing_messages.tell_end(tx, element)


CLOSE: Final = Act(
    SUBJECT,
    "close",
    verb="wsrm_mq.acts.sequences:close",
    does=lambda left, _arguments: _ended("close", left),
    to_many="close",
    answer=lambda left, _arguments: left._asdict(),
    batch=BATCH,
    help="""Close a sequence in its source's stead. It takes no new number, and what is held is delivered across the
    gaps, or given up, as its behavior says. The source learns of it by SequenceClosed, and at once where it has an
    address for acknowledgements. WS-RM 1.0 has no close: terminate.""",
    examples=('242f14a4 --reason "the partner begins anew"',),
    remainder=bury,
)

TERMINATE: Final = Act(
    SUBJECT,
    "terminate",
    verb="wsrm_mq.acts.sequences:terminate",
    does=lambda left, _arguments: _ended("end", left),
    to_many="terminate (--{drain})",
    answer=lambda left, _arguments: left._asdict(),
    batch=BATCH,
    help="""End a sequence. The source learns of it by SequenceTerminated, with its next message; in WS-RM 1.1 at once
    where it has an address for acknowledgements.""",
    examples=('242f14a4 --drain --reason "ticket 17"', '242f14a4 --now --reason "all typed in"'),
    arguments=(
        Argument(
            "drain",
            Kind.FLAG,
            choices=(
                Choice("drain", True, "What was accepted is still delivered, as its behavior says."),
                Choice("now", False, "What is undelivered goes to the dead letters."),
            ),
            missing="say what becomes of what is undelivered: --drain or --now.",
        ),
    ),
    remainder=bury,
)

NOTE: Final = Act(
    SUBJECT,
    "note",
    verb="wsrm_mq.queue.operate:note",
    does=lambda _result, _arguments: "note it for {these}",
    to_many="note it for",
    batch=BATCH,
    help="Write something down about a sequence. `sequence show` shows it.",
    examples=('242f14a4 --reason "ACME looks for number 3"',),
)

ACTS: Final = (HOLD, RESUME, SKIP, FORCE, CLOSE, TERMINATE, NOTE)
