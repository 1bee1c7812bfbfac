"""Messages that need not be as safe as orders: prices in the memory of one process, and a log that is not synced. The
process is killed; what a journal has of its messages is recovered.

python prices.py [STORE]
"""

from __future__ import annotations

import subprocess
import sys

import wsrm_mq

KEEP = "keep"


def keep(store: str) -> None:
    """The process that has the prices in its memory, and those of the day's end in a journal too."""
    with wsrm_mq.connect(store, "exchange") as node:
        node.declare("prices", durability="express", memory_limit=8 * 2**20)
        node.declare("closing", durability="express", journal=True)
        node.declare("log", durability="relaxed")
        node.bind("price/#", "prices")
        for number in range(100):
            node.publish("price/copper", {"price": 9000 + number})
            node.put("log", f"price {number} is told")
        node.put_many("closing", [{"copper": 9099}, {"tin": 31000}])
        print("kept", flush=True)
        sys.stdin.read()


def main(store: str) -> None:
    keeper = subprocess.Popen([sys.executable, __file__, store, KEEP], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with keeper, wsrm_mq.connect(store, "reader") as node:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        for message in node.receive("prices", 10):
            message.ack()
        (copper,) = node.receive("closing")
        copper.ack()
        print(f"{node.stats('prices').ready} prices are in the memory of the process {keeper.pid}")

        keeper.kill()
        keeper.wait()
        recovered = node.recover_express()
        print(f"{node.stats('prices').messages} prices and {node.stats('log').ready} lines of the log are left")
        (tin,) = node.receive("closing", 5)
        tin.ack()
        print(f"{recovered} closing price was recovered: {tin.json()}")


if __name__ == "__main__":
    where, *role = sys.argv[1:] or ["queues.db"]
    keep(where) if role == [KEEP] else main(where)
