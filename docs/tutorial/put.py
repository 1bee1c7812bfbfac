"""Put orders: python put.py 4 (so many), or python put.py slow broken 7."""

import sys

import wsrm_mq

asked = sys.argv[1:]
orders = [str(number) for number in range(int(asked[0]))] if len(asked) == 1 else asked
with wsrm_mq.connect("shop.db") as node:
    node.declare("orders", max_failures=3, retry=[0])
    node.put_many("orders", orders)
print("put", *orders)
