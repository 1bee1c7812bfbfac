"""python price.py N: asks for the price of an order. python price.py: the answer to the last one."""

import sys
import time
from pathlib import Path

from wsrm_mq.errors import Pending
from wsrm_mq.source import ReliableClient

ASKED = Path("asked.txt")

with ReliableClient("orders.wsdl", store="outbox.db", timeout=2) as client:
    if sys.argv[1:]:
        try:
            print(client.service.price_of(n=int(sys.argv[1])))
        except Pending as pending:
            ASKED.write_text(pending.message_id)
            print("it will be answered")
    else:
        while (answer := client.replies(ASKED.read_text())) is None:
            time.sleep(0.1)
        print(answer)
