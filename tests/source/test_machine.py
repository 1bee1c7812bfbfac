"""Any history of an RM Source and its destination, both real, on a line that is in the hand of Hypothesis: requests and
answers that are lost, repeated and late, processes of either side that are killed, and an operator.

A process is killed by going on with a copy of what it has committed; nothing that the old one says arrives.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.source.partner import envelope
from wsrm_mq import WSRMMiddleware
from wsrm_mq.errors import NotAllowed, NotAnswered, NotFound
from wsrm_mq.outbound.posting import Answer
from wsrm_mq.queue.policy import Resend
from wsrm_mq.source import RMSource
from wsrm_mq.source.acts import act
from wsrm_mq.store.invariants import all_findings
from wsrm_mq.store.sqlite.files import witness_file
from wsrm_mq.testing import WSRM_1_1, EnvelopeFactory, ManualClock, WSGIWire

THERE: Final = "http://partner.example/orders"
SPEAK: Final = EnvelopeFactory(WSRM_1_1)
PUT, ASK = "urn:example:orders/put", "urn:example:orders/ask"
REPLY: Final = f'<s:Envelope xmlns:s="{SPEAK.soap.namespace}"><s:Body><r/></s:Body></s:Envelope>'.encode()
HOLD_WAIT: Final = 2.0
BUSY: Final = 20.0
"""Seconds: for a lock of the store, and for a machine that is busy."""
FATES = st.sampled_from(["arrives", "is lost", "answer is lost", "arrives twice", "is late"])
_TEXT: Final = re.compile(rb"<p:put [^>]*>(\d+)<")


class Application:
    """Its work is done once for each place in a sequence, as ``once`` has it."""

    def __init__(self) -> None:
        self.done: dict[tuple[str, int], int] = {}
        """Place → the order, in the order in which they were done."""
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        found = _TEXT.search(environ["wsgi.input"].read())
        assert found is not None
        with self._lock:
            self.done.setdefault((environ["wsrm.sequence_id"], environ["wsrm.message_number"]), int(found[1]))
        body = REPLY if ASK in environ["CONTENT_TYPE"] else b""
        start_response("200 OK", [("Content-Type", SPEAK.soap.media_type), ("Content-Length", str(len(body)))])
        return [body]


def copied(store: Path, directory: Path) -> Path:
    """What a process had committed when it was killed."""
    directory.mkdir()
    beside = witness_file(directory / store.name)
    beside.parent.mkdir(mode=0o700)
    shutil.copy(witness_file(store), beside)
    with closing(sqlite3.connect(store)) as old, closing(sqlite3.connect(directory / store.name)) as new:
        old.backup(new)
    return directory / store.name


class Pair(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._clock = ManualClock()
        self._application = Application()
        self._fates: deque[str] = deque()
        self._late: deque[tuple[str, bytes]] = deque()
        self._lives = self._lives_there = self._count = 0
        self._is_disturbed = False
        """Something was closed or ended with what may have been under way: what is sent again comes behind it."""

    @initialize()
    def open(self) -> None:
        here = Path(self._directory.name)
        (here / "here").mkdir()
        (here / "there").mkdir()
        self._open_destination(here / "there" / "store.db")
        self._open_source(here / "here" / "outbox.db")

    def _open_source(self, path: Path) -> None:
        life = self._lives

        def post(url: str, headers: Mapping[str, str], body: bytes, who: str | None = None) -> Answer:
            return self._post(life, headers, body)

        self._outbox = path
        options = {"post": post, "clock": self._clock, "resend": Resend(), "offers": True}
        self._source = RMSource(path, **options)  # type: ignore[arg-type]

    def _open_destination(self, path: Path) -> None:
        self._store = path
        self._middleware: WSRMMiddleware | None = WSRMMiddleware(
            self._application, path, one_way=(PUT,), hold_wait=HOLD_WAIT
        )

    def _post(self, life: int, headers: Mapping[str, str], body: bytes) -> Answer:
        fate = self._fates.popleft() if self._fates else "arrives"
        if fate == "is late":
            self._late.append((headers["Content-Type"], body))
        if life != self._lives or fate in ("is lost", "is late"):
            raise NotAnswered("the line broke")
        for _ in range(2 if fate == "arrives twice" else 1):
            said = self._arrive(headers["Content-Type"], body)
        if life != self._lives or fate == "answer is lost":
            raise NotAnswered("the line broke")
        return said

    def _arrive(self, content_type: str, body: bytes) -> Answer:
        there = self._middleware
        if there is None:
            raise NotAnswered("nothing listens")
        begun = time.monotonic()
        said = WSGIWire(there, "/orders").post(body, {"Content-Type": content_type})
        assert time.monotonic() - begun < HOLD_WAIT + BUSY, "no request holds its thread for longer (I16)"
        if there is not self._middleware:
            raise NotAnswered("it was killed")
        return Answer(said.status, said.reason, list(said.fields.items()), said.body)

    # what happens

    @rule(asks=st.booleans(), fates=st.lists(FATES, max_size=3))
    def send(self, asks: bool, fates: list[str]) -> None:
        self._fates += fates
        self._count += 1
        given = self._source.ask if asks else self._source.send
        given(envelope(SPEAK, str(self._count)), to=THERE, action=ASK if asks else PUT)

    @rule(seconds=st.sampled_from([1, 5, 60]))
    def pass_time(self, seconds: int) -> None:
        self._clock.advance(seconds * 1_000)
        self._source.try_now()
        self._source._engine.watch.nudge()
        time.sleep(0.01)

    @precondition(lambda self: self._late)
    @rule()
    def what_was_late_arrives(self) -> None:
        self._arrive(*self._late.popleft())

    @rule()
    def the_source_is_killed(self) -> None:
        self._lives += 1
        old = self._source
        self._open_source(copied(self._outbox, self._outbox.parent.parent / f"here-{self._lives}"))
        old.close(0)

    @rule()
    def the_destination_is_killed(self) -> None:
        self._lives_there += 1
        old, self._middleware = self._middleware, None
        self._open_destination(copied(self._store, self._store.parent.parent / f"there-{self._lives_there}"))
        assert old is not None
        old.close()

    @rule(name=st.sampled_from(["hold", "resume", "resend", "close", "terminate"]))
    def the_operator_acts(self, name: str) -> None:
        self._is_disturbed |= name in ("close", "terminate")
        try:
            self._source._engine.store.call(lambda tx: act(tx, name, THERE, actor="ann", reason="a test"))
        except (NotAllowed, NotFound):
            return
        self._source._engine.watch.nudge()

    # what holds

    def teardown(self) -> None:
        if hasattr(self, "_source"):
            self._settle()
            self._source.close()
            assert self._middleware is not None
            self._middleware.close()
        self._directory.cleanup()

    def _settle(self) -> None:
        self._fates.clear()
        while self._late:
            self.what_was_late_arrives()
        self.the_operator_acts("resume")
        deadline = time.monotonic() + 30
        while self._source.waiting:
            assert time.monotonic() < deadline
            self.pass_time(5)
        with self._source._engine.store.reader() as db:
            assert list(all_findings(db)) == []
        given_up = len(self._source.dead)
        sent, done = range(1, self._count + 1), self._application.done
        while len(done) + given_up < len(sent) and time.monotonic() < deadline:
            time.sleep(0.01)
        came = list(done.values())
        assert len(came) == len(set(came)), "none is done twice"
        assert len(set(sent) - set(came)) <= given_up, "each is done, or told as failed"
        if not self._is_disturbed:
            assert came == list(sent), "in order"


Pair.TestCase.settings = settings(
    max_examples=2,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestPair = pytest.mark.timeout(240)(Pair.TestCase)
