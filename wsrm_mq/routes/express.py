"""Express messages for other nodes: they go in sequences of their own, and are of one run of their store.

A run ends when no process has the store open any more, killed or not. Its sequences take nothing more then: a loss of
power may have taken what was put last, so its numbers are never given again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wsrm_mq.delivery.outgoing_messages import tell_end_of_outbound
from wsrm_mq.events.table import FROM_LEDGER
from wsrm_mq.queue import requests
from wsrm_mq.queue.express import LOST
from wsrm_mq.queue.outbound import lanes_of
from wsrm_mq.queue.ownership import count_unsettled
from wsrm_mq.queue.routing import node_name
from wsrm_mq.store import routing
from wsrm_mq.store.transaction import Transaction

if TYPE_CHECKING:
    from wsrm_mq.queue.ownership import Claim

_EVENT: Final = "express_lost"


def end_earlier_runs(tx: Transaction) -> tuple[Claim, ...]:
    """Give up what earlier runs have left: it is counted and told, and is among the dead letters. Answers the claims on
    what tells the next nodes so."""
    claims: list[Claim] = []
    mine = f"%#{node_name(tx).incarnation}"
    for key, queue in tx.execute(routing.EXPRESS_BEFORE, {"mine": mine}).fetchall():
        outbound = tx.outbound(key)
        assert outbound is not None
        count = sum(count_unsettled(tx, lane, 1) for lane in lanes_of(tx, outbound))
        end = requests.terminate(tx, outbound, LOST)
        claims += () if end is None else tell_end_of_outbound(tx, end).claims
        if count:
            reason = f"{count} for the node at {outbound.peer}, with the run of the store that had them"
            tx.add_ledger(_EVENT, outbound.queue, reason=reason)
            tx.notices.append((FROM_LEDGER[_EVENT], {"queue": queue, "reason": reason}))
    return tuple(claims)
