"""python to_server.py URL TEXT...: puts an order for each text, and asks about the last one."""

import sys

from wsrm_mq.source import ReliableClient

url, *texts = sys.argv[1:]
with ReliableClient(f"{url}?wsdl", store="outbox.db") as client:
    for text in texts:
        client.service.put(text=text)
    print(client.service.ask(text=texts[-1]))
    client.source.end(url, timeout=30)
    print(client.source.waiting, "wait")
