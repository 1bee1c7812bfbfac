"""Stands in for a partner's RM Source. It sends orders in one sequence, whose identifier it keeps in sequence.txt.

python send.py 1 3 4=blue    orders 1, 3 and 4, in this order; the text of the last is "blue"
python send.py end           terminates the sequence
"""

import os
import sys
import urllib.request
from pathlib import Path

from wsrm_mq.testing import EnvelopeFactory, Reply

ADDRESS = os.environ.get("ORDERS_URL", "http://127.0.0.1:8080/")
SEQUENCE = Path("sequence.txt")
source = EnvelopeFactory()  # WS-ReliableMessaging 1.1, SOAP 1.2


def post(envelope):
    request = urllib.request.Request(ADDRESS, envelope, {"Content-Type": source.content_type})
    with urllib.request.urlopen(request, timeout=90) as answer:
        return Reply.parse(answer.read())


def sequence():
    if not SEQUENCE.exists():
        identifier = post(source.create_sequence()).created.identifier
        SEQUENCE.write_text(identifier)
        print(f"created {identifier}")
    return SEQUENCE.read_text()


def send(number, text):
    body = f'<o:put_order xmlns:o="urn:example:orders"><o:n>{number}</o:n><o:text>{text}</o:text></o:put_order>'
    envelope = source.message(sequence(), number, body, action="urn:example:orders/put_order")
    ranges = post(envelope).ack.ranges
    acknowledged = ", ".join(f"{low}-{high}" if low < high else f"{low}" for low, high in ranges)
    print(f"sent {number}; acknowledged {acknowledged}")


def end():
    post(source.terminate(sequence()))
    print(f"terminated {sequence()}")


for argument in sys.argv[1:]:
    number, _, text = argument.partition("=")
    end() if argument == "end" else send(int(number), text or "an order")
