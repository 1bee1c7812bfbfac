"""What waits to be fetched is not kept for ever."""

from __future__ import annotations

from wsrm_mq.store.fetching import FORGET, FORGOTTEN
from wsrm_mq.store.records import Lane
from wsrm_mq.store.transaction import Transaction


def forget(tx: Transaction, channel: Lane) -> None:
    """Nothing of what waits to be fetched there is kept any longer, and the ledger says so (MC-009). It is no dead
    letter: whether it is fetched is its client's affair."""
    count = tx.execute(FORGET, {"lane": channel.id, "now": tx.now}).rowcount
    channel.due_at, channel.cursor = None, channel.limit
    if count:
        tx.ledger("discarded", channel, reason=f"{FORGOTTEN}: {count}")
