"""Why a sequence moves or does not move, in one sentence, and the command to run next.

Pure over a read-only connection; whether a process lives is told by its lock beside the store.
"""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import instances
from wsrm_mq.store.database import file_of
from wsrm_mq.views.applications import Unserved, unserved
from wsrm_mq.views.reading import ANSWERED_WITH_FAULT, SequenceView, sequence, snapshot

__all__ = [
    "WORDS",
    "Instance",
    "Verdict",
    "first_line",
    "judge",
    "known_instances",
    "live_instances",
    "moment",
    "span",
    "verdict",
]

WORDS: Final = ("ok", "running", "waiting", "blocked", "faulted", "expiring", "ended")

EXPIRING_WITHIN: Final = 600_000
"""A sequence expires soon if it does so within these ms, or within a tenth of its life where that is shorter."""

COUNTED: Final = 10_000
"""So many held messages are looked at for the time of the oldest."""

LINE: Final = 200
"""So many characters of an error are told in a sentence."""

SHOWN_GAPS: Final = 5
"""So many ranges of missing numbers are told in a sentence."""


@dataclass(frozen=True, slots=True)
class Verdict:
    word: str
    sentence: str
    next_step: str
    """A command line, or nothing where there is nothing to do."""
    facts: dict[str, Any]
    """Always the same keys; numbers, ms and texts."""


class Instance(NamedTuple):
    key: int
    name: str
    host: str
    pid: int
    started_at: int


class Head(NamedTuple):
    """The entry that is next, or the one that stopped the sequence."""

    position: int
    number: int
    deliveries: int
    failures: int
    last_error: str | None


class Faults(NamedTuple):
    """What the service took and answered with a fault that nothing else has read."""

    messages: int
    last_number: int
    last_at: int
    last_error: str


class Situation(NamedTuple):
    """All that a verdict rests on, read in one state of the store."""

    view: SequenceView
    now: int
    head: Head | None
    owner: Instance | None
    owner_lives: bool
    live: int
    """How many instances live."""
    missing: AckRanges
    """The numbers that delivery waits for."""
    held_since: int | None
    faults: Faults | None
    unserved: Unserved | None
    """Something waits, and it is for an application that no process which lives serves."""


def verdict(db: sqlite3.Connection, key: int, now: int) -> Verdict:
    """The verdict on the sequence with this key. Raises ``NotFound``."""
    with snapshot(db):
        return judge(db, sequence(db, key), now)


def judge(db: sqlite3.Connection, view: SequenceView, now: int) -> Verdict:
    """The verdict on a sequence that was read in the same snapshot."""
    situation = _situation(db, view, now)
    for rule in _RULES:
        found = rule(situation)
        if found is not None:
            word, text, next_step = found
            return Verdict(word, text, next_step, _facts(situation))
    raise AssertionError("the last rule fits everything")


def live_instances(db: sqlite3.Connection) -> list[Instance]:
    """The processes that use the store now: those with a row that hold their lock."""
    return [one for one, holds_lock in known_instances(db) if holds_lock]


def known_instances(db: sqlite3.Connection) -> list[tuple[Instance, bool | None]]:
    """The processes that nobody knows to have ended, and whether each holds its lock. ``None``: its file is missing, so
    it lives elsewhere, as that of a copied store, or will be found out by one that lives here."""
    store = file_of(db)
    rows = db.execute("SELECT id, name, host, pid, started_at FROM instance WHERE ended_at IS NULL ORDER BY id")
    return [(one, instances.holds_lock(store, one.name)) for one in map(Instance._make, rows)]


def _situation(db: sqlite3.Connection, view: SequenceView, now: int) -> Situation:
    live = live_instances(db)
    owner = None
    if view.owner is not None:
        row = db.execute("SELECT id, name, host, pid, started_at FROM instance WHERE id = ?", (view.owner,)).fetchone()
        owner = Instance(*row) if row is not None else None
    which = ("id", view.blocked) if view.blocked is not None else ("number", view.cursor)
    head = db.execute(
        f"""SELECT id, number, deliveries, failures, last_error FROM entry
        WHERE sequence = ? AND {which[0]} = ? AND outcome IS NULL""",
        (view.key, which[1]),
    ).fetchone()
    missing = AckRanges(((view.limit, view.received.highest),)) if view.held else AckRanges()
    held_since = None
    if view.held:
        (held_since,) = db.execute(
            f"""SELECT min(m.received_at) FROM (
                SELECT message FROM entry WHERE sequence = ? AND number >= ? AND outcome IS NULL
                ORDER BY number LIMIT {COUNTED}
            ) e JOIN message m ON m.id = e.message""",
            (view.key, view.limit),
        ).fetchone()
    return Situation(
        view,
        now,
        Head(*head) if head is not None else None,
        owner,
        owner in live,
        len(live),
        missing.without(view.received),
        held_since,
        _faults(db, view.key),
        next(iter(unserved(db, {view.queue})), None) if view.held or view.is_deliverable else None,
    )


def _faults(db: sqlite3.Connection, sequence: int) -> Faults | None:
    """From the ledger, which has an index by sequence: a row is there as long as the message is."""
    rows = db.execute(
        f"""SELECT number, at, coalesce(reason, '') FROM ledger
        WHERE sequence = ? AND event = '{ANSWERED_WITH_FAULT}' ORDER BY id DESC LIMIT {COUNTED}""",
        (sequence,),
    ).fetchall()
    return Faults(len(rows), *rows[0]) if rows else None


def _facts(at: Situation) -> dict[str, Any]:
    view, head, owner = at.view, at.head, at.owner
    return {
        "state": view.state,
        "ended": view.ended,
        "ended_at": view.ended_at,
        "received": [list(one) for one in view.received],
        "expected": view.expected,
        "cursor": view.cursor,
        "limit": view.limit,
        "last_number": view.last_number,
        "missing": [list(one) for one in at.missing],
        "held": view.held,
        "held_since": at.held_since,
        "due_at": view.due_at,
        "retry_at": view.retry_at,
        "blocked": head.number if head is not None and view.blocked is not None else None,
        "head": head._asdict() if head is not None else None,
        "running_since": view.running_since,
        "owner": {**owner._asdict(), "lives": at.owner_lives} if owner is not None else None,
        "live_instances": at.live,
        "faulted": at.faults.messages if at.faults is not None else 0,
        "behavior": view.behavior,
        "discard_from": view.discard_from,
        "discard_reason": view.discard_reason,
    }


# the rules: the first that has something to say says it

Found = tuple[str, str, str]


def _blocked(at: Situation) -> Found | None:
    if at.view.blocked is None:
        return None
    if at.head is None:
        return "blocked", "It is blocked by a message that is no longer there.", "wsrm-mq store verify"
    return (
        "blocked",
        f"Number {at.head.number} stopped the sequence: {_failed(at.head)}{_behind(at)}.",
        _command(at, "resume", reason=True),
    )


def _running(at: Situation) -> Found | None:
    owner, head, since = at.owner, at.head, at.view.running_since
    if owner is None or not at.owner_lives:
        return None
    where = f"in instance {owner.name} (process {owner.pid} on {owner.host})"
    if head is None or since is None:
        return "running", f"It is being run {where}.", _command(at, "explain")
    return (
        "running",
        f"Number {head.number} has been running since {moment(since)} ({span(at.now - since)}), "
        f"attempt {head.deliveries + 1}, {where}.",
        f"wsrm-mq message show {head.position}",
    )


def _orphaned(at: Situation) -> Found | None:
    if at.view.owner is None:
        return None
    who = f"process {at.owner.pid} on {at.owner.host}" if at.owner else "a process without a name"
    if at.live:
        text = f"The process that ran it died ({who}); another one takes it over within seconds."
        return "running", text, _command(at, "explain")
    text = f"The process that ran it died ({who}) and no other lives: start the service, it goes on by itself."
    return "blocked", text, "wsrm-mq store info"


def _unserved(at: Situation) -> Found | None:
    if at.unserved is None:
        return None
    name = at.unserved.application
    who = f"the application {name}" if name else "an application without a name"
    text = f"What {at.view.queue} has is for {who}, which no process that lives serves on this path: start it."
    return "blocked", text, "wsrm-mq status"


def _retrying(at: Situation) -> Found | None:
    view, head = at.view, at.head
    if head is None or not view.is_deliverable or view.retry_at is None or not view.waits_for_retry(at.now):
        return None
    return (
        "blocked",
        f"Number {head.number} stops the sequence for now: {_failed(head)}, and is tried again at "
        f"{moment(view.retry_at)} (in {span(view.retry_at - at.now)}).",
        _command(at, "resume", reason=True),
    )


def _ready(at: Situation) -> Found | None:
    if not at.view.is_deliverable:
        return None
    if at.live:
        return "ok", f"Number {at.view.cursor} is ready and is run next{_begun(at.head)}.", ""
    text = f"Number {at.view.cursor} is ready, but no process of the service lives to run it: start the service."
    return "blocked", text, "wsrm-mq store info"


def _faulted(at: Situation) -> Found | None:
    """Only where nothing else is wrong: what waits or is discarded is told first."""
    view, faults = at.view, at.faults
    if faults is None or view.held or view.discard_from is not None:
        return None
    return (
        "faulted",
        f"Of {view.received.count()} received messages the service took {faults.messages} and answered with a fault, "
        f"which the source does not see: last number {faults.last_number} at {moment(faults.last_at)}, "
        f"{first_line(faults.last_error)!r}.",
        f"wsrm-mq message list --sequence {shlex.quote(view.identifier)} --reason {ANSWERED_WITH_FAULT}",
    )


_ENDINGS: Final = {
    "terminated": "the source terminated it",
    "expired": "its time ran out",
    "refused": "the source broke the protocol",
    "failed": "this side gave it up",
}


def _ended(at: Situation) -> Found | None:
    view = at.view
    if view.state != "ended":
        return None
    how = _ENDINGS.get(view.ended or "", "nobody knows how")
    text = f"It ended at {moment(view.ended_at or view.active_at)}, {how}"
    if view.discard_from is None:
        return "ended", f"{text}; nothing is left to deliver.", ""
    return "ended", f"{text}; {_given_up(view)}.", _messages(view, "dead")


def _given_up(view: SequenceView) -> str:
    verb = "is being moved to" if view.discarding else "went to"
    return f"what was undelivered from number {view.discard_from} on {verb} the dead letters ({view.discard_reason})"


def _expiring(at: Situation) -> Found | None:
    view = at.view
    if view.due_at is None:
        return None
    is_idle = view.due_at != view.expires_at
    life = (view.inactivity if is_idle else (view.expires_at or 0) - view.created_at) or 0
    left = view.due_at - at.now
    if left > min(EXPIRING_WITHIN, life // 10):
        return None
    why = f"nothing has arrived since {moment(view.active_at)}" if is_idle else "its Expires runs out"
    when = f"in {span(left)}" if left > 0 else "as soon as a process of the service looks"
    text = f"It ends {when} ({moment(view.due_at)}) because {why}; {_consequence(at)}."
    return "expiring", text, _messages(view, "live")


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


def _waiting(at: Situation) -> Found | None:
    view = at.view
    if not view.held:
        return None
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
    return "waiting", text, _messages(view, "live")


def _ok(at: Situation) -> Found | None:
    view = at.view
    if not view.received:
        return "ok", f"It is open since {moment(view.created_at)} and nothing has arrived yet.", ""
    settled = f"All {view.received.count()} received messages are settled"
    if view.state == "created":
        return "ok", f"{settled}; number {view.expected} is expected next.", ""
    if view.discard_from is None:
        return "ok", f"{settled} and the sequence is closed.", ""
    return "ok", f"It is closed; {_given_up(view)}.", _messages(view, "dead")


_RULES: Final[tuple[Callable[[Situation], Found | None], ...]] = (
    _blocked,
    _running,
    _orphaned,
    _unserved,
    _retrying,
    _ready,
    _faulted,
    _ended,
    _expiring,
    _waiting,
    _ok,
)


# words


def _command(at: Situation, verb: str, *, reason: bool = False) -> str:
    command = f"wsrm-mq sequence {verb} {shlex.quote(at.view.identifier)}"
    return f"{command} --reason TEXT" if reason else command


def _messages(view: SequenceView, outcome: str) -> str:
    return f"wsrm-mq message list --sequence {shlex.quote(view.identifier)} --outcome {outcome}"


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
    """ms since the epoch, to the second, in UTC: the same for everybody who reads it."""
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
