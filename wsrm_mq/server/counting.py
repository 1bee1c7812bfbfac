"""The events that a queue server has told are counted in the store, so that metrics show them whichever process is
asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from wsrm_mq.errors import StoreError
from wsrm_mq.node import Node
from wsrm_mq.store.transaction import Transaction

SECONDS: Final = 5.0
"""The time between two writes, however many events there are."""


async def count_events(node: Node) -> None:
    """Write the counts now and then, until it is cancelled."""
    while True:
        await asyncio.sleep(SECONDS)
        counts = node.telling.take_counts()
        if counts:
            try:
                await asyncio.to_thread(node.call, partial(_count, counts=counts))
            except StoreError:
                node.telling.put_back(counts)


def _count(tx: Transaction, counts: Mapping[str, int]) -> None:
    for event, times in counts.items():
        tx.counts["event", 0, event] += times
    tx.count_now()
