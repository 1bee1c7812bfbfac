"""Take the orders that wait."""

import sys
import time

import wsrm_mq

is_quick = "--quick" in sys.argv
with wsrm_mq.connect("shop.db") as node, node.subscribe("orders") as subscription:
    for message in subscription.catch_up():
        order = message.body.decode()
        if order == "broken" and not is_quick:
            print(order, "failed")
            message.nack(ValueError("it is broken"))
            continue
        print("took", order, *(["again"] if message.redelivered else []), flush=True)
        if order == "slow" and not is_quick:
            time.sleep(60)
print("caught up")
