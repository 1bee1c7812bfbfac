"""A server that can be told where to die, and a service that bears witness.

    python -m tests.servers.witness --store STORE --service-db DB [--front F] [--port P] [--die FILE] [--options JSON]

The service keeps its own database: ``calls`` has a row for each call, committed at once; ``effects`` one for each
effect, in the same transaction as the inbox's mark. A call takes ``--work`` seconds; one whose text is ``sleep=3``
takes three, and of one whose text is ``fail=3`` the first three raise. As soon as FILE holds ``after_commit:3``, the
process ends with SIGKILL, in the middle of whatever it does, when the third message from then on passes that point.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from tests.servers.fronts import FRONTS, serve
from wsrm_mq import once
from wsrm_mq.delivery import posting
from wsrm_mq.delivery.application import Application
from wsrm_mq.delivery.delivery import Delivery, Outcome
from wsrm_mq.delivery.posting import Posting
from wsrm_mq.delivery.recording import Recording
from wsrm_mq.destination.destination import RMDestination
from wsrm_mq.store.bulk import ENTRIES
from wsrm_mq.store.transaction import Transaction

NAMESPACE: Final = "urn:example:orders"
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS calls (sequence TEXT, n INTEGER, redelivery INTEGER, at REAL, pid INTEGER);
CREATE INDEX IF NOT EXISTS called ON calls (sequence, n);
CREATE TABLE IF NOT EXISTS effects (sequence TEXT, n INTEGER, at REAL);
"""
ECHO: Final = (
    '<s:Envelope xmlns:s="{soap}"><s:Body><t:echoResponse xmlns:t="urn:example:orders"><t:echoResult>{text}'
    "</t:echoResult></t:echoResponse></s:Body></s:Envelope>"
)


class Death:
    """Counts what passes a point, and ends the process there. The wish for it may come while the server runs."""

    def __init__(self, wish: Path | None) -> None:
        self._wish = wish
        self._passed = 0
        self._counting = threading.Lock()

    def passes(self, point: str) -> None:
        if self._wish is None or not self._wish.exists():
            return
        where, _, count = self._wish.read_text().partition(":")
        with self._counting:
            self._passed += point == where
            if self._passed == int(count):
                os.kill(os.getpid(), signal.SIGKILL)


def arm(death: Death) -> None:
    """Put the points into the places of the package where a crash is hardest to survive."""
    flush = Transaction.flush

    def flush_then_die(tx: Transaction) -> None:
        stored = len(tx._rows.get(ENTRIES, ()))  # but those that a statement of this transaction had to see
        flush(tx)
        for _ in range(stored):
            death.passes("before_commit")

    Transaction.flush = flush_then_die  # type: ignore[method-assign]

    finish = RMDestination.finish

    def die_or_finish(self: RMDestination, commit: Any, receipt: Any, run: Any) -> Any:
        if getattr(receipt, "position", None) is not None:
            death.passes("after_commit")
        return finish(self, commit, receipt, run)

    RMDestination.finish = die_or_finish  # type: ignore[method-assign]

    call = Application.__call__

    def call_then_die(self: Application, delivery: Delivery) -> Outcome:
        outcome = call(self, delivery)
        death.passes("before_settle")
        return outcome

    Application.__call__ = call_then_die  # type: ignore[method-assign]

    is_settled = Recording.is_settled

    def die_or_wake(self: Recording, delivery: Delivery, done: Any) -> None:
        death.passes("after_settle")
        is_settled(self, delivery, done)

    Recording.is_settled = die_or_wake  # type: ignore[method-assign]
    _arm_sending(death)


def _arm_sending(death: Death) -> None:
    """The points around a POST of a stored message."""
    render, send, settled = posting._as_it_leaves, Posting._sent, Recording.settled

    def render_then_die(*arguments: Any) -> bytes:
        body = render(*arguments)
        death.passes("before_post")
        return body

    def send_then_die(self: Posting, *arguments: Any) -> Outcome:
        outcome = send(self, *arguments)
        death.passes("after_post")
        return outcome

    def die_or_go_on(self: Recording, claim: Any, delivery: Delivery, done: Any, *, last: bool) -> None:
        if delivery.channel is not None:
            death.passes("after_record")
        settled(self, claim, delivery, done, last=last)

    posting._as_it_leaves = render_then_die
    Posting._sent = send_then_die  # type: ignore[method-assign]
    Recording.settled = die_or_go_on  # type: ignore[method-assign]


def service(path: Path, death: Death, work_seconds: float) -> Callable[..., Iterable[bytes]]:
    def connect() -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=30)
        db.execute("PRAGMA journal_mode = WAL")
        return db

    db = connect()
    db.executescript(SCHEMA)
    db.close()

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read().decode()
        n, sequence = environ["wsrm.message_number"], environ["wsrm.sequence_id"]
        db = connect()
        try:
            row = (sequence, n, int(environ["wsrm.redelivery"]), time.time(), os.getpid())
            db.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?)", row)
            db.commit()
            death.passes("in_call")
            told = re.search(r"text>(sleep|fail)=([\d.]+)<", body)
            wish, amount = told.groups() if told else ("", "0")
            time.sleep(float(amount) if wish == "sleep" else work_seconds)
            if wish == "fail" and _called(db, sequence, n) <= float(amount):
                raise OSError("the operation fails, as it was told to")
            if once(db, environ):
                db.execute("INSERT INTO effects VALUES (?, ?, ?)", (sequence, n, time.time()))
            db.commit()
        finally:
            db.close()
        if "echo" not in body:
            start_response("202 Accepted", [("Content-Length", "0")])
            return [b""]
        text = re.search(r"text>([^<]*)<", body)
        soap = re.search(r'"(http[^"]*soap[^"]*)"', body)
        assert text
        assert soap
        start_response("200 OK", [("Content-Type", environ["CONTENT_TYPE"])])
        return [ECHO.format(soap=soap[1], text=text[1]).encode()]

    return app


def _called(db: sqlite3.Connection, sequence: str, n: int) -> int:
    """How often a message was called, this time included."""
    (count,) = db.execute("SELECT count(*) FROM calls WHERE sequence = ? AND n = ?", (sequence, n)).fetchone()
    return int(count)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--service-db", type=Path, required=True)
    parser.add_argument("--front", choices=FRONTS, default="waitress")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--die", type=Path, metavar="FILE")
    parser.add_argument("--work", type=float, default=0.0, help="seconds that each call takes")
    parser.add_argument("--options", type=json.loads, default={})
    arguments = parser.parse_args()
    death = Death(arguments.die)
    arm(death)
    options = {"one_way": (f"{NAMESPACE}/put_order",)} | arguments.options
    app = service(arguments.service_db, death, arguments.work)
    serve(arguments.front, app, port=arguments.port, store=arguments.store, **options)


if __name__ == "__main__":
    main()
