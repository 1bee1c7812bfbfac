"""Every example, run as its README says: a server process of its own, messages over a socket."""

from __future__ import annotations

import http.client
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zeep
from lxml import etree

from wsrm_mq.testing import EnvelopeFactory, HTTPWire, RMSender
from wsrm_mq.versions import WSA_2004, WSRM_1_0, WSRM_1_1, AddressingVersion, RMVersion, SOAPVersion

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

SERVE = """
import sys
from importlib import import_module
from waitress import create_server
module, _, name = sys.argv[1].partition(":")
sys.path.insert(0, "")
server = create_server(getattr(import_module(module), name), host="127.0.0.1", port=int(sys.argv[2]))
print(server.effective_port, flush=True)
server.run()
"""
"""What ``waitress-serve --listen=127.0.0.1:0 module:application`` does, and the port said."""


class Example:
    """An example served by waitress, with databases in a directory of the test's own."""

    def __init__(self, directory: Path, example: str, application: str, soap_path: str) -> None:
        self.database = directory / "orders.db"
        self.soap_path = soap_path
        self._place = EXAMPLES / example
        self._application = application
        self._environ = {
            **os.environ,
            "ORDERS_DB": str(self.database),
            "ORDERS_STORE": str(directory / "wsrm.db"),
        }
        self._log = directory / "server.log"
        self.port = 0

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVE, self._application, str(self.port)],
                cwd=self._place,
                env=self._environ,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, f"it did not start:\n{self._log.read_text()[-4000:]}"
        self.port = int(said)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=15)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.database, timeout=10)) as connection:
            return connection.execute(query).fetchall()


class Client(RMSender[HTTPWire]):
    """Sends orders of the text ``no N`` in one sequence."""

    def __init__(self, example: Example, envelopes: EnvelopeFactory) -> None:
        super().__init__(lambda: HTTPWire(example.port, example.soap_path), envelopes, write=self._order)

    def _order(self, identifier: str, n: int) -> bytes:
        body = f'<o:put_order xmlns:o="urn:example:orders"><o:n>{n}</o:n><o:text>no {n}</o:text></o:put_order>'
        return self.envelopes.message(identifier, n, body, action="urn:example:orders/put_order", reply_to="")


def until(look: Callable[[], object], wanted: object, seconds: float = 15) -> None:
    """Look until what is seen is wanted."""
    end = time.monotonic() + seconds
    while (seen := look()) != wanted and time.monotonic() < end:
        time.sleep(0.02)
    assert seen == wanted


Start = Callable[[str, str, str], Example]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Example] = []

    def run(example: str, application: str, soap_path: str = "/") -> Example:
        started.append(Example(tmp_path, example, application, soap_path))
        started[-1].start()
        return started[-1]

    yield run
    for example in started:
        example.kill()


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    """The Spyne example, running; the tests that share it use orders of their own."""
    example = Example(tmp_path_factory.mktemp("orders"), "orders_spyne", "service:application", "/")
    example.start()
    yield example
    example.kill()


IN_ORDER = {
    "orders_spyne": ("service:application", "/", "SELECT n FROM effects ORDER BY rowid"),
    "flask_app": ("website:application", "/soap/", "SELECT n FROM orders ORDER BY rowid"),
    "plain_wsgi": ("service:application", "/", "SELECT n FROM orders ORDER BY rowid"),
}
"""What to serve, where it takes SOAP, and how to see the orders in the order of their effect."""


@pytest.mark.scenario("Q-040")
@pytest.mark.parametrize("example", IN_ORDER)
def test_an_example_takes_messages_in_order_and_once_across_a_crash(start: Start, example: str) -> None:
    application, path, query = IN_ORDER[example]
    server = start(example, application, path)
    client = Client(server, EnvelopeFactory(soap=SOAPVersion.SOAP_1_1))
    for n in (3, 2, 2, 5):
        client.send(n)
    assert server.rows(query) == []
    client.disconnect()
    server.kill()
    server.start()
    assert client.send(1).acked == [(1, 3), (5, 5)]
    assert client.send(4).acked == [(1, 5)]
    client.disconnect()
    until(lambda: server.rows(query), [(n,) for n in range(1, 6)])


@pytest.mark.parametrize("example", IN_ORDER)
def test_an_example_refuses_a_mandatory_header_that_it_does_not_read(start: Start, example: str) -> None:
    application, path, query = IN_ORDER[example]
    server = start(example, application, path)
    client = Client(server, EnvelopeFactory(soap=SOAPVersion.SOAP_1_1))
    secret = f'<x:Secret xmlns:x="urn:example:x" xmlns:s="{client.envelopes.soap.namespace}" s:mustUnderstand="1"/>'
    answer = client.post(client.envelopes.message(client.identifier, 1, reply_to="", headers=secret))
    assert (answer.status, answer.fault) == (500, "MustUnderstand")
    assert client.send(1).acked == [(1, 1)]
    client.disconnect()
    until(lambda: server.rows(query), [(1,)])


@pytest.mark.parametrize("soap", list(SOAPVersion))
@pytest.mark.parametrize(("rm", "addressing"), [(WSRM_1_1, None), (WSRM_1_0, None), (WSRM_1_0, WSA_2004)])
def test_the_spyne_example_speaks_every_combination_at_one_address(
    orders: Example, soap: SOAPVersion, rm: RMVersion, addressing: AddressingVersion | None
) -> None:
    versions = {} if addressing is None else {"addressing": addressing}
    client = Client(orders, EnvelopeFactory(rm=rm, soap=soap, **versions))
    before = orders.rows("SELECT count(*) FROM effects")[0][0]
    client.send(1)
    echo = client.envelopes.message(
        client.identifier,
        2,
        '<o:echo xmlns:o="urn:example:orders"><o:text>Grüße</o:text></o:echo>',
        action="urn:example:orders/echo",
        reply_to="",
    )
    replies = [client.post(echo).reply for _ in range(2)]
    assert [reply.soap for reply in replies] == [soap, soap]
    for reply in replies:
        assert reply.body.findtext("{urn:example:orders}echoResult") == "Grüße"
        assert reply.ack.ranges == ((1, 2),)
    client.disconnect()
    until(lambda: orders.rows("SELECT count(*) FROM effects")[0][0], before + 1)


@pytest.mark.parametrize(
    ("example", "path", "shown"), [("flask_app", "/orders", '[[1,"no 1"]]\n'), ("plain_wsgi", "/", "1 no 1\n")]
)
def test_an_example_answers_a_get_with_its_orders(start: Start, example: str, path: str, shown: str) -> None:
    application, soap_path, _query = IN_ORDER[example]
    server = start(example, application, soap_path)
    client = Client(server, EnvelopeFactory(soap=SOAPVersion.SOAP_1_1))
    client.send(1)
    client.disconnect()

    def page() -> object:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", path)
        answer = connection.getresponse().read().decode()
        connection.close()
        return answer

    until(page, shown)


def test_the_wsdl_in_the_repository_is_the_one_that_is_served(orders: Example) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", orders.port, timeout=20)
    connection.request("GET", "/?wsdl")
    served = connection.getresponse().read()
    connection.close()

    def plain(wsdl: bytes) -> bytes:
        root = etree.fromstring(wsdl, etree.XMLParser(remove_blank_text=True))
        for address in root.iter("{http://schemas.xmlsoap.org/wsdl/soap/}address"):
            address.attrib.clear()
        return etree.tostring(root, method="c14n")

    assert plain(served) == plain((ROOT / "wsdl" / "orders.wsdl").read_bytes())


def test_a_client_without_ws_rm_calls_the_service_by_its_wsdl(orders: Example) -> None:
    client = zeep.Client(str(ROOT / "wsdl" / "orders.wsdl"))
    service = client.create_service("{urn:example:orders}Application", f"http://127.0.0.1:{orders.port}/")
    assert service.put_order(7, "plain") is None
    assert service.echo("Grüße") == "Grüße"
    assert orders.rows("SELECT count(*) FROM effects WHERE n = 7") == [(1,)]


@pytest.mark.parametrize(
    ("program", "last"),
    [
        pytest.param("batches", "1024 messages, each once; 0 are left", marks=pytest.mark.scenario("Q-002")),
        pytest.param(
            "pickups", "widgets is gone, subscribed to widgets/delivered", marks=pytest.mark.scenario("Q-025")
        ),
        ("workers", "14 more done"),
        ("letters", "0 dead letters are left"),
        pytest.param("prices", "1 closing price was recovered: {'tin': 31000}", marks=pytest.mark.scenario("Q-103")),
        ("soap_partner", "36 orders of 3 sequences, each in its order"),
    ],
)
def test_a_program_of_queues_does_what_it_says(tmp_path: Path, program: str, last: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "queues" / f"{program}.py", tmp_path / "queues.db"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == last


@pytest.mark.timeout(150)
def test_three_nodes_hand_messages_on_though_one_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "store_and_forward" / "run.py", tmp_path / "nodes"],
        capture_output=True,
        text=True,
        timeout=140,
        env={**os.environ, "SECONDS": "120"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = (EXAMPLES / "store_and_forward" / "README.md").read_text().split("```text\n")[1].split("```")[0]
    assert done.stdout == shown
