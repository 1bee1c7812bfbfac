"""What a waiting or repeated request is answered with: read from what was committed."""

from __future__ import annotations

import json
from dataclasses import dataclass

from wsrm_mq.queue.acknowledgement import acknowledged
from wsrm_mq.queue.policy import QueuePolicy
from wsrm_mq.queue.settle import Reply
from wsrm_mq.sequence.elements import SequenceAcknowledgement
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.store import statements as sql
from wsrm_mq.store.port import Database
from wsrm_mq.store.records import SequenceRecord
from wsrm_mq.store.space import space

__all__ = ["Settlement", "settlement"]


@dataclass(frozen=True, slots=True)
class Settlement:
    outcome: str
    reply: Reply | None
    acknowledgement: SequenceAcknowledgement
    """What an acknowledgement of its sequence says now."""


def settlement(db: Database, position: int, policy: QueuePolicy | None = None) -> Settlement | None:
    """How the message at ``position`` was settled; ``None`` while it is not. The acknowledgement tells the room that is
    left where ``policy`` wants that."""
    found = db.execute(sql.OUTCOME_AND_REPLY, {"key": position}).fetchone()
    if found is None or found[0] is None:
        return None
    outcome, sequence, status, headers, body = found
    reply = None if status is None else Reply(status, tuple((n, v) for n, v in json.loads(headers)), body)
    row = db.execute(sql.SEQUENCE_BY_ID, {"key": sequence}).fetchone()
    ranges = AckRanges(tuple(db.execute(sql.RANGES, {"sequence": sequence})))
    unnamed = AckRanges.of(number for (number,) in db.execute(sql.UNNAMED, {"sequence": sequence}))
    record = SequenceRecord.load(row, ranges, unnamed)
    said = record.value.acknowledgement() if policy is None else acknowledged(record, policy, lambda: space(db).used)
    return Settlement(outcome, reply, said)
