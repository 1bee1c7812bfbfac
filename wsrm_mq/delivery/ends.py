"""The end of an offered sequence that is to be told at an address, and that no process of the service has noticed: the
last message of the one that it answers was settled by a consumer, or given up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wsrm_mq.delivery.outgoing_messages import tell_end_of_outbound
from wsrm_mq.queue.outbound import end_of, end_outbound, is_ended_there
from wsrm_mq.queue.ownership import Claim
from wsrm_mq.store.outbound import OVER
from wsrm_mq.store.store import Store
from wsrm_mq.store.transaction import Transaction

_BATCH: Final = 200


class Ends:
    """A chore of the watch. ``give`` takes the claims on what leaves."""

    def __init__(self, store: Store, give: Callable[[Claim], object]) -> None:
        self._store = store
        self._give = give

    def look(self) -> None:
        with self._store.reader() as db:
            rows = db.execute(OVER, {"count": _BATCH, "foreign": self._store.foreign(db)}).fetchall()
        if rows:
            for claim in self._store.call(lambda tx: _end(tx, [key for (key,) in rows])):
                self._give(claim)


def _end(tx: Transaction, keys: Sequence[int]) -> list[Claim]:
    claims: list[Claim] = []
    for key in keys:
        outbound = tx.outbound(key)
        if outbound is None or not outbound.value.is_open:
            continue
        end_outbound(tx, outbound)
        if is_ended_there(outbound):
            claims += tell_end_of_outbound(tx, end_of(outbound)).claims
    return claims
