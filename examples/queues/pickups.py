"""A driver publishes pick-ups and deliveries; each shop subscribes to its own, and catches up on what it missed.

python pickups.py [STORE]
"""

from __future__ import annotations

import sys

import wsrm_mq


def publish(store: str, first: int, last: int) -> None:
    with wsrm_mq.connect(store, "driver") as node:
        for order in range(first, last):
            for shop in ("flowers", "widgets"):
                node.publish(f"{shop}/pickup", {"order": order})
                node.publish(f"{shop}/delivered", {"order": order})


def catch_up(store: str, shop: str) -> list[int]:
    """The orders delivered since this shop was here last. The subscription's name is what it is known by."""
    seen = []
    with wsrm_mq.connect(store, shop) as node:
        subscription = node.subscribe(topic=f"{shop}/delivered", name="thanks", max_backlog=10)
        while (message := subscription.next(timeout=0.5)) is not None:
            seen.append(message.json()["order"])
        subscription.close()
    print(f"{shop}: thank you for delivering {seen}")
    return seen


def main(store: str) -> None:
    for shop in ("flowers", "widgets"):
        assert catch_up(store, shop) == []
    publish(store, 0, 3)
    assert catch_up(store, "flowers") == [0, 1, 2]
    publish(store, 3, 5)  # while both shops are closed
    assert catch_up(store, "flowers") == [3, 4]
    assert catch_up(store, "widgets") == [0, 1, 2, 3, 4]
    with wsrm_mq.connect(store) as node:
        for one in node.clients():
            print(f"{one.name} is {one.state}, subscribed to {', '.join(one.patterns)}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["queues.db"])
