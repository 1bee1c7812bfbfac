"""Sequences that were opened and never used: they do not keep their client from opening others.

Some clients open one at each start (Metro). An empty one that was not used for an hour is ended where ``max_sequences``
is reached, the oldest first; until then it may still be used, for as long as was granted.
"""

from __future__ import annotations

from typing import Final

from wsrm_mq.queue.ending import apply_step
from wsrm_mq.queue.room import Room, too_many_sequences
from wsrm_mq.sequence.inbound import Lapsed, receive
from wsrm_mq.sequence.states import ENDED
from wsrm_mq.store import statements as sql
from wsrm_mq.store.transaction import Transaction

__all__ = ["make_way"]

UNUSED_AFTER: Final = 3_600_000
"""Milliseconds without traffic."""
_MOST: Final = 100
"""So many are ended for one request, where the limit was lowered."""


def make_way(tx: Transaction, principal: str | None, address: str | None, room: Room) -> bool:
    """End unused sequences of a peer until it may open another; answers whether it may."""
    statement, who = (sql.UNUSED_OF_ADDRESS, address) if principal is None else (sql.UNUSED_OF_PRINCIPAL, principal)
    ended = key = 0
    for _ in range(_MOST):
        row = {"who": who, "before": tx.now - UNUSED_AFTER, "after": key}
        (key,) = tx.execute(statement, row).fetchone()
        if key is None:
            break
        record = tx.sequence(key)
        if record is None or record.value.received or record.value.active_at > tx.now - UNUSED_AFTER:
            continue  # used by now, in this very transaction
        if record.value.state not in ENDED:  # else by an earlier request of this transaction, unseen by a query
            apply_step(tx, record, receive(record.value, Lapsed(), tx.now), reason="unused; max_sequences was reached")
        ended += 1
        if not too_many_sequences(tx, principal, address, room, but=ended):
            return True
    return False
