"""Put 1,024 messages of three types into one queue, in four commits, and take them out in batches by two threads.

python batches.py [STORE]
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import wsrm_mq

TYPES = ("order", "invoice", "receipt")


def fill(node: wsrm_mq.Node) -> None:
    """Each message has two texts and a number; its type says how to read it. A transaction is one commit."""
    for first in range(0, 1024, 256):
        with node.transaction():
            for number in range(first, first + 256):
                body = {"name": f"name {number}", "remark": "größer", "number": number}
                node.put("parcels", body, type=TYPES[number % 3])


def drain(node: wsrm_mq.Node) -> int:
    """Take batches until none is left; a batch is acknowledged as a whole."""
    taken = 0
    while batch := node.receive("parcels", 64):
        for message in batch:
            parcel = message.json()
            assert message.type == TYPES[parcel["number"] % 3]
        node.ack(batch)
        taken += len(batch)
        print(f"{len(batch)} taken, {batch.remaining} remain")
    return taken


def main(store: str) -> None:
    with wsrm_mq.connect(store) as node, ThreadPoolExecutor(2) as threads:
        fill(node)
        taken = sum(threads.map(drain, [node, node]))
        print(f"{taken} messages, each once; {node.stats('parcels').messages} are left")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["queues.db"])
