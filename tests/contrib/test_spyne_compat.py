"""What the middleware reads from a Spyne application, and that Spyne can be imported at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spyne import Application, ComplexModel, Fault, Integer, ServiceBase, Unicode, rpc
from spyne.protocol.json import JsonDocument
from spyne.protocol.soap import Soap11
from spyne.server.wsgi import WsgiApplication
from werkzeug.test import Client

from tests.conftest import Wrapped
from tests.support.in_process import InProcess
from wsrm_mq import WSRMMiddleware
from wsrm_mq.contrib.spyne_compat import has_replies, is_spyne, one_way_operations, speaks_soap, understood_headers
from wsrm_mq.testing import EnvelopeFactory, Reply, WSGIWire

ROOT = Path(__file__).parents[2]


class Trace(ComplexModel):
    __namespace__ = "urn:example:trace"
    id = Unicode


class Ticket(ComplexModel):
    __namespace__ = "urn:example:ticket"
    id = Unicode


class Traced(ServiceBase):
    __in_header__ = Trace

    @rpc(Integer, Unicode)
    def put_order(ctx: Any, n: int, text: str) -> None:
        pass

    @rpc(Unicode, _returns=Unicode)
    def echo(ctx: Any, text: str) -> str:
        return text


class Plain(ServiceBase):
    @rpc(Unicode, _body_style="bare")
    def note(ctx: Any, text: str) -> None:
        pass

    @rpc(Unicode, _body_style="bare", _returns=Unicode)
    def look_up(ctx: Any, text: str) -> str:
        return text

    @rpc(_throws=Fault)
    def check(ctx: Any) -> None:
        pass

    @rpc(_out_header=(Ticket,))
    def draw(ctx: Any) -> None:
        pass

    @rpc(_in_header=(Ticket,))
    def redeem(ctx: Any) -> None:
        pass


@pytest.fixture(scope="module")
def application() -> Application:
    return Application([Traced, Plain], "urn:example:orders", in_protocol=Soap11(), out_protocol=Soap11())


def test_operations_that_answer_nothing_at_all_are_one_way(application: Application) -> None:
    assert one_way_operations(application) == {
        "{urn:example:orders}put_order",
        "{urn:example:orders}note",
        "{urn:example:orders}redeem",
    }


def test_the_namespaces_of_declared_headers_are_understood(application: Application) -> None:
    assert understood_headers(application) == {"urn:example:trace", "urn:example:ticket"}


def test_the_wsgi_server_around_an_application_is_read_like_it(application: Application) -> None:
    server = WsgiApplication(application)
    assert is_spyne(application)
    assert is_spyne(server)
    assert one_way_operations(server) == one_way_operations(application)
    assert understood_headers(server) == understood_headers(application)


def test_the_protocol_of_an_application_is_known(application: Application) -> None:
    other = Application([Traced], "urn:example:orders", in_protocol=JsonDocument(), out_protocol=JsonDocument())
    assert speaks_soap(WsgiApplication(application))
    assert not speaks_soap(WsgiApplication(other))
    assert not speaks_soap(lambda *_: [])


def test_what_is_no_soap_never_gets_to_an_application_that_takes_nothing_else(
    application: Application, tmp_path: Path
) -> None:
    with WSRMMiddleware(WsgiApplication(application), tmp_path / "store.db") as middleware:
        answer = Client(middleware).post("/", data=b"{}", content_type="application/json")
    assert answer.status_code == 415
    assert "text/xml" in answer.headers["Accept"]


@pytest.mark.parametrize(
    ("headers", "status", "stored"), [("pass", "415", 0), ("demote", "200", 1), ("strip", "200", 1)]
)
def test_a_compressed_message_is_refused_where_spyne_would_have_to_expand_it(
    application: Application, tmp_path: Path, headers: str, status: str, stored: int
) -> None:
    wsrm = InProcess(tmp_path, WsgiApplication(application), headers=headers)
    with wsrm.middleware:
        assert wsrm.put_compressed(wsrm.create(), 1).startswith(status)
        assert wsrm.rows("SELECT count(*) FROM message") == [(stored,)]


def test_of_any_other_application_nothing_is_known() -> None:
    def app(environ: object, start_response: object) -> list[bytes]:
        return []

    assert not is_spyne(app)
    assert one_way_operations(app) == frozenset()
    assert understood_headers(app) == frozenset()


def test_the_names_are_those_that_spyne_dispatches_by(application: Application) -> None:
    """A request for each one-way operation, by the name we tell, reaches an operation: there is no fault."""
    for name in one_way_operations(application):
        namespace, _, local = name[1:].partition("}")
        body = (
            f'<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>'
            f'<x:{local} xmlns:x="{namespace}"/></s:Body></s:Envelope>'
        ).encode()
        wire = WSGIWire(WsgiApplication(application))
        answer = wire.post(body, {"Content-Type": "text/xml; charset=utf-8"})
        assert answer.status == 200, (name, answer.body)


def run(program: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_spyne_can_be_imported_after_it_on_every_python() -> None:
    said = run(
        "import wsrm_mq.contrib.spyne_compat, http.client\n"
        "from spyne.server.wsgi import WsgiApplication\n"
        "from spyne.util.six.moves.urllib.parse import quote\n"
        "from spyne.util.six.moves import http_client\n"
        "print(quote('a b'), http_client is http.client, http.client.__spec__.name)"
    )
    assert said == "a%20b True http.client"


def test_it_does_not_import_spyne() -> None:
    said = run(
        "import sys, wsrm_mq.contrib.spyne_compat as compat\nprint(compat.is_spyne(object()), 'spyne' in sys.modules)"
    )
    assert said == "False False"


if sys.version_info >= (3, 12):  # Spyne needs no help before Python 3.12

    @pytest.mark.parametrize("part", ["six", "cgi"])
    def test_a_missing_part_of_spyne_is_named_with_the_way_to_get_it(part: str) -> None:
        said = run(
            f"import sys, wsrm_mq.contrib.spyne_compat; sys.modules[{part!r}] = None\n"
            "try:\n"
            "    import spyne\n"
            "except ModuleNotFoundError as error:\n"
            "    print(error)"
        )
        assert said.startswith(f"No module named {part!r}. Install")
        assert "pip install 'wsrm-mq[spyne]'" in said


class Orders(ServiceBase):
    @rpc(Integer, Unicode)
    def put_order(ctx: Any, n: int, text: str) -> None:
        pass


@pytest.mark.spec("RSP-002", "D-CRE-021", versions=("1.1",))
@pytest.mark.parametrize(("services", "accepts"), [([Orders], False), ([Orders, Plain], True)])
def test_where_no_operation_answers_an_offer_is_passed_over_and_the_sequence_created(
    services: list[type[ServiceBase]], accepts: bool, in_process: Wrapped
) -> None:
    made = Application(services, "urn:example:orders", in_protocol=Soap11(), out_protocol=Soap11())
    assert has_replies(made) is accepts
    service = in_process(WsgiApplication(made), one_way="auto")
    created = Reply.parse(service.post(EnvelopeFactory().create_sequence(offer="urn:example:offered"))[1]).created
    assert created is not None
    assert (created.accept is not None) is accepts
    assert service.put(created.identifier, 1).startswith("200")
    assert service.rows("SELECT count(*) FROM outbound_sequence") == [(int(accepts),)]


def test_of_what_is_no_spyne_application_it_is_not_known_whether_it_answers() -> None:
    assert has_replies(lambda _environ, _start_response: [])
