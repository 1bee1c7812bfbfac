"""What a source says of replies that were sent to it in the sequence that it offered: it has them, or lacks them."""

from __future__ import annotations

from wsrm_mq.queue.cursor import settle_cursor
from wsrm_mq.queue.forgetting import forget
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import channels
from wsrm_mq.store.records import Lane, SequenceRecord
from wsrm_mq.store.transaction import Transaction

ENDED = "sequence_ended"
"""Reason of dead letters: the sequence that they had their numbers in was closed or has ended, and they were not
acknowledged."""


def acknowledged(tx: Transaction, record: SequenceRecord, numbers: AckRanges) -> None:
    """The source of ``record`` acknowledges ``numbers`` of the sequence that it has offered."""
    for channel in _numbered(tx, record):
        for lower, upper in numbers:
            tx.execute(channels.SETTLE_RANGE, {"lane": channel.id, "lower": lower, "upper": upper, "now": tx.now})
        settle_cursor(tx, channel)


def wanted(tx: Transaction, record: SequenceRecord, numbers: AckRanges) -> None:
    """The source of ``record`` says that it lacks ``numbers`` (Nack): they are sent again as soon as it is looked."""
    for channel in _numbered(tx, record):
        for lower, upper in numbers:
            tx.execute(channels.SEND_AGAIN, {"lane": channel.id, "lower": lower, "upper": upper})
        channel.wait(tx.now, None)


def give_up(tx: Transaction, record: SequenceRecord) -> None:
    """The sequence that the source of ``record`` has offered is closed or has ended: what is not acknowledged goes to
    the dead letters, or is forgotten where its source was to fetch it."""
    for channel in _numbered(tx, record):
        if channel.due_at is not None:  # it is fetched
            forget(tx, channel)
            continue
        channel.give_up(1, ENDED)


def is_sent(tx: Transaction, record: SequenceRecord) -> bool:
    """Whether replies in the offered sequence leave in requests of this side's own."""
    return tx.execute(channels.CHANNELS_NUMBERED, {"answers": record.id}).fetchone() is not None


def _numbered(tx: Transaction, record: SequenceRecord) -> list[Lane]:
    keys = tx.execute(channels.CHANNELS_NUMBERED, {"answers": record.id}).fetchall()
    return [channel for (key,) in keys if (channel := tx.lane(key)) is not None]
