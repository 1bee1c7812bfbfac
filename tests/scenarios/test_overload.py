"""More than the store can commit: 503 at once, nothing lost, no memory without end, and soon all is well again.

Capacity is what the store can commit while another program holds its write lock most of the time and lets one commit
pass at a time: a slow disk would do the same. ``OVERLOAD_SECONDS`` makes it longer (``make overload``).
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.orders import Orders
from tests.support.orders_server import OrdersServer
from tests.support.source import Source

LASTS = (
    [(float(os.environ["OVERLOAD_SECONDS"]), 5.0)]
    if "OVERLOAD_SECONDS" in os.environ
    else [pytest.param(6.0, 2.0, marks=pytest.mark.brief), pytest.param(12.0, 5.0, marks=pytest.mark.long)]
)
"""Seconds of it, and after how many all is well again."""
CONNECTIONS = 48
QUEUED = 6
MOST_GROWTH = CONNECTIONS * 2**20

LOCKED = 0.08
"""Seconds of the other program's write transaction, at first."""

MOST_CAPACITY = 120.0
"""Messages a second. The clients, which are Python too, have to be able to send twice of what the store can take; how
much that is depends on the disk, so the other program holds its lock for longer until it is no more than this."""


class SlowStore:
    """Another program that writes to the store, but for the time of one commit of the server's in between.

    Were it free for a fixed time, how many commits find that gap would depend on how the clients send, and capacity,
    which is measured with a few hasty clients, would be another one under many patient ones.
    """

    def __init__(self, store: Path) -> None:
        self.locked = LOCKED
        self._store = store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        db = sqlite3.connect(self._store, isolation_level=None, timeout=10)
        while not self._stop.is_set():
            db.execute("begin immediate")
            time.sleep(self.locked)
            db.execute("rollback")
            version = db.execute("pragma data_version").fetchone()
            while db.execute("pragma data_version").fetchone() == version and not self._stop.wait(0.001):
                pass
        db.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@dataclass
class Client:
    """A source that sends its next number when its time comes; what was not acknowledged it sends again."""

    source: Source
    identifier: str
    acknowledged: int = 0
    refused: list[tuple[float, float]] = field(default_factory=list)
    """When a 503 came, and how many seconds that took."""
    others: list[int] = field(default_factory=list)
    """Status of what should not have been answered."""

    def send(self) -> None:
        begun = time.monotonic()
        answer = self.source.put(self.identifier, self.acknowledged + 1)
        now = time.monotonic()
        if answer.status == 503:
            assert int(answer.fields["retry-after"]) > 0
            self.refused.append((now, now - begun))
        elif answer.status == 200 and answer.acked == [(1, self.acknowledged + 1)]:
            self.acknowledged += 1
        else:
            self.others.append(answer.status)

    def go_on(self, every: float, until: float) -> None:
        """Send every so many seconds, late or not; 0: as soon as there was an answer."""
        due = time.monotonic()
        while (now := time.monotonic()) < until:
            if now < due:
                time.sleep(min(due - now, until - now))
                continue
            self.send()
            due = max(due + every, now - every)


def together(clients: list[Client], rate: float | None, seconds: float) -> float:
    """All of them send at ``rate`` messages a second in sum; answers what was acknowledged in a second."""
    before = sum(client.acknowledged for client in clients)
    every = len(clients) / rate if rate else 0.0
    begun = time.monotonic()
    threads = [threading.Thread(target=client.go_on, args=(every, begun + seconds)) for client in clients]
    for number, thread in enumerate(threads):
        thread.start()
        time.sleep(every / len(threads) if number < len(threads) - 1 else 0)
    for thread in threads:
        thread.join()
    return (sum(client.acknowledged for client in clients) - before) / (time.monotonic() - begun)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OrdersServer]:
    server = OrdersServer(tmp_path, threads=CONNECTIONS + 8, bounds={"wsrm_mq.engine.Store": {"max_queued": QUEUED}})
    server.start()
    yield server
    server.stop()


@pytest.mark.timed
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seconds", "recovery"), LASTS)
def test_at_twice_the_capacity_some_are_turned_away_at_once_and_nothing_is_lost(
    server: OrdersServer, speak: Orders, seconds: float, recovery: float
) -> None:
    sources = [Source(server, speak) for _ in range(CONNECTIONS)]
    clients = [Client(source, source.create()) for source in sources]
    slow = SlowStore(server.store)
    try:
        while (capacity := together(clients[:QUEUED], None, 4)) > MOST_CAPACITY and slow.locked < 0.5:
            slow.locked *= min(capacity / MOST_CAPACITY, 4)
        assert not any(client.refused for client in clients), "as many as may be queued are all taken"
        assert capacity > 1
        before = server.memory()
        taken_before = sum(client.acknowledged for client in clients)

        done = [together(clients, 2 * capacity, seconds / 3) for _ in range(3)]
        over = time.monotonic()
        growth = server.memory() - before
        refused = [took for client in clients for _at, took in client.refused]
        asked = len(refused) + sum(client.acknowledged for client in clients) - taken_before
        assert asked > 1.5 * capacity * seconds, "that was no overload"
        assert len(refused) > asked / 3, "about half of it has to be turned away"
        assert statistics.median(refused) < 0.25, "at once, not after a wait"
        assert max(done) > capacity / 3, "what can be done is done all the same"
        assert growth < MOST_GROWTH

        together(clients[:QUEUED], capacity / 2, recovery + 2)
        late = [at - over for client in clients for at, _taken in client.refused if at > over + recovery]
        assert late == [], "soon no request is turned away any more"
    finally:
        slow.stop()
    assert not any(client.others for client in clients)
    for client in clients:
        assert client.source.delivered(client.identifier) == list(range(1, client.acknowledged + 1))
        assert client.source.store.received(client.identifier) == [(1, client.acknowledged)] * bool(client.acknowledged)
    assert "store.overloaded requests=" in server.log.read_text()
    print(
        f"\noverload: capacity {capacity:.0f}/s, offered {2 * capacity:.0f}/s for {seconds:.0f} s, "
        f"acknowledged {statistics.mean(done):.0f}/s, "
        f"turned away {len(refused)} in {statistics.median(refused) * 1000:.1f} ms, "
        f"memory {growth / 2**20:+.1f} MiB, 0 lost"
    )
    for source in sources:
        source.wire.close()
