"""Our RM Source to servers of other stacks and to our own, over a line that loses, repeats and keeps back one in five
of what goes either way, while the program that sends is killed twice, and the server once.

The orders are one-way and two-way in turn, in one sequence. A server that keeps what it knows in memory may do those
again that were in doubt at its restart, and no other.
"""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol

import pytest

from tests.support.orders_server import within
from tests.support.processes import Python
from tests.support.programs import free_port
from tests.support.proxy import Numbered, Proxy
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.source import RMSource
from wsrm_mq.testing import WSRM_1_1, Fate, Reply, RMVersion

from .conftest import both_versions, texts
from .gsoap_client import Variant, build, one_variant
from .gsoap_server import GsoapServer
from .java_server import JavaServer
from .reliable import Reliable

pytestmark = [pytest.mark.live, pytest.mark.timeout(420)]

COUNT: Final = 500
StartJavaServer = Callable[..., JavaServer]
PROGRAM: Final = """
import json, sys
from tests.support.orders import echo, put_order
from wsrm_mq.source import RMSource
from wsrm_mq.testing import SOAPVersion

store, url, rm, first, last, options = sys.argv[1:]


def envelope(body):
    return f'<s:Envelope xmlns:s="{SOAPVersion.SOAP_1_2.namespace}"><s:Body>{body}</s:Body></s:Envelope>'.encode()


source = RMSource(store, rm=rm, addressing="1.0", offers=True, **json.loads(options))
for n in range(int(first), int(last) + 1):
    if n % 2:
        source.send(envelope(put_order(n, f"order {n}")), to=url, action="put_order")
    else:
        source.ask(envelope(echo(f"order {n}")), to=url, action="echo")
source.flush()
"""


class Server(Protocol):
    port: int

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def calls(self) -> list[str]: ...


class OneInFive(Numbered):
    """One in five requests or answers is lost, one in five comes again, one in five is late: whatever it is, and
    however often it has come."""

    def __init__(self) -> None:
        super().__init__(loss=0.2, duplicates=0.2, delay=0.1)
        self._requests = itertools.count(1)

    def number(self, _body: bytes) -> int | None:
        return next(self._requests)

    def transmit(self, number: int) -> tuple[Fate, bool, float]:
        fate, repeats, seconds = super().transmit(number)
        return fate, repeats, seconds if number % 5 == 0 else 0.0


class OneRequestInFive(OneInFive):
    """Of what is lost it is the request."""

    def fate(self, number: int, transmission: int) -> Fate:
        fate = super().fate(number, transmission)
        return Fate.ARRIVES if fate is Fate.ARRIVES else Fate.REQUEST_LOST


@pytest.fixture
def java_server(java: Path, tmp_path: Path) -> Iterator[StartJavaServer]:
    """Start servers; they end with the test."""
    servers: list[JavaServer] = []

    def start(name: str, *arguments: str) -> JavaServer:
        servers.append(JavaServer(java, name, tmp_path, *arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """That of the program that sends."""
    return tmp_path / "outbox.db"


def have_all_sent(
    server: Server,
    line: Numbered,
    store: Path,
    rm: RMVersion,
    python: Python,
    is_done: Callable[[Path], bool] | None = None,
    **options: object,
) -> None:
    """All orders are acknowledged when this returns, or what ``is_done`` says. Nobody reaches the server while it
    starts: CXF opens its port before it has read its store. ``options`` are those of the source."""
    with Proxy(server.port, line) as proxy:

        def begun() -> subprocess.Popen[str]:
            first = 1 + stored(store)
            return python(PROGRAM, store, f"{proxy.url}orders", rm.label, first, COUNT, json.dumps(options))

        program = begun()
        for part in (1, 2, 3):
            enough = part * COUNT // 5
            assert within(60, lambda: len(server.calls()), enough.__le__) >= enough
            if part == 2:
                proxy.upstream = free_port()
                server.kill()
                server.start()
                proxy.upstream = server.port
            else:
                program.kill()
                program.communicate()
                program = begun()
        assert within(200, lambda: (is_done or is_acknowledged)(store), bool)
        program.kill()
        program.communicate()
        # A copy of the last request is acknowledged while the first is still at work.
        assert within(30, lambda: len(set(server.calls())), COUNT.__le__) >= COUNT
    traffic = line.traffic
    assert traffic.requests_lost + traffic.answers_lost > COUNT / 6
    assert traffic.duplicates > COUNT / 8


def rows(store: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(store, timeout=10)) as db:
        return db.execute(query).fetchall()


def stored(store: Path) -> int:
    """How many orders are there."""
    query = "SELECT count(*) FROM message WHERE action IN ('put_order', 'echo')"
    return int(str(rows(store, query)[0][0])) if store.exists() else 0


def is_acknowledged(store: Path) -> bool:
    """Whether all orders are stored, and the sequence that the last ones are in is acknowledged as far as it goes."""
    if stored(store) < COUNT:
        return False
    given, ranges = rows(store, "SELECT given, acknowledged FROM outbound_sequence ORDER BY id DESC LIMIT 1")[0]
    return AckRanges.parse(str(ranges)).count() == given


def in_doubt(store: Path) -> set[str]:
    """The orders that the ledger names: they had the same numbers."""
    found: set[str] = set()
    for (reason,) in rows(store, "SELECT reason FROM ledger WHERE event = 'requests_in_doubt'"):
        for ranges in re.findall(r": ([0-9,-]+)", str(reason)):
            found.update(text for lower, upper in AckRanges.parse(ranges) for text in texts(lower, upper))
    return found


def without_reply(store: Path) -> list[str]:
    """The two-way orders that have none; all others have their own."""
    found = []
    with RMSource(store) as source:
        for key, (message_id,) in enumerate(rows(store, "SELECT message_id FROM message WHERE action = 'echo'"), 1):
            reply = source.replies(str(message_id))
            if reply is None:
                found.append(f"order {2 * key}")
            else:
                assert Reply.parse(reply.content).body.findtext("{*}echoResult") == f"order {2 * key}"
    return found


@both_versions
@pytest.mark.parametrize(("name", "argument"), [("cxf", "orders"), ("metro", "")], ids=["cxf", "metro"])
def test_a_server_that_keeps_all_in_memory_misses_nothing_and_repeats_what_was_in_doubt_alone(
    java_server: StartJavaServer, store: Path, rm: RMVersion, python: Python, name: str, argument: str
) -> None:
    """CXF answers a copy of a two-way request with an acknowledgement alone: its reply, if it was lost, never comes. So
    no answer of CXF's is lost here but those that a killed program did not hear."""
    server = java_server(name, argument or rm.label)
    have_all_sent(server, OneRequestInFive() if name == "cxf" else OneInFive(), store, rm, python)
    calls = server.calls()
    assert list(dict.fromkeys(calls)) == texts(1, COUNT)
    repeated = {text for text, count in Counter(calls).items() if count > 1}
    assert repeated <= in_doubt(store)
    assert len(without_reply(store)) <= (2 if name == "cxf" else 0)


def test_a_cxf_server_with_its_store_goes_on_with_the_sequence_and_misses_no_order(
    java_server: StartJavaServer, store: Path, tmp_path: Path, python: Python
) -> None:
    """Its own order (InOrder) would not survive the restart: it waits for the number 1 again. Without it CXF begins a
    one-way operation in a thread, so the next one may pass it; and what was in its hands when it was killed it delivers
    from its store 3 seconds after the restart, be it done or not."""
    server = java_server("cxf", "orders", str(tmp_path / "derby"))
    have_all_sent(server, OneRequestInFive(), store, WSRM_1_1, python)
    done, wanted = server.calls(), texts(1, COUNT)
    calls = list(dict.fromkeys(done))
    assert set(calls) == set(wanted)
    assert len(done) <= COUNT + 1
    assert sum(abs(calls.index(one) - place) > 2 for place, one in enumerate(wanted)) <= 1
    assert in_doubt(store) == set()
    assert len(without_reply(store)) <= 3


@one_variant
def test_a_gsoap_server_misses_nothing_and_repeats_what_was_in_doubt_alone(
    rm: RMVersion, variant: Variant, store: Path, tmp_path: Path, python: Python, request: pytest.FixtureRequest
) -> None:
    """It acknowledges and replies at an address. It has no reply for a copy, so none is lost but what a killed program
    did not hear."""
    program = build(variant, Path(request.config.rootpath, "build", "gsoap")).with_name("rmserver")
    server = GsoapServer(program, tmp_path)
    try:
        acks_to = f"http://127.0.0.1:{free_port()}/acks"
        have_all_sent(server, OneRequestInFive(), store, rm, python, acks_to=acks_to)
        calls = server.calls()
    finally:
        server.kill()
    assert list(dict.fromkeys(calls)) == texts(1, COUNT)
    assert {text for text, count in Counter(calls).items() if count > 1} <= in_doubt(store)
    assert len(without_reply(store)) <= 2


class Ours(Reliable):
    def calls(self) -> list[str]:
        return self.done(0)


@both_versions
def test_our_server_does_each_order_once_in_its_order_and_all_replies_come(
    tmp_path: Path, store: Path, rm: RMVersion, python: Python
) -> None:
    with Ours(tmp_path, once=True) as server:
        have_all_sent(server, OneInFive(), store, rm, python)
        assert server.done(COUNT) == texts(1, COUNT)
    assert in_doubt(store) == set()
    assert without_reply(store) == []
