"""A unit of work that knows sequences.

A verb asks for a sequence and changes the record it is given; ``flush`` writes each changed one once, before COMMIT,
however many verbs of the batch touched it. The record is the cache's own: any rollback empties the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from wsrm_mq.errors import LeftAlone
from wsrm_mq.events.table import EVENTS, FROM_LEDGER
from wsrm_mq.sequence.ranges import AckRange, AckRanges
from wsrm_mq.sequence.states import State
from wsrm_mq.store import entries, sequences
from wsrm_mq.store.bulk import CHANGED, PROGRESS, RANGES, STEADY, Row
from wsrm_mq.store.channels import ADD_CHANNEL, CHANNEL, DROP_CHANNEL, Channel
from wsrm_mq.store.outgoing import ADD_OUTGOING, ANSWERED_BY, DROP_OUTGOING, IDENTIFIER_IN_USE, SAVE_OUTGOING, Outgoing
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.unit_of_work import Session, UnitOfWork, as_json

__all__ = ["Transaction", "as_json"]

_STEADY: Final = len(sequences.STEADY_COLUMNS)
_PROGRESS: Final = len(sequences.PROGRESS_COLUMNS)
_HELD: Final = sequences.PROGRESS_COLUMNS.index("held")
"""``held_bytes`` follows it."""
_NOTHING: Final[Mapping[str, str | None]] = MappingProxyType({})


class Transaction(UnitOfWork):
    """A transaction in progress; see ``UnitOfWork``."""

    def __init__(self, session: Session, now: int, reached: int | None = None) -> None:
        super().__init__(session, now, reached)
        self._sequences = session.cache.sequences
        self._touched: dict[int, SequenceRecord] = {}
        self._taken = self._sent = 0
        self._held = self._held_bytes = 0
        """How much more is held after it."""

    def sequence(self, key: int) -> SequenceRecord | None:
        """The sequence with this key, to be read and changed; ``None`` where there is none."""
        record = self._touched.get(key) or self._sequences.records.get(key)
        if record is None:
            row = self.execute(sequences.SEQUENCE_BY_ID, {"key": key}).fetchone()
            if row is None:
                return None
            record = self._load(row)
        self._touched[key] = record
        return record

    def takes_slot(self) -> bool:
        """Whether there is a thread for one sequence more; then it is that one's."""
        has_slot = self._cache.has_slot(self._taken)
        self._taken += has_slot
        return has_slot

    def left_alone(self, url: str, who: str | None, waited: float) -> LeftAlone | None:
        """Why nothing is sent to ``url`` because of ``who`` now; ``None``: it has its place among those that are."""
        left_alone = self._cache.left_alone(url, who, waited, self._sent)
        self._sent += left_alone is None
        return left_alone

    def sequence_named(self, identifier: str) -> SequenceRecord | None:
        key = self._sequences.keys.get(identifier)
        if key is None:
            row = self.execute(sequences.SEQUENCE_BY_IDENTIFIER, {"identifier": identifier}).fetchone()
            if row is None:
                return None
            key = row[0]
            if key not in self._touched:
                self._touched[key] = self._load(row)
        return self.sequence(key)

    def add_sequence(self, record: SequenceRecord, create_id: str | None) -> SequenceRecord:
        row = {**record.terms_row, **record.saved_row, "create_id": create_id}
        record.id = self.execute(sequences.ADD_SEQUENCE, row).lastrowid or 0
        record.mark_written()
        self._touched[record.id] = record
        return record

    def forget_sequence(self, key: int) -> None:
        """Delete a sequence and its ranges. It has no entry any more."""
        self._touched.pop(key, None)
        self._sequences.drop(key)
        self.execute(sequences.DROP_RANGES, {"sequence": key})
        self.execute(DROP_OUTGOING, {"sequence": key})
        self.execute(DROP_CHANNEL, {"sequence": key})
        self.execute(sequences.DROP_SEQUENCE, {"key": key})

    def add_outgoing(self, record: SequenceRecord, outgoing: Outgoing) -> bool:
        """Have the replies to a sequence go out in another; answers whether that has a name of its own."""
        if self.execute(IDENTIFIER_IN_USE, {"identifier": outgoing.value.terms.identifier}).fetchone():
            return False
        self.execute(ADD_OUTGOING, outgoing.row(record.id))
        record.outgoing = record.written_outgoing = outgoing
        return True

    def drop_outgoing(self, record: SequenceRecord) -> None:
        """Forget the sequence that the replies to this one would go out in. Its name is free again."""
        self.execute(DROP_OUTGOING, {"sequence": record.id})
        record.outgoing = record.written_outgoing = None

    def channel(self, channel: Channel) -> SequenceRecord | None:
        """The sequence of kind outgoing that leads there; ``None`` where there is none."""
        found = self.execute(CHANNEL, channel.row).fetchone()
        return None if found is None else self.sequence(found[0])

    def add_channel(self, record: SequenceRecord, channel: Channel) -> SequenceRecord:
        """Add a sequence of kind outgoing."""
        record = self.add_sequence(record, None)
        self.execute(ADD_CHANNEL, {"sequence": record.id, **channel.row})
        return record

    def answered_by(self, identifier: str) -> SequenceRecord | None:
        """The sequence whose replies go out in the one of this name; ``None`` where none is known."""
        found = self.execute(ANSWERED_BY, {"identifier": identifier}).fetchone()
        return None if found is None else self.sequence(found[0])

    @property
    def changed_sequences(self) -> set[int]:
        """Keys of those that this transaction was asked for: what it made of them, no query sees before
        ``write_sequences``."""
        return set(self._touched)

    def _load(self, row: tuple[object, ...]) -> SequenceRecord:
        key = row[0]
        ranges = tuple(self.execute(sequences.RANGES, {"sequence": key}))
        unnamed = AckRanges.of(number for (number,) in self.execute(entries.UNNAMED, {"sequence": key}))
        return SequenceRecord.load(row, AckRanges(ranges), unnamed)

    @property
    def held_in_all(self) -> tuple[int, int]:
        """Messages and bytes that all sequences hold, as last committed: a bound on it is kept but for one batch."""
        if self._sequences.held_in_all is None:
            messages, size = self.db.execute(sequences.HELD_IN_ALL).fetchone()
            self._sequences.held_in_all = (messages, size)
        return self._sequences.held_in_all

    def ledger(
        self,
        event: str,
        record: SequenceRecord | None = None,
        *,
        number: int | None = None,
        position: int | None = None,
        attempt: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
        failure: Mapping[str, str | None] = _NOTHING,
        is_told: bool = True,
    ) -> None:
        """``add_ledger``, about a sequence where there is one. It is told once it is committed. ``failure``: the
        columns ``fault``, ``exception`` and ``place`` of an attempt that did not go well."""
        self.add_ledger(
            event,
            record.queue if record else None,
            sequence=record.id if record else None,
            number=number,
            position=position,
            attempt=attempt,
            reason=reason,
            actor=actor,
            **failure,
        )
        if is_told and record is not None and event in FROM_LEDGER:
            self.notices.append(_notice(event, record, number, attempt, reason, is_act=actor is not None))

    def flush(self) -> None:
        super().flush()
        self.write_sequences()

    def write_sequences(self) -> None:
        """Write the sequences that were changed: a query sees them from then on."""
        changed: list[Row] = []
        progressed: list[Row] = []
        steady: list[Row] = []
        ranges: list[Row] = []
        for key, record in self._touched.items():
            before, ranges_before = record.written
            after, ranges_after = record.mark_written()
            self._held += after[_HELD] - before[_HELD]
            self._held_bytes += after[_HELD + 1] - before[_HELD + 1]
            if after[_PROGRESS:] != before[_PROGRESS:]:
                changed.append((key, *record.saved_row.values()))
            elif after[_STEADY:] != before[_STEADY:]:
                progressed.append((key, *after[:_PROGRESS]))
            elif after != before:
                steady.append((key, *after[:_STEADY]))
            if ranges_after is not ranges_before:
                ranges += self._changed_ranges(key, ranges_before, ranges_after)
            if record.outgoing is not None and record.outgoing is not record.written_outgoing:
                self.db.execute(SAVE_OUTGOING, record.outgoing.row(key))
                record.written_outgoing = record.outgoing
        for bulk, rows in ((CHANGED, changed), (PROGRESS, progressed), (STEADY, steady), (RANGES, ranges)):
            if rows:
                bulk.write(self.db.execute, rows)

    def _changed_ranges(self, key: int, before: tuple[AckRange, ...], after: tuple[AckRange, ...]) -> list[Row]:
        """The rows to write; what is no longer there is deleted."""
        if before[:-1] == after[:-1] and before and after[-1][0] == before[-1][0]:  # in order: nearly every message
            return [(key, *after[-1])]
        same = _same_at_the_beginning(before, after)
        before, after = before[same:], after[same:]
        gone = {lower for lower, _ in before}.difference(lower for lower, _ in after)
        for lower in gone:
            self.db.execute(sequences.DROP_RANGE, {"sequence": key, "key": lower})
        return [(key, *changed) for changed in set(after).difference(before)]

    def committed(self) -> None:
        super().committed()
        self._sequences.keep(self._touched.values())
        self._sequences.held_changed(self._held, self._held_bytes)


_REASONS: Final = {"failed": "error", "blocked": "error", "dead": "error", "answered_with_fault": "error"}


def _notice(
    event: str, record: SequenceRecord, number: int | None, attempt: int | None, reason: str | None, *, is_act: bool
) -> tuple[str, dict[str, Any]]:
    has_failed = event == "ended" and record.value.state is State.FAILED and not is_act
    fields = {
        "sequence": record.value.terms.identifier,
        "number": number,
        "attempt": attempt,
        _REASONS.get(event, "reason"): reason,
    }
    name = "sequence.failed" if has_failed else FROM_LEDGER[event]
    told = EVENTS[name].fields
    return name, {field: value for field, value in fields.items() if value is not None and field in told}


def _same_at_the_beginning(one: tuple[AckRange, ...], other: tuple[AckRange, ...]) -> int:
    """How many ranges at the beginning are the same, about: found by comparing slices, which costs next to nothing for
    each range. What changes is mostly near the end, and there may be thousands before it."""
    same, step = 0, min(len(one), len(other))
    while step:
        if one[same : same + step] == other[same : same + step]:
            same += step
        step //= 2
    return same
