"""A private queue that one program reads, and its dead letters: looked at, understood, sent again or given up.

python letters.py [STORE]
"""

from __future__ import annotations

import sys
import time

import wsrm_mq
from wsrm_mq.errors import PeekForbidden, QueueBusy


def main(store: str) -> None:
    with wsrm_mq.connect(store, "reader") as reader, wsrm_mq.connect(store, "writer") as writer:
        reader.declare("private", access="exclusive", peek=False, max_failures=2, retry=[0])
        assert not reader.receive("private")
        for body, ttl in (("good", None), ("bad", None), ("late", 0.2)):
            writer.put("private", body, ttl=ttl)
        for attempt, refused in ((writer.receive, QueueBusy), (writer.peek, PeekForbidden)):
            try:
                attempt("private")
            except refused as error:
                print(error)

        time.sleep(0.3)
        while batch := reader.receive("private", wait=0.5):
            (message,) = batch
            if message.body == b"good":
                message.ack()
            else:
                message.nack("no such article")

        letters = reader.dead("private")
        for letter in letters.peek():
            why = letter.last_error or "no error"
            print(f"{letter.body.decode()}: {letter.reason}, {letter.failures} failures, {why}")
        (bad,) = [letter.position for letter in letters.peek() if letter.body == b"bad"]
        letters.redrive([bad])
        letters.discard()
        (again,) = reader.receive("private")
        assert (again.body, again.failures) == (b"bad", 0)
        again.ack()
        print(f"{len(letters.peek())} dead letters are left")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["queues.db"])
