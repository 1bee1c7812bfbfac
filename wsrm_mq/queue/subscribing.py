"""Consumers' standing requests: begun, changed and ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.queue.declaring import Declared, let_go, take_for
from wsrm_mq.store import subscribing
from wsrm_mq.store.transaction import Transaction, as_json


class Terms(NamedTuple):
    """The terms that a consumer asks for. ``client``: its name; ``lease``: ms, ``None``: as its first queue says."""

    client: str
    name: str | None = None
    max_backlog: int = 1
    lease: int | None = None
    filter: str | None = None


class Granted(NamedTuple):
    """A subscription. ``key``: its leases are known by it. ``backlog``: how many messages it may have leased at a time.
    ``lease``: ms, ``None``: a lease lasts until it ends. ``consumer``: its name, where one alone may read."""

    key: int
    backlog: int
    lease: int | None
    consumer: str


def subscribe(tx: Transaction, queues: Sequence[Declared], terms: Terms) -> Granted:
    """Begin a subscription. Its backlog is as asked for, and not above the limit of any of its queues. Raises
    ``QueueBusy`` where another consumer alone reads one, and ``ConfigurationError`` where one of several has a
    barrier."""
    barred = next((queue for queue in queues if queue.policy.barrier is not None), None)
    if barred is not None and len(queues) > 1:
        raise ConfigurationError(f"{barred.name} has a `barrier`: subscribe to it by itself.")
    limits = [queue.policy.max_backlog for queue in queues]
    backlog = min([terms.max_backlog, *(limit for limit in limits if limit is not None)])
    lease = queues[0].policy.lease_ms if terms.lease is None else terms.lease
    row = {
        "name": terms.name,
        "client": client_of(tx, terms.client),
        "queue": queues[0].key,
        "filter": terms.filter,
        "asked": terms.max_backlog,
        "granted": backlog,
        "lease": lease,
        "acknowledges": "each",
        "beside": as_json([queue.key for queue in queues[1:]]) if len(queues) > 1 else None,
        "now": tx.now,
    }
    (key,) = tx.execute(subscribing.ADD_SUBSCRIPTION, row).fetchone()
    consumer = f"{terms.client or 'a subscription'} ({key})"
    for queue in queues:
        take_for(tx, queue, consumer)
    return Granted(key, backlog, lease, consumer)


def client_of(tx: Transaction, name: str) -> int:
    """The key of the client of this name of this instance."""
    who = {"instance": tx.instance, "name": name}
    known = tx.execute(subscribing.CLIENT, who).fetchone()
    (key,) = known or tx.execute(subscribing.ADD_CLIENT, {**who, "now": tx.now}).fetchone()
    return int(key)


def client_gone(tx: Transaction, name: str) -> None:
    """The client of this name of this instance is gone, which lives on."""
    tx.execute(subscribing.END_CLIENT, {"instance": tx.instance, "who": name, "now": tx.now})


def unsubscribe(tx: Transaction, queues: Sequence[Declared], granted: Granted) -> None:
    """End a subscription, which has nothing leased."""
    for queue in queues:
        let_go(tx, queue, granted.consumer)
    tx.execute(subscribing.END_SUBSCRIPTION, {"key": granted.key, "now": tx.now})


def replace_filter(tx: Transaction, key: int, filter: str | None) -> None:
    """From now on a subscription gets what fits ``filter``; what it has leased it keeps."""
    tx.execute(subscribing.SET_FILTER, {"key": key, "filter": filter})
