"""The making of a plan: a query selects its messages; they are put in order; flags mark the messages that were
delivered before or break the order of their sequence; and messages that are missing are counted. It reads the store in
bounded pieces, and writes a file and one row of the store.
"""

from __future__ import annotations

import enum
import secrets
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from operator import gt, lt
from pathlib import Path
from typing import Any, Final, NamedTuple

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.replay.plan import BREAKS_ORDER, DUPLICATE, FORMAT, KEY_HEADER, Header, LeftOut, Line, encoded, write_plan
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import lanes
from wsrm_mq.store import plans as sql
from wsrm_mq.store.clock import Clock, wall_clock
from wsrm_mq.store.driver import connect_reader, store_errors
from wsrm_mq.store.identity import identify
from wsrm_mq.store.outside import run_once
from wsrm_mq.store.port import Database
from wsrm_mq.store.store import store_path
from wsrm_mq.store.transaction import Transaction, as_json
from wsrm_mq.store.words import REPLAYED
from wsrm_mq.views import reading
from wsrm_mq.views.query import Query, parse

_COPIED: Final = "copied"
"""More than one store has it: one of them was put back from a copy."""
_OLD: Final = "old"
"""It is older than the marks that the service keeps of finished messages."""
_DAY = 86_400_000
_UNSETTLED = ("held", "ready", "leased", "dead")


class Wishes(NamedTuple):
    """The wishes for a plan. ``target`` is ``app``, ``module:attribute`` or a URL. With ``as_new`` the service takes
    its messages for new ones. With ``skip_missing`` messages without a body are left out. ``marks_kept`` is the time in
    ms for which the service keeps its marks of finished messages; ``None``: it is not known."""

    query: str
    target: str = "app"
    as_new: bool = False
    skip_missing: bool = False
    marks_kept: int | None = None
    actor: str = ""
    reason: str = ""

    def flags(
        self, state: str, received_at: int, now: int, *, breaks_order: bool, copied: bool = False
    ) -> Iterator[str]:
        """The flags of a message in its line."""
        if state == "delivered":
            yield DUPLICATE
        if breaks_order:
            yield BREAKS_ORDER
        if copied:
            yield _COPIED
        if self.marks_kept is not None and received_at < now - self.marks_kept:
            yield _OLD


@dataclass
class Summary:
    """The lines of a plan, or of a part of it, added up. Times in ms since the epoch."""

    messages: int = 0
    bytes: int = 0
    groups: int = 0
    earliest: int | None = None
    latest: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    """The number of messages in each state and with each flag."""
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    """Messages that are left out, by reason."""

    def add(self, line: Line, received_at: int) -> None:
        """Count a line; ``groups`` is not touched."""
        self.messages += 1
        self.bytes += line.size
        self.earliest = min(self.earliest or received_at, received_at)
        self.latest = max(self.latest or 0, received_at)
        self.counts.update((line.state, *line.flags))

    def leave_out(self, why: str, example: str, messages: int = 1) -> None:
        """Count messages that fit the query and are not in the plan."""
        known = self.left_out.get(why, LeftOut(why, 0, example))
        self.left_out[why] = LeftOut(why, known.messages + messages, known.example)

    def refuse_missing(self, wishes: Wishes, missing: Iterable[str], said: str) -> None:
        """Raises ``NotAllowed`` where something is left out for one of the reasons ``missing``, unless the wishes allow
        that."""
        if not wishes.skip_missing and not self.left_out.keys().isdisjoint(missing):
            raise NotAllowed(f"{said}{self._told()} With --skip-missing the plan is made without them.")

    def about(self, wishes: Wishes, now: int, *, is_copied: bool = False) -> dict[str, Any]:
        """Answer the fields of an ``About``. With ``is_copied`` the replayed messages stay in their queues. Raises
        ``NotFound`` where there is no line."""
        if self.earliest is None:
            raise NotFound(f"Nothing that can be replayed fits {wishes.query!r}.{self._told()}")
        wished = wishes._asdict()
        age, marks_kept = now - self.earliest, wished.pop("marks_kept")
        return {
            "wsrm_mq_plan": FORMAT,
            "id": secrets.token_hex(6),
            "made_at": now,
            **wished,
            "messages": self.messages,
            "groups": self.groups,
            "bytes": self.bytes,
            "counts": dict(self.counts),
            "left_out": tuple(self.left_out.values()),
            "warnings": _warnings(wishes.target, wishes.as_new, self.counts, age, marks_kept, is_copied=is_copied),
        }

    def _told(self) -> str:
        listed = (f"{one.messages} {one.why} (such as {one.example})" for one in self.left_out.values())
        return "".join(f" Left out: {text}." for text in listed)


def _warnings(
    target: str, as_new: bool, counts: Counter[str], age: int, marks_kept: int | None, *, is_copied: bool
) -> tuple[str, ...]:
    """``age``: of the oldest message, in ms."""
    unsettled = sum(counts[state] for state in _UNSETTLED)
    known = counts[DUPLICATE]
    texts = []
    if as_new:
        texts.append(
            "Effects repeat: every message has this plan's id as replay id, so the inbox (`once`) takes it for new."
            f" Delivered before, and to be done again: {known}."
        )
    elif known:
        texts.append(
            f"Delivered before: {known}. A service that marks what it has done (`once`) knows them again; any other"
            " does its work again."
        )
        texts += _of_forgotten_marks(counts, age, marks_kept)
    if counts[BREAKS_ORDER]:
        texts.append(
            f"Out of the order of their sequences: {counts[BREAKS_ORDER]}. Messages that this plan leaves out should"
            " come before them, or were delivered after them."
        )
    if counts[_COPIED]:
        texts.append(
            f"In more than one store: {counts[_COPIED]}. One of them was put back from a copy (`wsrm-mq store adopt`);"
            " the plan has each of these messages once."
        )
    if unsettled and is_copied:
        texts.append(
            f"Dead letters: {unsettled}. They stay in the queues of their nodes, and a redrive there would deliver them"
            " once more."
        )
    elif unsettled:
        texts.append(
            f"Undelivered, or dead letters: {unsettled}. The run takes them out of their queues; they are delivered by"
            " it alone. It holds the sequences of undelivered ones until it has ended: what else they have waits."
        )
    if "://" in target:
        texts.append(
            "At least once there: a message whose answer is lost is sent again. Its key goes along in the header"
            f" {KEY_HEADER}, so that the target can know it again."
        )
    return tuple(texts)


def _of_forgotten_marks(counts: Counter[str], age: int, marks_kept: int | None) -> list[str]:
    if marks_kept is None and age < _DAY:
        return []
    if marks_kept is None:
        return [
            f"The oldest message is {age / _DAY:.1f} days old. A service that forgets its marks (`forget`) sooner takes"
            " it for new; --marks-kept says how long it keeps them, and which messages are older."
        ]
    if not counts[_OLD]:
        return []
    return [
        f"Older than the {marks_kept / _DAY:g} days for which the service keeps its marks: {counts[_OLD]}."
        " It takes them for new."
    ]


# The messages of a plan, put in order: a table of its own in a temporary file, so that a million take no memory.
#
# A message runs where it was released when it was received: behind all that precede it in its sequence, else in the
# order of receipt.

_TABLES: Final = """
CREATE TABLE candidate (
    message INTEGER PRIMARY KEY, position INTEGER, sequence INTEGER, number INTEGER, queue TEXT, identifier TEXT,
    message_id TEXT, action TEXT, size INTEGER, received_at INTEGER, state TEXT, standing INTEGER
);
CREATE TABLE bounds (sequence INTEGER PRIMARY KEY, unsettled INTEGER, settled INTEGER);
"""
_ADD: Final = """
INSERT INTO candidate VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (message) DO UPDATE SET position = excluded.position, state = excluded.state, standing = excluded.standing
WHERE excluded.standing > candidate.standing
"""
_SEQUENCES: Final = "SELECT DISTINCT sequence FROM candidate WHERE sequence > 0 ORDER BY sequence"
"""The key of each sequence."""
_LIVE: Final = "SELECT number FROM candidate WHERE sequence = ? AND standing = 2 ORDER BY number"
"""The numbers of a sequence's messages that are not settled, upwards."""
_DOWNWARDS: Final = "SELECT number FROM candidate WHERE sequence = ? ORDER BY number DESC"
"""The numbers of all its messages, downwards."""
_ORDERED: Final = """
SELECT c.*, coalesce(iif(standing = 2, number > b.unsettled, number < b.settled), 0),
       max(position) OVER (PARTITION BY c.sequence ORDER BY number ROWS UNBOUNDED PRECEDING) AS released
FROM candidate c LEFT JOIN bounds b ON b.sequence = c.sequence
ORDER BY released, c.sequence, number
"""


class Standing(enum.IntEnum):
    """The rank of an entry. Where a message has two entries, the one of higher rank is replayed."""

    SETTLED = 0
    DEAD = 1
    LIVE = 2


class Candidate(NamedTuple):
    """``sequence`` is the key of the sequence that the message came in, and ``number`` its number there; see
    ``store.plans.PLANNABLE`` for one that came in no lane."""

    message: int
    position: int
    sequence: int
    number: int
    queue: str
    identifier: str
    message_id: str | None
    action: str | None
    size: int
    received_at: int
    state: str
    standing: Standing


class Ordering:
    """The messages of a plan in the order in which they run, in a temporary file: ``with`` closes and deletes it."""

    def __init__(self, directory: Path) -> None:
        self._file = tempfile.NamedTemporaryFile(dir=directory, prefix=".wsrm-mq-plan-")  # noqa: SIM115
        self._db = sqlite3.connect(self._file.name, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("PRAGMA temp_store = FILE")
        self._db.executescript(_TABLES)
        self._db.execute("BEGIN")

    def __enter__(self) -> Ordering:
        return self

    def __exit__(self, *_error: object) -> None:
        self._db.close()
        self._file.close()

    def add(self, candidates: Iterable[Candidate]) -> None:
        self._db.executemany(_ADD, candidates)

    def end(self) -> None:
        """Note that all messages are there."""
        self._db.execute("CREATE INDEX by_sequence ON candidate (sequence, number)")

    def numbers(self, statement: str, *of: int) -> Iterator[int]:
        """The one column of ``_SEQUENCES``, ``_LIVE`` or ``_DOWNWARDS``."""
        return _numbers(self._db, statement, *of)

    def bound(self, sequence: int, unsettled: int | None, settled: int) -> None:
        """Note the messages of a sequence in order that the plan leaves out: one that is not settled should come before
        the numbers above ``unsettled``; the plan's own numbers below ``settled`` come after one that was delivered."""
        self._db.execute("INSERT INTO bounds VALUES (?, ?, ?)", (sequence, unsettled, settled))

    def ordered(self) -> Iterator[tuple[Candidate, bool]]:
        """Every message in the order in which it runs, and whether that breaks the order of its sequence."""
        for *columns, breaks_order, _released in self._db.execute(_ORDERED):
            yield Candidate._make(columns), bool(breaks_order)


PIECE: Final = 500
"""The number of messages that are read at a time."""

_STANDING: Final = {None: Standing.LIVE, "dead": Standing.DEAD}
_NEVER: Final = {"empty_last_message": "empty last messages, which the service never gets"}
"""Reasons of messages that are settled by themselves, with the reason why they are not replayed."""


def make_plan(where: str | Path, wishes: Wishes, output: Path, *, clock: Clock = wall_clock) -> Header:
    """Write the plan that ``wishes`` ask for to the file ``output``, and its digest to the store at ``where``. Answers
    the plan's header.

    Raises ``QueryError``; ``NotFound`` where nothing fits; ``NotAllowed`` where bodies are missing or the file cannot
    be made; ``StoreError``.
    """
    path, output = store_path(where), output.absolute()
    now = clock()
    query = parse(wishes.query, now)
    with (
        closing(connect_reader(path)) as db,
        store_errors(path),
        _beside(output),
        tempfile.TemporaryFile(dir=output.parent) as lines,
        Ordering(output.parent) as ordering,
    ):
        summary = Summary()
        _select(db, query, ordering, summary)
        deleted = {key: (identifier, messages) for key, identifier, messages in reading.deleted(db, query)}
        for sequence in ordering.numbers(_SEQUENCES):
            summary.groups += 1
            _bound(db, sequence, ordering, summary)
            deleted.pop(sequence, None)
        for identifier, messages in deleted.values():
            summary.leave_out(DELETED, f"sequence {identifier}", messages)
        summary.refuse_missing(wishes, (EMPTIED, DELETED), "Some of it is not there any more.")
        for candidate, breaks_order in ordering.ordered():
            line = _line_of(candidate, wishes, now, breaks_order=breaks_order)
            summary.groups += line.group < 0  # in no sequence: it is one by itself
            lines.write(encoded(line))
            summary.add(line, candidate.received_at)
        header = Header(store=identify(db).id, **summary.about(wishes, now))
        digest = write_plan(output, header, lines)
    _write_down(path, header, digest, output, clock)
    return header


@contextmanager
def _beside(output: Path) -> Iterator[None]:
    """Temporary files lie beside the plan's file, and the store is only read: an error of writing is one of that
    directory."""
    try:
        yield
    except OSError as error:
        raise NotAllowed(_NOT_WRITTEN.format(output, error.strerror)) from error
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise
        raise NotAllowed(_NOT_WRITTEN.format(output, error)) from error


_NOT_WRITTEN: Final = "{}: cannot be written: {}. No plan was made; make room there, or name another file with -o."


def _write_down(path: Path, header: Header, digest: str, output: Path, clock: Clock) -> None:
    names = ("id", "made_at", "actor", "reason", "query", "target", "as_new", "messages")
    row = {name: getattr(header, name) for name in names}

    def verb(tx: Transaction) -> None:
        tx.execute(sql.ADD, {**row, "digest": digest, "file": str(output)})
        what = f"plan {header.id} of {header.messages} messages to {header.target}: {header.reason}"
        tx.ledger("replay_planned", reason=what, actor=header.actor)

    try:
        run_once(path, verb, clock=clock)
    except BaseException:
        output.unlink(missing_ok=True)  # a plan that the store does not know can never run
        raise


# what fits


EMPTIED: Final = "without a body: `retain` has passed"
DELETED: Final = "deleted by retention"


def _select(db: Database, query: Query, ordering: Ordering, summary: Summary) -> None:
    takes_discarded = any(
        term.key in ("outcome", "state") and "discarded" in term.alternatives and not term.is_negated
        for term in query.terms
    )
    found = reading.messages(db, query)
    while states := {one.position: one.state for one in islice(found, PIECE)}:
        rows = db.execute(sql.PLANNABLE, (as_json([*states]),)).fetchall()
        ordering.add(_candidates(rows, states, summary, takes_discarded=takes_discarded))
    ordering.end()


def _candidates(
    rows: list[tuple[Any, ...]], states: dict[int, str], summary: Summary, *, takes_discarded: bool
) -> Iterator[Candidate]:
    for found, message, position, *arrival, outcome, reason, has_body in rows:
        why = _why_not(outcome, reason, has_body, takes_discarded)
        if why:
            summary.leave_out(why, f"position {position}")
            continue
        state = states[found] if found == position else outcome or "ready"
        yield Candidate._make((message, position, *arrival, state, _STANDING.get(outcome, Standing.SETTLED)))


def _why_not(outcome: str | None, reason: str | None, has_body: int, takes_discarded: bool) -> str:
    """Why an entry is left out; empty: it is not."""
    if outcome == "discarded" and reason in _NEVER:
        return _NEVER[reason]
    if outcome == "discarded" and not takes_discarded:
        return "discarded: `outcome:discarded` asks for them"
    return "" if has_body else EMPTIED


def _bound(db: Database, sequence: int, ordering: Ordering, summary: Summary) -> None:
    """Find the messages of a sequence that the plan leaves out, and with which of its own messages they break the
    order."""
    identifier, is_ordered, limit, pruned = db.execute(sql.STANDING, (sequence,)).fetchone()
    if pruned:
        summary.leave_out(DELETED, f"sequence {identifier}", pruned)
    if not is_ordered:
        return
    received = AckRanges(tuple(db.execute(lanes.RANGES, {"lane": sequence})))
    missing = max(limit, received.expected)  # what is missing below the limit was given up
    waited_for = [missing] if missing < received.highest else []
    live = _without(_numbers(db, sql.LIVE_UPWARDS, sequence), ordering.numbers(_LIVE, sequence), lt)
    unsettled = min(chain(islice(live, 1), waited_for), default=None)
    downwards = chain.from_iterable(range(upper, lower - 1, -1) for lower, upper in reversed(received.ranges))
    left = _without(downwards, ordering.numbers(_DOWNWARDS, sequence), gt)
    settled = _without(left, _numbers(db, sql.LIVE_DOWNWARDS, sequence), gt)
    ordering.bound(sequence, unsettled, next((one for one in settled if _was_delivered(db, sequence, one)), 0))


def _numbers(db: Database, statement: str, *of: int) -> Iterator[int]:
    return (number for (number,) in db.execute(statement, of))


def _without(numbers: Iterable[int], others: Iterator[int], before: Callable[[int, int], bool]) -> Iterator[int]:
    """The ``numbers`` that are not among ``others``; both come in the order of ``before``."""
    other = next(others, None)
    for number in numbers:
        while other is not None and before(other, number):
            other = next(others, None)
        if number != other:
            yield number


def _was_delivered(db: Database, sequence: int, number: int) -> bool:
    """Whether a settled number was delivered, in its turn or by a replay. One that retention has deleted may have
    been."""
    became = db.execute(sql.BECAME, {"lane": sequence, "number": number}).fetchone()
    return became is None or became[0] == "delivered" or became[1] == REPLAYED


def _line_of(candidate: Candidate, wishes: Wishes, now: int, *, breaks_order: bool) -> Line:
    return Line(
        group=candidate.sequence,
        position=candidate.position,
        queue=candidate.queue,
        sequence=candidate.identifier,
        number=candidate.number,
        message_id=candidate.message_id,
        action=candidate.action,
        size=candidate.size,
        state=candidate.state,
        flags=tuple(wishes.flags(candidate.state, candidate.received_at, now, breaks_order=breaks_order)),
    )
