"""From a query to a frozen plan: what runs, in which order, what of it the service has had before, what order it
breaks, and what is not there any more. Looks in bounded pieces; writes a file, and one row to the store."""

from __future__ import annotations

import secrets
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain, islice
from operator import gt, lt
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from wsrm_mq.errors import NotAllowed, NotFound
from wsrm_mq.queue.replaying import REPLAYED
from wsrm_mq.replay.ordering import Candidate, Ordering, Standing
from wsrm_mq.replay.plan import BREAKS_ORDER, DUPLICATE, FORMAT, OLD, Header, LeftOut, Line, encoded, write_plan
from wsrm_mq.replay.wording import warnings
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import plans as sql
from wsrm_mq.store import sequences
from wsrm_mq.store.database import connect_reader, store_errors
from wsrm_mq.store.identity import identify
from wsrm_mq.store.port import Database
from wsrm_mq.store.store import run_once, store_path
from wsrm_mq.store.transaction import Transaction, as_json
from wsrm_mq.store.writer import Clock, wall_clock
from wsrm_mq.views import reading
from wsrm_mq.views.query import Query, parse

PIECE: Final = 500
"""Messages that are read at a time."""

_STANDING: Final = {None: Standing.LIVE, "dead": Standing.DEAD}
_NEVER: Final = {"empty_last_message": "empty last messages, which the service never gets"}
"""Reasons of what is settled by itself -> why it is not replayed."""


class Wishes(NamedTuple):
    """What a plan is to be. ``target``: ``app``, ``module:attribute`` or a URL. ``as_new``: the service is told that
    its messages are new ones. ``skip_missing``: leave out what has no body any more. ``marks_kept``: how long, in ms,
    the service keeps the marks of what it has done; ``None``: not known."""

    query: str
    target: str = "app"
    as_new: bool = False
    skip_missing: bool = False
    marks_kept: int | None = None
    actor: str = ""
    reason: str = ""


def make_plan(where: str | Path, wishes: Wishes, output: Path, *, clock: Clock = wall_clock) -> Header:
    """Freeze what ``wishes`` ask for as the file ``output``, and write it down in the store at ``where``.

    Raises ``QueryError``; ``NotFound`` where nothing fits; ``NotAllowed`` where bodies are missing, or the file cannot
    be made; ``StoreError``."""
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
        left_out = _LeftOut()
        _select(db, query, ordering, left_out)
        deleted = {key: (identifier, messages) for key, identifier, messages in reading.deleted(db, query)}
        for sequence in ordering.sequences():
            _bound(db, sequence, ordering, left_out)
            deleted.pop(sequence, None)
        for identifier, messages in deleted.values():
            left_out.add(DELETED, f"sequence {identifier}", messages)
        _refuse_missing(left_out, wishes)
        written = _write_lines(ordering, wishes, now, lines)
        if not written.messages:
            raise NotFound(f"Nothing that can be replayed fits {wishes.query!r}.{left_out.told()}")
        header = Header(
            wsrm_mq_plan=FORMAT,
            id=secrets.token_hex(6),
            store=identify(db).id,
            made_at=now,
            actor=wishes.actor,
            reason=wishes.reason,
            query=wishes.query,
            target=wishes.target,
            as_new=wishes.as_new,
            skip_missing=wishes.skip_missing,
            messages=written.messages,
            groups=written.groups,
            bytes=written.size,
            counts=dict(written.counts),
            left_out=left_out.listed(),
            warnings=warnings(wishes.target, wishes.as_new, written.counts, now - written.oldest, wishes.marks_kept),
        )
        digest = write_plan(output, header, lines)
    _write_down(path, header, digest, output, clock)
    return header


@contextmanager
def _beside(output: Path) -> Iterator[None]:
    """What is written until the plan is whole lies beside its file. The store is only read: it is not what is full."""
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


class _LeftOut:
    """What fits the query and is not in the plan, by reason."""

    def __init__(self) -> None:
        self._messages: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def add(self, why: str, example: str, messages: int = 1) -> None:
        self._messages[why] += messages
        self._examples.setdefault(why, example)

    def of(self, *whys: str) -> int:
        return sum(self._messages[why] for why in whys)

    def listed(self) -> tuple[LeftOut, ...]:
        return tuple(LeftOut(why, messages, self._examples[why]) for why, messages in self._messages.items())

    def told(self) -> str:
        listed = (f"{one.messages} {one.why} (such as {one.example})" for one in self.listed())
        return "".join(f" Left out: {text}." for text in listed)


EMPTIED: Final = "without a body: `retain` has passed"
DELETED: Final = "deleted by retention"


def _select(db: Database, query: Query, ordering: Ordering, left_out: _LeftOut) -> None:
    takes_discarded = any(
        term.key in ("outcome", "state") and "discarded" in term.alternatives and not term.is_negated
        for term in query.terms
    )
    found = reading.messages(db, query)
    while states := {one.position: one.state for one in islice(found, PIECE)}:
        rows = db.execute(sql.PLANNABLE, (as_json([*states]),)).fetchall()
        ordering.add(_candidates(rows, states, left_out, takes_discarded=takes_discarded))
    ordering.end()


def _candidates(
    rows: list[tuple[Any, ...]], states: dict[int, str], left_out: _LeftOut, *, takes_discarded: bool
) -> Iterator[Candidate]:
    for found, message, position, *arrival, outcome, reason, has_body in rows:
        why = _why_not(outcome, reason, has_body, takes_discarded)
        if why:
            left_out.add(why, f"position {position}")
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


def _refuse_missing(left_out: _LeftOut, wishes: Wishes) -> None:
    if left_out.of(EMPTIED, DELETED) and not wishes.skip_missing:
        raise NotAllowed(
            f"Some of it is not there any more.{left_out.told()} With --skip-missing the plan is made without them."
        )


def _bound(db: Database, sequence: int, ordering: Ordering, left_out: _LeftOut) -> None:
    """Find out what of a sequence is not in the plan, and where that breaks its order."""
    identifier, is_ordered, limit, pruned = db.execute(sql.STANDING, (sequence,)).fetchone()
    if pruned:
        left_out.add(DELETED, f"sequence {identifier}", pruned)
    if not is_ordered:
        return
    received = AckRanges(tuple(db.execute(sequences.RANGES, {"sequence": sequence})))
    missing = max(limit, received.expected)  # what is missing below the limit was given up
    waited_for = [missing] if missing < received.highest else []
    live = _without(_numbers(db, sql.LIVE_UPWARDS, sequence), ordering.live(sequence), lt)
    unsettled = min(chain(islice(live, 1), waited_for), default=None)
    downwards = chain.from_iterable(range(upper, lower - 1, -1) for lower, upper in reversed(received.ranges))
    left = _without(downwards, ordering.downwards(sequence), gt)
    settled = _without(left, _numbers(db, sql.LIVE_DOWNWARDS, sequence), gt)
    ordering.bound(sequence, unsettled, next((one for one in settled if _was_delivered(db, sequence, one)), 0))


def _numbers(db: Database, statement: str, sequence: int) -> Iterator[int]:
    return (number for (number,) in db.execute(statement, (sequence,)))


def _without(numbers: Iterable[int], others: Iterator[int], before: Callable[[int, int], bool]) -> Iterator[int]:
    """The ``numbers`` that are not among ``others``; both come in the order of ``before``."""
    other = next(others, None)
    for number in numbers:
        while other is not None and before(other, number):
            other = next(others, None)
        if number != other:
            yield number


def _was_delivered(db: Database, sequence: int, number: int) -> bool:
    """Of a settled number: in its turn, or by a replay. What retention has deleted may have been."""
    became = db.execute(sql.BECAME, {"sequence": sequence, "number": number}).fetchone()
    return became is None or became[0] == "delivered" or became[1] == REPLAYED


# its lines


class _Written(NamedTuple):
    messages: int
    groups: int
    size: int
    oldest: int
    """When the first of them was received."""
    counts: Counter[str]


def _write_lines(ordering: Ordering, wishes: Wishes, now: int, lines: IO[bytes]) -> _Written:
    counts: Counter[str] = Counter()
    messages = size = 0
    oldest = now
    for candidate, breaks_order in ordering.ordered():
        flags = tuple(_flags(candidate, breaks_order, now, wishes.marks_kept))
        counts.update((candidate.state, *flags))
        lines.write(encoded(_line(candidate, flags)))
        messages += 1
        size += candidate.size
        oldest = min(oldest, candidate.received_at)
    return _Written(messages, sum(1 for _ in ordering.sequences()), size, oldest, counts)


def _flags(candidate: Candidate, breaks_order: bool, now: int, marks_kept: int | None) -> Iterator[str]:
    if candidate.state == "delivered":
        yield DUPLICATE
    if breaks_order:
        yield BREAKS_ORDER
    if marks_kept is not None and candidate.received_at < now - marks_kept:
        yield OLD


def _line(candidate: Candidate, flags: tuple[str, ...]) -> Line:
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
        flags=flags,
    )
