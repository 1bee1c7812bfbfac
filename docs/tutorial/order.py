"""python order.py N…: sends these orders."""

import sys

from wsrm_mq.source import ReliableClient

with ReliableClient("orders.wsdl", store="outbox.db") as client:
    for n in sys.argv[1:]:
        client.service.put_order(n=int(n), text="two seats")
        print(f"order {n} is stored", flush=True)
    client.source.flush(timeout=3)
    print(client.source.waiting, "wait")
