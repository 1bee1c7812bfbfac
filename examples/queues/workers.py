"""Workers share a queue: a message is acknowledged when the next is asked for, given back, expired, or filtered out.

python workers.py [STORE]
"""

from __future__ import annotations

import sys
import time

import wsrm_mq


def main(store: str) -> None:
    with wsrm_mq.connect(store, "worker") as node:
        node.declare("orders", lease=30, max_failures=5)
        for number in range(30):
            status = "cancel" if number % 10 == 7 else "new"
            node.put("orders", f"update {number}", properties={"id": str(number % 3), "status": status})

        # At most 10 messages are here without an acknowledgement; three of those are sent together.
        done = 0
        with node.subscribe("orders", max_backlog=10) as subscription:
            for message in subscription:
                if done == 0 and not message.redelivered:
                    message.ack("cancel")  # back to its place: it comes again, and a counter says so
                elif message.properties["status"] == "cancel":
                    message.ack("expire")  # to the dead letters at once
                else:
                    done += 1
                if done == 9:
                    break

        # Order 1 is cancelled: its other updates go, those too that no worker has seen.
        gone = node.settle("orders", "/id = '1' and /status != 'cancel'", "expire")
        print(f"{done} done, {gone.settled} of order 1 removed, {node.stats('orders').ready} ready")

        # A function is called with each message: what it returns from is acknowledged, what it raises at fails.
        names: list[str] = []
        with node.consume("orders", lambda message: names.append(message.body.decode()), threads=2):
            while node.stats("orders").messages:
                time.sleep(0.05)
        print(f"{len(names)} more done")
        assert {one.properties["id"] for one in node.dead("orders").peek() if one.properties["status"] == "new"} == {
            "1"
        }


if __name__ == "__main__":
    main(*sys.argv[1:] or ["queues.db"])
