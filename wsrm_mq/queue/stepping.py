"""The protocol step of a sequence, on the row that a transaction has read."""

from __future__ import annotations

from typing import Any

from wsrm_mq.sequence.inbound import Input, Step, receive
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.transaction import Transaction


def step_of(tx: Transaction, record: SequenceRecord, event: Input, **asked: Any) -> Step:
    """What ``receive`` answers now: the clock ends the sequence first, as far as it is believed."""
    return receive(record.value, event, tx.now, reached=tx.reached, **asked)
