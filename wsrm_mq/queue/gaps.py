"""Gaps that stay open: the ledger tells of each once, and its source may be asked for what is missing.

Nothing follows from it: what is held stays held, and is delivered when the gap is filled (Q-052).
"""

from __future__ import annotations

from typing import Final

from wsrm_mq.queue.acknowledgement import DueAcknowledgement
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.sequence.states import State
from wsrm_mq.store.gaps import GAP_OPEN
from wsrm_mq.store.transaction import Transaction

_MOST_ASKED: Final = 128
"""The most numbers that are asked for at a time: the first ones."""


def tell_gaps(tx: Transaction, keys: list[int]) -> list[DueAcknowledgement]:
    """Write down what the sequences of these keys wait for. Those that have an address for acknowledgements are to be
    asked for it."""
    nacks = []
    for key in keys:
        record = tx.sequence(key)
        if record is None or not record.held or record.value.state is not State.CREATED:
            continue
        value = record.value
        first = max(value.limit, value.expected)
        missing = AckRanges(((first, value.received.highest),)).without(value.received)
        if not missing:
            continue
        tx.ledger(GAP_OPEN, record, number=first, reason=f"missing {missing}")
        if record.acks_to is not None:
            said = SequenceAcknowledgement(value.terms.identifier, nacks=_first_numbers(missing))
            nacks.append(DueAcknowledgement(key, record.sender, record.acks_to, value.terms, said))
    return nacks


def _first_numbers(ranges: AckRanges) -> tuple[int, ...]:
    numbers: list[int] = []
    for lower, upper in ranges:
        numbers += range(lower, min(upper, lower + _MOST_ASKED - len(numbers) - 1) + 1)
        if len(numbers) == _MOST_ASKED:
            break
    return tuple(numbers)
