"""A unit of work that knows lanes, and the sequences that rule them.

A verb asks for a lane and changes the record it is given; ``flush`` writes each changed one once, before COMMIT,
however many verbs of the batch touched it. The record is the cache's own: any rollback empties the cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from wsrm_mq.errors import LeftAlone
from wsrm_mq.events.table import EVENTS, FROM_LEDGER
from wsrm_mq.sequence.outbound import RoundTrips
from wsrm_mq.sequence.ranges import AckRange
from wsrm_mq.sequence.states import State
from wsrm_mq.store import lanes
from wsrm_mq.store import outbound as outbounds
from wsrm_mq.store.bulk import CHANGED, LOOSE, PROGRESS, PROTOCOL, RANGES, STEADY, Bulk, Row
from wsrm_mq.store.channels import ADD_CHANNEL, CHANNEL, DROP_CHANNEL, Channel
from wsrm_mq.store.loose import ADD_LOOSE, LOOSE_ENTRY, LooseEntry
from wsrm_mq.store.outbound import OutboundRecord
from wsrm_mq.store.port import Parameters
from wsrm_mq.store.records import About, Lane, SequenceRecord, loaded
from wsrm_mq.store.unit_of_work import Session, UnitOfWork, as_json

__all__ = ["Transaction", "as_json"]

_STEADY: Final = len(lanes.STEADY_COLUMNS)
_PROGRESS: Final = len(lanes.PROGRESS_COLUMNS)
_HELD: Final = lanes.PROGRESS_COLUMNS.index("held")
"""``held_bytes`` follows it."""
_NOTHING: Final[Mapping[str, str | None]] = MappingProxyType({})


class Transaction(UnitOfWork):
    """A transaction in progress; see ``UnitOfWork``."""

    def __init__(self, session: Session, now: int, reached: int | None = None) -> None:
        super().__init__(session, now, reached)
        self._lanes = session.cache.lanes
        self._touched: dict[int, Lane] = {}
        self._outbound: dict[int, OutboundRecord] = {}
        """Outbound sequences that answer none, as far as they were asked for. Any other is kept with the sequence that
        it answers."""
        self._loose: dict[int, LooseEntry] = {}
        self._taken = self._sent = 0
        self._held = self._held_bytes = 0
        """The number of messages, and of bytes, that are held more after this transaction."""

    def lane(self, key: int) -> Lane | None:
        """The lane with this key, to be read and changed; ``None`` where there is none."""
        lane = self._touched.get(key) or self._lanes.records.get(key)
        if lane is None:
            row = self.execute(lanes.LANE_BY_ID, {"key": key}).fetchone()
            if row is None:
                return None
            lane = loaded(self, row)
        self._touched[key] = lane
        return lane

    def lanes_by(self, statement: str, parameters: Parameters = ()) -> list[Lane]:
        """The lanes whose keys stand first in the rows that a statement answers."""
        found = [self.lane(key) for key, *_rest in self.execute(statement, parameters).fetchall()]
        return [lane for lane in found if lane is not None]

    def sequence(self, key: int) -> SequenceRecord | None:
        """The sequence that rules the lane with this key; ``None`` where none does."""
        lane = self.lane(key)
        return lane if isinstance(lane, SequenceRecord) else None

    def loose_entry(self, position: int) -> LooseEntry | None:
        """The entry at ``position``, which is in no lane; ``None`` where there is none."""
        one = self._loose.get(position)
        if one is None:
            row = self.execute(LOOSE_ENTRY, {"key": position}).fetchone()
            if row is None:
                return None
            one = self._loose[position] = LooseEntry.load(position, row)
        return one

    def add_loose_entry(self, one: LooseEntry, position: int) -> None:
        """Add what an entry that is in no lane came with; the entry itself is there."""
        one.position = position
        self.execute(ADD_LOOSE, one.own_row)
        self._loose[position] = one

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

    @property
    def round_trips(self) -> RoundTrips:
        return self._cache.round_trips

    def lane_named(self, identifier: str) -> Lane | None:
        """The lane with this identifier; ``None`` where there is none."""
        key = self._lanes.keys.get(identifier)
        if key is None:
            row = self.execute(lanes.LANE_BY_IDENTIFIER, {"identifier": identifier}).fetchone()
            if row is None:
                return None
            key = row[0]
            if key not in self._touched:
                self._touched[key] = loaded(self, row)
        return self.lane(key)

    def sequence_named(self, identifier: str) -> SequenceRecord | None:
        """The sequence with this identifier; ``None`` where there is none."""
        lane = self.lane_named(identifier)
        return lane if isinstance(lane, SequenceRecord) else None

    def add_lane(self, lane: Lane) -> None:
        """Add a lane, which gets its key."""
        (lane.id,) = self.execute(lanes.ADD_LANE, lane.row).fetchone()
        lane.mark_written()
        self._touched[lane.id] = lane

    def add_sequence(self, record: SequenceRecord, create_id: str | None) -> None:
        """Add a sequence with its lane. ``create_id``: the CreateSequence that it answers."""
        self.add_lane(record)
        row = {**record.protocol_row, "lane": record.id, "create_id": create_id}
        self.execute(lanes.ADD_SEQUENCE, row)

    def forget_lane(self, key: int) -> None:
        """Delete a lane, and the sequence that rules it. It has no entry any more."""
        self._touched.pop(key, None)
        self._lanes.drop(key)
        self.execute(lanes.DROP_RANGES, {"lane": key})
        self.execute(outbounds.DROP_ANSWERING, {"answers": key})
        for (outbound,) in self.execute(DROP_CHANNEL, {"lane": key}).fetchall():
            self.execute(outbounds.DROP_OVER, {"id": outbound})
            self._cache.requesting.drop(outbound)
        self.execute(lanes.DROP_SEQUENCE, {"key": key})
        self.execute(lanes.DROP_LANE, {"key": key})

    def outbound(self, key: int) -> OutboundRecord | None:
        """The outbound sequence with this key, to be read and changed; ``None`` where there is none."""
        return self._outbound_of(self._cache.requesting.records.get(key), outbounds.FOUND_BY_ID, {"id": key})

    def outbound_named(self, identifier: str) -> OutboundRecord | None:
        """The outbound sequence with this identifier; ``None`` where there is none."""
        known = self._cache.requesting.named(identifier)
        return self._outbound_of(known, outbounds.FOUND_BY_IDENTIFIER, {"identifier": identifier})

    def newest_requesting(self, queue: int, to: Mapping[str, str]) -> OutboundRecord | None:
        """The newest sequence of requests in a queue, in the versions ``to`` names; ``None`` where there is none."""
        which = (queue, *to.values())
        key = self._cache.requesting.newest.get(which)
        if key is None:
            found = self.execute(outbounds.LAST_REQUESTING, {"queue": queue, **to}).fetchone()
            if found is None:
                return None
            key = self._cache.requesting.newest[which] = found[0]
        return self.outbound(key)

    def _outbound_of(
        self, known: OutboundRecord | None, statement: str, parameters: Mapping[str, object]
    ) -> OutboundRecord | None:
        if known is not None:
            self._outbound[known.id] = known
            return known
        found = self.execute(statement, parameters).fetchone()
        if found is None:
            return None
        key, answers, *_rest = found
        if answers is not None:
            answered = self.sequence(answers)
            return None if answered is None else answered.outbound
        if key not in self._outbound:
            self._outbound[key] = outbounds.loaded(found)
            self._cache.requesting.keep(self._outbound[key])
        return self._outbound[key]

    def add_outbound(self, record: OutboundRecord) -> bool:
        """Add an outbound sequence, which gets its key; answers whether it has a name of its own."""
        if self.execute(outbounds.IDENTIFIER_IN_USE, {"identifier": record.value.terms.identifier}).fetchone():
            return False
        (record.id,) = self.execute(outbounds.ADD_OUTBOUND, record.row).fetchone()
        record.written = record.value
        if record.answered is None:
            self._outbound[record.id] = record
            self._cache.requesting.keep(record)
            self._cache.requesting.newest.clear()
        else:
            record.answered.outbound = record
        return True

    def agree(self, record: OutboundRecord) -> None:
        """The destination of an outbound sequence has given it its name."""
        self.execute(outbounds.AGREE, record.row)

    def has_replied(self, record: OutboundRecord, number: int) -> None:
        """A reply of this number has come in the sequence that ``record`` offers."""
        record.replied = record.replied.add(number)
        self.execute(outbounds.REPLIED, record.row)

    def drop_answering(self, record: SequenceRecord) -> None:
        """Forget the outbound sequence that the replies to this one would go out in. Its name is free again."""
        self.execute(outbounds.DROP_ANSWERING, {"answers": record.id})
        record.outbound = None

    def about(self, answers: int | None, outbound: int | None) -> About | None:
        """The sequence that a channel is about."""
        if answers is not None:
            return self.sequence(answers)
        return None if outbound is None else self.outbound(outbound)

    def channel(self, channel: Channel) -> Lane | None:
        """The lane of kind outgoing that leads there; ``None`` where there is none."""
        found = self.execute(CHANNEL["answers" if channel.outbound is None else "outbound"], channel.row).fetchone()
        return None if found is None else self.lane(found[0])

    def add_channel(self, lane: Lane, channel: Channel) -> None:
        """Add a lane of kind outgoing."""
        self.add_lane(lane)
        self.execute(ADD_CHANNEL, {"lane": lane.id, **channel.row})

    @property
    def changed_lanes(self) -> set[int]:
        """Keys of those that this transaction was asked for: what it made of them, no query sees before
        ``write_lanes``."""
        return set(self._touched)

    @property
    def held_in_all(self) -> tuple[int, int]:
        """Messages and bytes that all lanes hold, as last committed: a bound on it is kept but for one batch."""
        if self._lanes.held_in_all is None:
            messages, size = self.db.execute(lanes.HELD_IN_ALL).fetchone()
            self._lanes.held_in_all = (messages, size)
        return self._lanes.held_in_all

    def ledger(
        self,
        event: str,
        lane: Lane | None = None,
        *,
        number: int | None = None,
        position: int | None = None,
        attempt: int | None = None,
        reason: str | None = None,
        actor: str | None = None,
        failure: Mapping[str, str | None] = _NOTHING,
        is_told: bool = True,
    ) -> None:
        """``add_ledger``, about a lane where there is one. It is told once it is committed. ``failure``: the
        columns ``fault``, ``exception`` and ``place`` of an attempt that did not go well."""
        if isinstance(lane, LooseEntry):  # it has neither lane nor number
            number = None
        said = {"number": number, "position": position, "attempt": attempt, "reason": reason, "actor": actor}
        queue, sequence = (None, None) if lane is None else (lane.queue, lane.id or None)
        self.add_ledger(event, queue, sequence=sequence, **said, **failure)
        if is_told and lane is not None and event in FROM_LEDGER:
            self.notices.append(_notice(event, lane, said))

    def flush(self) -> None:
        super().flush()
        self.write_lanes()

    def write_lanes(self) -> None:
        """Write the lanes, sequences and loose entries that were changed: a query sees them from then on."""
        rows: defaultdict[Bulk, list[Row]] = defaultdict(list)
        for outbound in self._outbound.values():
            self._write_outbound(outbound)
        for key, lane in self._touched.items():
            before, ranges_before, protocol_before = lane.written, lane.written_ranges, lane.written_protocol
            if isinstance(lane, SequenceRecord) and lane.outbound is not None:
                self._write_outbound(lane.outbound)
            lane.mark_written()
            if lane.written_protocol != protocol_before:
                rows[PROTOCOL].append((*lane.written_protocol, key))
            after, ranges_after = lane.written, lane.written_ranges
            self._held += after[_HELD] - before[_HELD]
            self._held_bytes += after[_HELD + 1] - before[_HELD + 1]
            if after[_PROGRESS:] != before[_PROGRESS:]:
                rows[CHANGED].append((*after, key))
            elif after[_STEADY:] != before[_STEADY:]:
                rows[PROGRESS].append((*after[:_PROGRESS], key))
            elif after != before:
                rows[STEADY].append((*after[:_STEADY], key))
            if ranges_after is not ranges_before:
                rows[RANGES] += self._changed_ranges(key, ranges_before, ranges_after)
        for position, one in self._loose.items():
            if one.is_unsettled and one.saved != one.written:
                one.mark_written()
                rows[LOOSE].append((*one.written, position))
        for kind, its in rows.items():
            kind.write(self.execute, its)

    def _write_outbound(self, record: OutboundRecord) -> None:
        if record.value is not record.written:
            self.db.execute(outbounds.SAVE_OUTBOUND, record.row)
            record.written = record.value

    def _changed_ranges(self, key: int, before: tuple[AckRange, ...], after: tuple[AckRange, ...]) -> list[Row]:
        """The rows to write; what is no longer there is deleted."""
        if before[:-1] == after[:-1] and before and after[-1][0] == before[-1][0]:  # in order: nearly every message
            return [(key, *after[-1])]
        same = _same_at_the_beginning(before, after)
        before, after = before[same:], after[same:]
        gone = {lower for lower, _ in before}.difference(lower for lower, _ in after)
        for lower in gone:
            self.db.execute(lanes.DROP_RANGE, {"lane": key, "key": lower})
        return [(key, *changed) for changed in set(after).difference(before)]

    def committed(self) -> None:
        super().committed()
        self._lanes.keep(self._touched.values(), self._held, self._held_bytes)


_REASONS: Final = {"failed": "error", "blocked": "error", "dead": "error", "answered_with_fault": "error"}


def _notice(event: str, lane: Lane, said: Mapping[str, int | str | None]) -> tuple[str, dict[str, Any]]:
    has_failed = event == "ended" and lane.ended == State.FAILED and said["actor"] is None
    fields = {
        "sequence": lane.identifier or None,
        "number": said["number"],
        "position": None if lane.identifier else said["position"],
        "attempt": said["attempt"],
        _REASONS.get(event, "reason"): said["reason"],
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
