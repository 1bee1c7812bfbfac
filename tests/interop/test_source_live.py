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
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol

import pytest

from tests.support.orders_server import within
from tests.support.processes import Python
from tests.support.programs import free_port
from tests.support.proxy import Exchange, Numbered, Proxy
from wsrm_mq.sequence.ranges import AckRanges
from wsrm_mq.source import RMSource
from wsrm_mq.testing import Fate, Reply, RMVersion

from .conftest import both_versions, texts
from .gsoap_client import Variant, build, one_variant
from .gsoap_server import GsoapServer
from .java_server import JavaServer
from .reliable import Reliable

pytestmark = [pytest.mark.live, pytest.mark.timeout(420)]

COUNT: Final = 500
ORDER: Final = re.compile(rb"order \d+")
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
) -> set[str]:
    """All orders are acknowledged when this returns, or what ``is_done`` says. Nobody reaches the server while it
    starts: CXF opens its port before it has read its store. ``options`` are those of the source. Answers the orders
    of which an answer was not heard: the line or the server lost it, or it came to a program that was killed before it
    had stored the reply."""
    with Proxy(server.port, line) as proxy:
        kills: list[tuple[int, set[str]]] = []

        def begun() -> subprocess.Popen[str]:
            first = 1 + stored(store)
            return python(PROGRAM, store, f"{proxy.url}orders", rm.label, first, COUNT, json.dumps(options))

        def kill() -> None:
            program.kill()
            program.communicate()
            kills.append((1 + len(proxy.exchanges), replied(store)))

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
                kill()
                program = begun()
        assert within(200, lambda: (is_done or is_acknowledged)(store), bool)
        kill()
        # A copy of the last request is acknowledged while the first is still at work.
        assert within(30, lambda: len(set(server.calls())), COUNT.__le__) >= COUNT
    traffic = line.traffic
    assert traffic.requests_lost + traffic.answers_lost > COUNT / 6
    assert traffic.duplicates > COUNT / 8
    lost = orders_in(one for one in proxy.exchanges if one.answer is None and one.fate is not Fate.REQUEST_LOST)
    answered = [(orders_in(one for one in proxy.exchanges[:end] if one.answer), stored) for end, stored in kills]
    return lost.union(*(orders - stored for orders, stored in answered))


def orders_in(exchanges: Iterable[Exchange]) -> set[str]:
    return {text.decode() for one in exchanges for text in ORDER.findall(one.request)}


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


def doubts(store: Path, why: str = "") -> list[AckRanges]:
    """The numbers of requests that the ledger says to be in doubt, for this reason or for any."""
    said = rows(store, "SELECT reason FROM ledger WHERE event = 'requests_in_doubt'")
    return [AckRanges.parse(re.findall(r": ([0-9,-]+)", str(one))[0]) for (one,) in said if str(one).startswith(why)]


def in_doubt(store: Path) -> set[str]:
    """The orders that the ledger names: they had the same numbers."""
    return {text for ranges in doubts(store) for lower, upper in ranges for text in texts(lower, upper)}


def replied(store: Path) -> set[str]:
    """The two-way orders that have a reply there."""
    two_way = "SELECT id, 2 * row_number() OVER (ORDER BY id) AS number FROM message WHERE action = 'echo'"
    have_one = "SELECT message FROM entry JOIN reply ON reply.entry = entry.id"
    return {f"order {n}" for (n,) in rows(store, f"SELECT number FROM ({two_way}) WHERE id IN ({have_one})")}


def without_reply(store: Path) -> set[str]:
    """The two-way orders that have none; all others have their own. Where their sequences are ended these alone are
    dead letters, and the ledger names as many."""
    asked = rows(store, "SELECT message_id FROM message WHERE action = 'echo' ORDER BY id")
    ((to,),) = rows(store, "SELECT DISTINCT peer FROM outbound_sequence")
    already = sum(one.count() for one in doubts(store, "acknowledged and not replied to"))
    found: dict[str, str] = {}
    with RMSource(store) as source:
        for key, (message_id,) in enumerate(asked, 1):
            reply = source.replies(str(message_id))
            if reply is None:
                found[str(message_id)] = f"order {2 * key}"
            else:
                assert Reply.parse(reply.content).body.findtext("{*}echoResult") == f"order {2 * key}"
        source.terminate(str(to))
        assert within(20, lambda: {one.message_id for one in source.dead}, set(found).__eq__) == set(found)
    assert sum(one.count() for one in doubts(store, "acknowledged and not replied to")) == already + len(found)
    return set(found.values())


@both_versions
@pytest.mark.parametrize(("name", "argument"), [("cxf", "orders"), ("metro", "")], ids=["cxf", "metro"])
def test_a_server_that_keeps_all_in_memory_misses_nothing_and_repeats_what_was_in_doubt_alone(
    java_server: StartJavaServer, store: Path, rm: RMVersion, python: Python, name: str, argument: str
) -> None:
    """CXF answers a copy of a two-way request with an acknowledgement alone: its reply, if that was lost, never
    comes."""
    server = java_server(name, argument or rm.label)
    unheard = have_all_sent(server, OneInFive(), store, rm, python)
    calls = server.calls()
    assert list(dict.fromkeys(calls)) == texts(1, COUNT)
    repeated = {text for text, count in Counter(calls).items() if count > 1}
    assert repeated <= in_doubt(store)
    assert without_reply(store) <= (unheard if name == "cxf" else set())


@both_versions
def test_a_cxf_server_with_its_store_goes_on_with_the_sequence_and_misses_no_order(
    java_server: StartJavaServer, store: Path, tmp_path: Path, rm: RMVersion, python: Python
) -> None:
    """Its own order (InOrder) would not survive the restart: it waits for the number 1 again. Without it CXF begins a
    one-way operation in a thread, so the next one may pass it; and what was in its hands when it was killed it delivers
    from its store 3 seconds after the restart, be it done or not."""
    server = java_server("cxf", "orders", str(tmp_path / "derby"))
    unheard = have_all_sent(server, OneInFive(), store, rm, python)
    done, wanted = server.calls(), texts(1, COUNT)
    calls = list(dict.fromkeys(done))
    assert set(calls) == set(wanted)
    assert len(done) <= COUNT + 1
    assert sum(abs(calls.index(one) - place) > 2 for place, one in enumerate(wanted)) <= 1
    assert in_doubt(store) == set()
    assert without_reply(store) <= unheard


@one_variant
def test_a_gsoap_server_misses_nothing_and_repeats_what_was_in_doubt_alone(
    rm: RMVersion, variant: Variant, store: Path, tmp_path: Path, python: Python, request: pytest.FixtureRequest
) -> None:
    """It acknowledges and replies at an address, over a line that is as bad. It has no reply for a copy."""
    program = build(variant, Path(request.config.rootpath, "build", "gsoap")).with_name("rmserver")
    server, port = GsoapServer(program, tmp_path), free_port()
    try:
        with Proxy(port, OneInFive()) as back:
            address = {"acks_to": f"{back.url}acks", "listen": f"127.0.0.1:{port}"}
            unheard = have_all_sent(server, OneInFive(), store, rm, python, **address)
        calls = server.calls()
    finally:
        server.kill()
    assert list(dict.fromkeys(calls)) == texts(1, COUNT)
    assert {text for text, count in Counter(calls).items() if count > 1} <= in_doubt(store)
    assert back.line.traffic.requests_lost > 20
    assert without_reply(store) <= unheard | orders_in(one for one in back.exchanges if one.answer is None)


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
    assert without_reply(store) == set()
